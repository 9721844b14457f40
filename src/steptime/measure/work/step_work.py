"""Finds the work of a step over the steady window, from the updates that were counted.

In: the ranks' steps and windows, and what an extra child counted, if there was one. Out: the work
of the mean step with how it is known, or the reason why there is none. `work_fit` has the work of
updates that were not counted; `diagnose.utilization` relates it to the peak.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from steptime.measure.fold.rank_fold import Folded, FoldedRank
from steptime.measure.fold.seen_lines import CountSeen
from steptime.measure.steps.steady_window import StepWindow
from steptime.measure.steps.step_blocks import StepBlock
from steptime.measure.values.model.work import Count, StepKind, WorkBasis
from steptime.measure.work.mean_count import mean_count, with_ranks
from steptime.measure.work.size_groups import Size, Steps, group_sizes
from steptime.measure.work.work_fit import (
    ELEMENTS,
    LARGEST,
    ROWS,
    SAME,
    TRAINED,
    CountedUpdate,
    Fit,
    Knowledge,
    Passes,
    Update,
    WorkModel,
)

_COMPILED = "compiled"
_SEVERAL = 2
_OUTSIDE_FRACTION = 0.01
"""Beyond this share, too much of the backward belongs to calls whose forward was not counted."""

_MAX_BACKWARD = 2.1
"""Gradients cost twice the forward at most; if they cost more, and other threads made some of the
graph, a part of the forward was not seen. A twentieth is left to sums by index, whose forward is a
lookup."""

_MAX_ASSUMED = 0.05
"""Beyond this share of work that was neither counted nor computed, only a range is known."""

_MAX_COUNTED = 64
"""More lines than the guest writes: eight probes of four optimizers, or forty updates."""

_MAX_KINDS = 8
"""Steps of more kinds than this are of any size rather than of a few kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSeen:
    """The work of the mean step, or why it is not known."""

    count: Count | None = None
    missing: str | None = None


def find_count(folded: Folded, extra: Sequence[CountSeen]) -> WorkSeen:
    """Return the work of a step; a count of the run itself precedes that of an extra child.

    Where it is only a range, what counted more updates is better.
    """
    rank = folded.busiest
    own, counts = _why_not_own(rank), rank.steps.signals.counts
    refused = next((one.missing for one in extra if one.missing is not None), None)
    if own is None and counts:
        found = _work_of(rank, counts)
        is_better = found.count is not None and found.count.is_range and _num(extra) > _num(counts)
        if found.count is not None and not (is_better and refused is None):
            return replace(found, count=with_ranks(found.count, _counts_of(folded)))
        own = found.missing
    if refused is not None or not extra:
        return WorkSeen(missing=refused or own)
    found = _work_of(rank, extra)
    if found.count is None:
        return found
    basis = found.count.basis
    is_executed = found.count.is_executed and own != _COMPILED  # the child did not compile
    count = replace(
        found.count,
        is_executed=is_executed,
        basis=None if basis is None else replace(basis, is_apart=True),
    )
    return replace(found, count=count)


def _num(seen: Sequence[CountSeen]) -> int:
    return sum(one.count is not None for one in seen)


def _why_not_own(rank: FoldedRank) -> str | None:
    """Return why the run's own counts do not show the work of a step, as a machine word."""
    seen = rank.steps.signals.counts
    counts = [one.count for one in seen if one.count is not None]
    if not counts:
        return next((one.missing for one in seen), None)
    backward = sum(one.backward for one in counts)
    forward = sum(one.forward for one in counts)
    if forward and not backward:
        return "no_backward_seen"
    if sum(one.outside_flops for one in counts) > _OUTSIDE_FRACTION * backward:
        return "outside_modules"
    if sum(one.before_flops for one in counts) > _OUTSIDE_FRACTION * backward:
        return "forward_elsewhere"
    has_guests = any(one.has_guests for one in seen) and not any(one.is_double for one in seen)
    return "forward_elsewhere" if has_guests and backward > _MAX_BACKWARD * forward else None


def _counts_of(folded: Folded) -> list[Count]:
    """Return the work of a mean step on every rank; empty if one has no count."""
    if len(folded.ranks) < _SEVERAL:
        return []
    found = [_work_of(rank, rank.steps.signals.counts).count for rank in folded.ranks]
    counts = [one for one in found if one is not None]
    return counts if len(counts) == len(found) else []


def _work_of(rank: FoldedRank, seen: Sequence[CountSeen]) -> WorkSeen:
    """Return the work of the mean step of a rank's window."""
    counted = [one for one in seen if one.count is not None][:_MAX_COUNTED]
    if not counted:
        return WorkSeen(missing=next((one.missing for one in seen), None))
    if any(not one.sizes for one in counted) or not rank.steps.sizes.columns:
        return _without_sizes(rank, counted[-1])
    model = WorkModel([_counted_update(one) for one in counted])
    sums = _add_up(rank, model)
    if not sums.steps:
        return WorkSeen(count=counted[0].count)
    found = mean_count(
        [one.count for one in counted if one.count is not None],
        [_key_of(one) for one in counted],
        sums.rows,
        passes=sums.mean_passes(),
    )
    return WorkSeen(count=replace(found, basis=_basis(rank, model, sums)))


def _without_sizes(rank: FoldedRank, found: CountSeen) -> WorkSeen:
    """Return the work of one counted step, as an older guest wrote it."""
    steps, period = rank.steps, rank.window.period
    if steps.num_updates and round(steps.num_updates / steps.num_steps) != found.updates:
        return WorkSeen(missing="several_optimizers")
    if (period is not None and period > 1) or _differ(rank.window):
        return WorkSeen(missing="steps_differ")
    if found.count is None or not steps.num_steps:
        return WorkSeen(count=found.count)
    one = found.count.total
    basis = WorkBasis(
        how="one", num_counted=1, num_steps=rank.window.num_steps, low_flops=one, high_flops=one
    )
    return WorkSeen(count=replace(found.count, basis=basis))


def _differ(window: StepWindow) -> bool:
    """Return whether steps differ in how often they go backward, in whatever order."""
    each = {*window.steps.count("backwards")}
    means = {
        block.count("backwards") / block.num_steps for block in window.blocks if block.num_steps
    }
    return len(each | means) > 1


def _key_of(one: CountSeen) -> Update:
    assert one.optimizer is not None  # its line has sizes
    return (one.optimizer, *one.sizes[:TRAINED])


def _counted_update(one: CountSeen) -> CountedUpdate:
    count = one.count
    assert count is not None
    return CountedUpdate(key=_key_of(one), passes=(count.forward, count.backward, count.recomputed))


# -- over the window


@dataclass(slots=True, kw_only=True)
class _Sums:
    """The steps of a window by what they did: optimizers and total work; and their rows."""

    steps: Counter[tuple[tuple[int, ...], float]] = field(default_factory=Counter)
    rows: Counter[Update] = field(default_factory=Counter)
    sizes: dict[Size, Steps] = field(default_factory=dict)
    passes: list[float] = field(default_factory=lambda: [0.0] * 3)
    by_knowledge: dict[Knowledge, float] = field(default_factory=dict)
    fits: set[Fit] = field(default_factory=set)

    @property
    def num_steps(self) -> int:
        return sum(self.steps.values())

    @property
    def total(self) -> float:
        return sum(self.passes)

    def share(self, how: Knowledge) -> float:
        """Return the share of the work that is known in this way."""
        return self.by_knowledge.get(how, 0.0) / self.total if self.total else 0.0

    def add(self, found: tuple[Passes, Knowledge, Fit | None], num: int) -> float:
        """Add the work of as many updates; return that of one."""
        passes, how, fit = found
        self.passes = [old + num * new for old, new in zip(self.passes, passes, strict=True)]
        one = sum(passes)
        self.by_knowledge[how] = self.by_knowledge.get(how, 0.0) + num * one
        if fit is not None:
            self.fits.add(fit)
        return one

    def add_step(self, rows: Sequence[Update], total: float, num: int) -> None:
        """Note as many steps with these rows and this work."""
        self.steps[tuple(int(row[0]) for row in rows), total] += num
        for row in rows:
            self.rows[row] += num
        size = round(sum(row[ROWS] for row in rows)), round(sum(row[ELEMENTS] for row in rows))
        before = self.sizes.get(size, (0, 0.0))
        self.sizes[size] = before[0] + num, before[1] + num * total

    def mean_passes(self) -> tuple[int, int, int]:
        """Return the work of the mean step [FLOP]."""
        forward, backward, recomputed = (round(one / self.num_steps) for one in self.passes)
        return forward, backward, recomputed


def _add_up(rank: FoldedRank, model: WorkModel) -> _Sums:
    """Return the work of all steps of the window."""
    sums, sizes = _Sums(), rank.steps.sizes
    kinds = Counter(
        tuple(row[:LARGEST] for row in sizes.rows_of(index)) for index in rank.window.steps.index
    )
    for rows, num in kinds.items():
        total = sum(sums.add(model.work_of(row), num) for row in rows)
        sums.add_step(rows, total, num)
    blocks = rank.window.blocks
    if not kinds and not blocks:  # the window begins inside a block
        blocks = rank.steps.blocks
    for block in blocks:
        _add_block(sums, model, block)
    return sums


def _add_block(sums: _Sums, model: WorkModel, block: StepBlock) -> None:
    """Add steps of which only the sums of their sizes are known, if one optimizer made them."""
    turns = {key[0] for key in sums.rows} or {one.key[0] for one in model.counted}
    num = block.num_steps
    if not num:
        return
    if len(turns) != 1 or not block.sizes:
        passes = _usual_step(sums, model, turns)
        total = sums.add((passes, Knowledge.ASSUMED, None), num)
        sums.steps[tuple(sorted(int(turn) for turn in turns)), total] += num
        return
    turn = int(next(iter(turns)))
    row: Update = (turn, *(one / num for one in block.sizes[:TRAINED]))
    sums.add_step((row,), sums.add(model.work_of(row), num), num)


def _usual_step(sums: _Sums, model: WorkModel, turns: set[float]) -> Passes:
    """Return the work of the mean step so far, else of a counted update of each optimizer."""
    if sums.num_steps:
        forward, backward, recomputed = (one / sums.num_steps for one in sums.passes)
        return forward, backward, recomputed
    found = [0.0] * 3
    for turn in turns:
        one = next(one for one in model.counted if one.key[0] == turn)
        found = [old + new for old, new in zip(found, one.passes, strict=True)]
    return found[0], found[1], found[2]


def _basis(rank: FoldedRank, model: WorkModel, sums: _Sums) -> WorkBasis:
    totals = [total for _, total in sums.steps]
    kinds = _kinds_of(sums.steps)
    errors = [fit.error_fraction for fit in sums.fits]
    assumed = sums.share(Knowledge.ASSUMED)
    how = _how(model, sums, len(totals), num_kinds=len(kinds))
    counted = [one.total for one in model.counted]
    ends = [*totals, *counted] if how == "range" else totals or counted
    return WorkBasis(
        how=how,
        num_counted=len(model.counted),
        num_steps=sums.num_steps,
        low_flops=round(min(ends)),
        high_flops=round(max(ends)),
        error_fraction=max(errors, default=None)
        if how == "scaled"
        else model.spread_fraction
        if how == "range"
        else None,
        assumed_fraction=assumed,
        scaled_by=tuple(sorted({name for fit in sums.fits for name in fit.terms})),
        kinds=kinds if how == "kinds" else (),
        sizes=group_sizes(sums.sizes),
        window_s=math.fsum(rank.window.times_s()) or None,
    )


def _how(model: WorkModel, sums: _Sums, num_totals: int, *, num_kinds: int) -> str:
    """Return how the mean came about, as one of `measure.values.work.HOW`."""
    if model.spread_fraction > SAME or sums.share(Knowledge.ASSUMED) > _MAX_ASSUMED:
        return "range"
    if sums.share(Knowledge.COMPUTED) > 0 or sums.share(Knowledge.ASSUMED) > 0:
        return "scaled"
    if num_totals > 1:
        return "kinds" if num_kinds else "each"
    return "one" if len(model.counted) == 1 else "equal"


def _kinds_of(steps: Mapping[tuple[tuple[int, ...], float], int]) -> tuple[StepKind, ...]:
    """Return the kinds of steps, the most frequent first; none if there are many, or one."""
    if not 1 < len(steps) <= _MAX_KINDS:
        return ()
    ordered = sorted(steps.items(), key=lambda item: -item[1])
    return tuple(
        StepKind(optimizers=optimizers, num_steps=num, flops=round(total))
        for (optimizers, total), num in ordered
    )
