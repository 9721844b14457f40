"""How well a child is kept from doing harm: the tiers, and what a probe found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Tier(str, Enum):
    """The three ways to start a child, best first."""

    ISOLATED = "isolated"
    """Whatever it writes lands in a layer in memory that vanishes with it."""
    GUARDED = "guarded"
    """The kernel refuses writes outside its folder; Python's usual writers are redirected."""
    UNSAFE = "unsafe"
    """Nothing keeps it from writing. Only where the user insists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """What children of this study run in.

    Attributes:
        tier: the best one that worked when it was tried.
        has_own_network: a loopback of its own and nothing else: no uploads, no port clashes.
        has_own_processes: process ids of its own, so that no daemon can outlive it.
        share_network: the user asked for the host's network, for data that comes over it.
        layer_bytes: how much it may write in memory, where isolated; then "no space left".
        reasons: why it is no better, a sentence each.
    """

    tier: Tier
    has_own_network: bool = False
    has_own_processes: bool = False
    share_network: bool = False
    layer_bytes: int = 0
    reasons: tuple[str, ...] = ()
