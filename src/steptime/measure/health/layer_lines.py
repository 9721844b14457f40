"""The lines of a probe of the layers, as the guest wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.measure.values.model.layer_health import BracketSide


@dataclass(frozen=True, slots=True, kw_only=True)
class BracketSeen:
    """A bracket as the guest wrote it; `n` is the update, from 1."""

    n: int
    skipped: int = 0
    is_open: bool = False
    is_late: bool = False
    forward: BracketSide | None = None
    backward: BracketSide | None = None
    num_weights: int = 0
    num_bad_weights: int = 0
    bad_weights: tuple[str, ...] = ()
    num_bad_gradients: int = 0
    bad_gradients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookCost:
    """What a probe saw and took so far; the last line of a rank counts."""

    since: int | None
    updates: int
    tensors: int
    ns: int
    missing: Mapping[str, int]
