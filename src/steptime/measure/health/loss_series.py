"""Puts the rows of losses of one rank in order: one for each update."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from steptime.record.places import BY_HAND
from steptime.record.rows import LossRow


@dataclass(frozen=True, slots=True, kw_only=True)
class BadPlace:
    """Where a number became bad, as the guest saw it; `n` is the update in progress, from 1.

    `weights` holds how many weights and optimizer states there were then, and how many were bad.
    `names` are those of bad weights, where others were sound.
    `masked` is the module nearest to a softmax over masked scores in that loss's graph.
    `is_open`: no update followed, because the script ended.
    """

    n: int
    value: str
    is_nan: bool
    skipped: int = 0
    is_open: bool = False
    file: str | None = None
    line: int | None = None
    weights: WeightsSeen | None = None
    names: tuple[str, ...] = ()
    masked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSeen:
    """Weights and states in the update whose loss was bad; `num_broken` have no finite number."""

    num: int
    num_bad: int
    num_broken: int
    num_states: int
    num_bad_states: int


def merge_rows(rows: Iterable[LossRow]) -> list[LossRow]:
    """Return one row for each update, in order.

    Where an optimizer steps, backward calls before its first update belong to that. Numbers of a
    device come later than the update that they belong to, in rows of their own.
    """
    by_optimizer: dict[int, LossRow] = {}
    by_hand: dict[int, LossRow] = {}
    for row in rows:
        found = by_hand if row.optimizer == BY_HAND else by_optimizer
        known = found.get(row.number)
        found[row.number] = row if known is None else _join(known, row)
    if not by_optimizer:
        return [by_hand[number] for number in sorted(by_hand)]
    ordered = [by_optimizer[number] for number in sorted(by_optimizer)]
    if not by_hand:
        return ordered
    early = [row for _, row in sorted(by_hand.items())]
    if ordered[0].number > 1:  # all that is known of the first update is what came before its step
        ordered.insert(0, LossRow(1, ordered[0].optimizer, 0, None, None))
    ordered[0] = _with_early(ordered[0], early)
    return ordered


def _join(known: LossRow, row: LossRow) -> LossRow:
    return known._replace(
        skipped=max(known.skipped, row.skipped),
        loss=row.loss if known.loss is None else known.loss,
        norm=row.norm if known.norm is None else known.norm,
    )


def _with_early(first: LossRow, early: list[LossRow]) -> LossRow:
    """Return the first update with the mean loss of the backward calls that belong to it."""
    losses = [row.loss for row in (*early, first) if row.loss is not None]
    norms = [row.norm for row in (*early, first) if row.norm is not None]
    return first._replace(
        loss=math.fsum(losses) / len(losses) if losses and _are_finite(losses) else _bad_of(losses),
        norm=norms[-1] if norms else None,
    )


def _are_finite(values: Iterable[float]) -> bool:
    return all(map(math.isfinite, values))


def _bad_of(values: Iterable[float]) -> float | None:
    return next((value for value in values if not math.isfinite(value)), None)
