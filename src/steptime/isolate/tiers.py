"""How well a child is kept from doing harm: the tiers, and what a probe found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Tier(str, Enum):
    """The three ways to start a child, best first."""

    ISOLATED = "isolated"
    """Whatever it writes goes to a layer in memory that disappears with it."""
    GUARDED = "guarded"
    """The kernel refuses writes outside its folder; Python's usual writers are redirected."""
    UNSAFE = "unsafe"
    """Nothing keeps it from writing. This happens only if the user insists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """What the children of this study run in.

    Attributes:
        tier: the best one that worked when it was tried.
        has_own_network: a loopback of its own and nothing else, so no uploads and no port clashes.
        has_own_processes: process ids of its own, so no daemon can outlive it.
        share_network: the user asked for the host's network, for data that comes over it.
        layer_bytes: how much it may write in memory, if isolated; beyond that, "no space left".
        reasons: why it is no better, one sentence each.
    """

    tier: Tier
    has_own_network: bool = False
    has_own_processes: bool = False
    share_network: bool = False
    layer_bytes: int = 0
    reasons: tuple[str, ...] = ()
