"""Finds the numbers of a run that became infinite or NaN, and since when.

In: the ranks with their rows of losses. Out: a `Health`, of which `diagnose` judges. An update is
bad if its loss or its gradient norm is; what a gradient scaler skips is bad only if that goes on,
because skipping a few is how it finds its factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steptime.measure.health.evaluation_curve import make_evaluations
from steptime.measure.health.find_bracket import find_layers
from steptime.measure.health.loss_curves import make_curves
from steptime.measure.health.loss_series import BadPlace, WeightsSeen, merge_rows
from steptime.measure.values.model.health import Health, NonFinite
from steptime.record.rows import LossRow

if TYPE_CHECKING:
    from steptime.measure.fold.code_places import CodePlaces
    from steptime.measure.steps.step_fold import RankSteps

MAX_SKIPPED = 24
"""Updates in a row that a scaler may skip: it halves its factor each time, and begins at 2**16."""

MAX_SKIPPED_BAD = 3
"""The same where the loss itself is bad before it is scaled: a smaller factor does not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Bad updates in a row: the places of the first one and of the first good one after it."""

    begin: int
    end: int


def find_health(
    ranks: Sequence[RankSteps], busiest: RankSteps, places: CodePlaces
) -> Health | None:
    """Return the numerical health of a run; None where no number was seen."""
    found: list[NonFinite] = []
    own: list[LossRow] = []
    for rank in ranks:
        rows = merge_rows(rank.signals.losses)
        if rank is busiest:
            own = rows
        one = find_non_finite(
            rows, rank.signals.bad_places, rank=rank.head.rank, num_updates=_num_updates(rank)
        )
        if one is not None:
            found.append(one)
    worst = min(found, key=_order, default=None)
    layers = find_layers(ranks, busiest, worst, places)
    signals = busiest.signals
    evaluations = make_evaluations(signals.evaluations, own)
    beside = (layers, signals.weight_use, signals.kept_graphs, evaluations)
    if not own and not found and not any(beside):
        return None
    return Health(
        num_seen=len(own),
        non_finite=None if worst is None else _named(worst, places),
        curves=make_curves(own),
        weights=signals.weight_use,
        kept_graphs=signals.kept_graphs,
        evaluations=evaluations,
        layers=layers,
    )


def _order(found: NonFinite) -> tuple[bool, int, bool, int]:
    """Return what comes first: where ranks share gradients, one has it in its own loss."""
    is_shared = found.value == "weights"
    return not found.is_going_on, found.first_update, is_shared, found.rank


def _num_updates(rank: RankSteps) -> int:
    """Return the updates of a rank, or its steps where no optimizer made any."""
    return rank.num_updates or rank.num_steps


def _named(found: NonFinite, places: CodePlaces) -> NonFinite:
    return found if found.file is None else replace(found, file=places.name(found.file))


def find_non_finite(
    rows: Sequence[LossRow], seen: Sequence[BadPlace], *, rank: int, num_updates: int
) -> NonFinite | None:
    """Return the bad numbers of one rank, those that go on before those that ended."""
    are_bad = mark_bad(rows)
    episodes = split_episodes(are_bad)
    if not episodes:
        return _open_end(seen, rows, rank=rank, num_updates=num_updates)
    is_going_on = are_bad[-1]
    chosen = episodes[-1] if is_going_on else episodes[0]
    first = rows[chosen.begin]
    place = next((one for one in seen if one.n == first.number), None)
    number, value, what = _first_bad(first, place, is_skipped=not _has_bad(first))
    num_wasted = sum(
        (rows[one.end].number if one.end < len(rows) else num_updates + 1) - rows[one.begin].number
        for one in episodes
    )
    before = rows[chosen.begin - 1].number if chosen.begin else None
    return NonFinite(
        value=value,
        what=what,
        rank=rank,
        first_update=number,
        last_finite_update=before if before is None or before < number else number - 1 or None,
        num_wasted=max(1, num_wasted + first.number - number),
        num_updates=max(num_updates, rows[-1].number),
        is_going_on=is_going_on,
        is_skipped=bool(first.skipped),
        file=None if place is None else place.file,
        line=None if place is None else place.line,
        weights=place.names if place is not None and value == "weights" else (),
        masked=place.masked if place is not None and value == "weights" else None,
    )


def mark_bad(rows: Sequence[LossRow]) -> list[bool]:
    """Return which updates are bad."""
    are_bad = [not row.skipped and _has_bad(row) for row in rows]
    begin = 0
    while begin < len(rows):
        end = begin
        while end < len(rows) and _continues(rows, begin, end):
            end += 1
        if end > begin and _is_lasting(rows[begin:end]):
            are_bad[begin:end] = [True] * (end - begin)
        begin = max(end, begin + 1)
    return are_bad


def _continues(rows: Sequence[LossRow], begin: int, end: int) -> bool:
    """Return whether this row is skipped, as those from `begin` to it are."""
    return bool(rows[end].skipped) and rows[end].number - rows[begin].number == end - begin


def _is_lasting(skipped: Sequence[LossRow]) -> bool:
    num_bad = sum(row.loss is not None and not math.isfinite(row.loss) for row in skipped)
    return len(skipped) > MAX_SKIPPED or (num_bad == len(skipped) >= MAX_SKIPPED_BAD)


def _has_bad(row: LossRow) -> bool:
    return any(value is not None and not math.isfinite(value) for value in (row.loss, row.norm))


def split_episodes(are_bad: Sequence[bool]) -> list[Episode]:
    """Return the runs of bad updates."""
    found, begin = [], None
    for place, is_bad in enumerate((*are_bad, False)):
        if is_bad and begin is None:
            begin = place
        elif not is_bad and begin is not None:
            found.append(Episode(begin=begin, end=place))
            begin = None
    return found


def _first_bad(row: LossRow, place: BadPlace | None, *, is_skipped: bool) -> tuple[int, str, str]:
    """Return the first bad update, the value that was bad in it, and how."""
    if is_skipped:
        return row.number, "skipped_updates", "infinity"
    is_loss = row.loss is not None and not math.isfinite(row.loss)
    value = row.loss if is_loss else row.norm
    what = "nan" if value is None or math.isnan(value) else "infinity"
    weights = None if place is None else place.weights
    if is_loss and weights is not None and weights.num_bad:
        return row.number - _is_older(weights, row.number), "weights", what
    return row.number, "loss" if is_loss else "gradient_norm", what


def _is_older(weights: WeightsSeen, number: int) -> bool:
    """Return whether the update before broke the weights, and not the script between the two.

    What an update breaks shows in the optimizer's state, or, where it has none, in a whole weight
    or in several.
    """
    if number == 1:
        return False
    if weights.num_states:
        return weights.num_bad_states > 0
    return weights.num_broken > 0 or weights.num_bad > 1 or weights.num == 1


def _open_end(
    seen: Sequence[BadPlace], rows: Sequence[LossRow], *, rank: int, num_updates: int
) -> NonFinite | None:
    """Return the bad number after which the script ended without another update."""
    place = next((one for one in seen if one.is_open), None)
    if place is None:
        return None
    number = place.n
    if place.weights is not None and place.weights.num_bad:
        number -= _is_older(place.weights, place.n)
    return NonFinite(
        value="weights" if number < place.n else place.value,
        what="nan" if place.is_nan else "infinity",
        rank=rank,
        first_update=number,
        last_finite_update=rows[-1].number if rows and rows[-1].number < number else None,
        num_wasted=max(0, num_updates + 1 - number),
        num_updates=num_updates,
        is_going_on=True,
        file=place.file,
        line=place.line,
        weights=place.names if number < place.n else (),
        masked=place.masked if number < place.n else None,
    )
