"""A slice in which a candidate may be worse, found without having been named."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """A column has a value."""

    column: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSlice:
    """Rows of some values in some columns: proposed by one half of the rows, judged by the other.

    Attributes:
        conditions: what holds for its rows.
        num: its rows in the half that judges.
        gain_proposed: the gain in the half that proposed it, which is too bad by choice.
        gain: the gain in the other half, with its interval of 90 %.
        p: probability of such a loss there, were there none beyond the margin; corrected for the
            number of slices that were proposed.
        is_confirmed: p is below 0.05; else the slice is a lead and no finding.
    """

    conditions: tuple[Condition, ...]
    num: int
    gain_proposed: float
    gain: Interval
    p: float
    is_confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """What a search for slices in which the candidate is worse has found.

    Attributes:
        columns: where it looked.
        num_proposing, num_judging: rows of the two halves.
        margin: the loss beyond which a slice counts.
        method: how p is corrected: `holm` up to 20 slices, else `bh` (Benjamini and Hochberg).
        slices: the confirmed ones first.
    """

    columns: tuple[str, ...]
    num_proposing: int
    num_judging: int
    margin: float
    method: str
    slices: tuple[FoundSlice, ...]
