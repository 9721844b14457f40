"""How well a child is kept from doing harm: the tiers, and what a probe found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .guard.walls import Wall


class Tier(str, Enum):
    """The three ways to start a child, best first."""

    ISOLATED = "isolated"
    """Whatever it writes goes to a layer in memory that disappears with it."""
    GUARDED = "guarded"
    """The kernel refuses writes outside its folder; Python's usual writers are redirected. A filter
    refuses what reaches other programs."""
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
        has_filter: system calls that folders and namespaces do not hold are refused or decided.
        layer_bytes: how much it may write in memory, if isolated; beyond that, "no space left".
        reasons: why it is no better, one sentence each.
        lacks: what nothing keeps a child from here, one machine word each.
    """

    tier: Tier
    has_own_network: bool = False
    has_own_processes: bool = False
    share_network: bool = False
    has_filter: bool = True
    layer_bytes: int = 0
    reasons: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def walls(self) -> tuple[Wall, ...]:
        """What a filter must hold, because folders and namespaces do not."""
        if self.tier is Tier.UNSAFE or not self.has_filter:
            return ()
        found: list[Wall] = []
        if not self.share_network:
            found += [Wall.SOCKETS] if self.has_own_network else [Wall.NETWORK, Wall.SOCKETS]
        if self.tier is Tier.GUARDED:
            found += [Wall.MEMORY, Wall.ATTRIBUTES]
        if not self.has_own_processes:
            found.append(Wall.PROCESSES)
        return tuple(found)
