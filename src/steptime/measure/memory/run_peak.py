"""Finds the most memory that the steps of a run held at once, and in which step.

In: the peaks of the updates whose storages were followed, the sizes of all updates, and counters
of the process that only rise. Out: a `RunPeak` and `HighWater` marks. Most steps are not followed:
their peaks are those of followed steps of the same sizes, or computed from their sizes, or known to
be no larger because no size is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from steptime.measure.fold.rank_fold import FoldedRank
from steptime.measure.fold.seen_lines import CountSeen, MemorySample
from steptime.measure.values.model.anatomy import Anatomy, HighWater, LastStep, RunPeak
from steptime.measure.work.work_fit import (
    ELEMENTS,
    LARGEST,
    LARGEST_SQUARE,
    ROWS,
    TRAINED,
    Fit,
    Update,
    find_fit,
)
from steptime.record.places import NS

FORMS = (
    *(("updates",), ("updates", "elements"), ("updates", "rows"), ("updates", "largest")),
    *(("updates", "elements", "squares"), ("updates", "rows", "elements")),
    ("updates", "largest", LARGEST_SQUARE),
)
"""Sums that are tried: what stays, and activations that grow with the batch, or with the square of
a sequence, of all calls or of the largest one."""

SAME = 0.01
"""Peaks that differ by less are equal."""

MIN_RISES = 2
"""So often in a row a peak must rise by no size: then what is held grows from step to step."""

MIN_FIT = 3
"""A sum is fitted to so many followed updates at least."""

NUM_LAST = 5
"""Steps before the end that are shown of a run that died."""

Kind = tuple[float, float, bool]
"""Optimizer, trained weights, and whether there is one call with gradients alone: from the second
one on, new gradients stand beside the sums of those before."""


def add_peaks(found: Anatomy | None, ranks: Sequence[FoldedRank]) -> Anatomy | None:
    """Return the anatomy with the largest peaks of all ranks over the whole run."""
    if found is None:
        return None
    peaks = [peak for rank in ranks if (peak := find_run_peak(rank)) is not None]
    death = found.death
    if death is not None:
        died = [one for one in ranks if one.steps.head.rank == found.rank]
        death = replace(death, last_steps=tuple(step for one in died for step in _last_steps(one)))
    return replace(
        found,
        death=death,
        run_peak=max(peaks, key=lambda peak: peak.bytes, default=None),
        device_peak=_highest(ranks, lambda sample: sample.peak),
        resident_peak=_highest(ranks, lambda sample: sample.rss_peak),
    )


def find_run_peak(rank: FoldedRank) -> RunPeak | None:
    """Return the largest peak of the steps of a rank; None where none was followed."""
    sizes = rank.steps.sizes
    seen = peaks_seen(rank.steps.signals.counts)
    followed = {key: max(peak for one, peak in seen if one == key) for key, _ in seen}
    if not followed or not sizes.columns or not rank.window.num_steps:
        return None
    peaks, first = Peaks(followed), rank.window.steady.first_step
    rows = list(zip(sizes.optimizers, *sizes.columns, strict=True))
    warm = peaks.of_steps(rows, sizes.rounds[1:first])
    peaks.forget_use()
    found = peaks.of_steps(rows, sizes.rounds[first:])
    known = [(peak, step) for step, peak in enumerate(found, first) if peak is not None]
    known += _of_blocks(rank, peaks)
    if not known:
        return None
    highest, num_rises = max(peak for peak, _ in known), count_rises(seen)
    return RunPeak(
        rank=rank.steps.head.rank,
        how=_how(peaks, rises=num_rises > 0),
        bytes=round(highest),
        low_bytes=round(min(peak for peak, _ in known)),
        step=next(step for peak, step in known if peak == highest),
        num_steps=rank.steps.num_steps - first,
        num_followed=len(seen),
        grows=num_rises >= MIN_RISES,
        error_fraction=max((fit.error_fraction for fit in peaks.fits_used), default=None),
        warmup_bytes=max((round(peak) for peak in warm if peak is not None), default=None),
    )


def _last_steps(rank: FoldedRank) -> list[LastStep]:
    """Return the last steps of a rank with their sizes, and their peaks if these are known."""
    sizes, first = rank.steps.sizes, max(0, len(rank.steps.sizes.rounds) - NUM_LAST)
    if not sizes.columns:
        return []
    followed: dict[Update, int] = {}
    for update, peak in peaks_seen(rank.steps.signals.counts):
        followed[update] = max(peak, followed.get(update, 0))
    peaks = Peaks(followed)
    rows = list(zip(sizes.optimizers, *sizes.columns, strict=True))
    found = []
    for step, (begin, end) in enumerate(sizes.rounds[first:], first):
        of_step = rows[begin:end]
        most = peaks.of_step(of_step)
        found.append(
            LastStep(
                step=step,
                rows=round(sum(row[ROWS] for row in of_step)),
                elements=round(sum(row[ELEMENTS] for row in of_step)),
                peak_bytes=None if most is None else round(most),
            )
        )
    return found


def peaks_seen(counts: Sequence[CountSeen]) -> list[tuple[Update, int]]:
    """Return the followed updates, each with its peak."""
    return [
        ((one.optimizer, *one.sizes), one.peak.bytes)
        for one in counts
        if one.peak is not None and one.sizes and one.optimizer is not None
    ]


def _of_blocks(rank: FoldedRank, peaks: Peaks) -> list[tuple[float, int]]:
    """Return the peak of a mean step of each block, if one optimizer made all steps."""
    turns = {*rank.steps.sizes.optimizers}
    if len(turns) != 1:
        return []
    found = []
    for block in rank.window.blocks:
        if block.sizes and block.num_steps:
            row = (*turns, *(one / block.num_steps for one in block.sizes))
            found.append((peaks.of_step([row]), block.first_index))
    return [(peak, step) for peak, step in found if peak is not None]


def _how(peaks: Peaks, *, rises: bool) -> str:
    if peaks.is_short or rises:
        return "at_least"
    return "computed" if peaks.fits_used else "followed"


def count_rises(seen: Sequence[tuple[Update, int]]) -> int:
    """Return how often in a row a later update held more than an earlier one nowhere smaller.

    Once may be what is made once: buckets of DDP, states of an optimizer, a cache. Twice, something
    grows that sizes do not show.
    """
    rises = [0] * len(seen)
    for (early, (row, peak)), (late, (larger, other)) in combinations(enumerate(seen), 2):
        is_alike = row[0] == larger[0] and all(a >= b for a, b in zip(row, larger, strict=True))
        if is_alike and other > peak * (1 + SAME):
            rises[late] = max(rises[late], rises[early] + 1)
    return max(rises, default=0)


class Peaks:
    """The peak of any update, from those that were followed."""

    def __init__(self, followed: Mapping[Update, int]) -> None:
        self.followed = followed
        self.forget_use()
        self._fits: dict[Kind, Fit | None] = {}

    def forget_use(self) -> None:
        """Begin anew to note what was needed."""
        self.is_short = False  # an update may hold more than is known
        self.fits_used: set[Fit] = set()
        self._known: dict[Update, float | None] = dict(self.followed)

    def of_steps(
        self, rows: Sequence[Update], rounds: Sequence[tuple[int, int]]
    ) -> list[float | None]:
        """Return the peak of each step, given the places of its rows."""
        if not rounds:
            return []
        begin, end = rounds[0][0], rounds[-1][1]
        for row in set(rows[begin:end]):
            self._of(row)
        if end - begin == len(rounds):  # one row each
            return list(map(self._known.__getitem__, rows[begin:end]))
        return [self.of_step(rows[begin:end]) for begin, end in rounds]

    def of_step(self, rows: Sequence[Update]) -> float | None:
        """Return the largest peak of a step's updates; None where it is not known."""
        found = [peak for row in rows if (peak := self._of(row)) is not None]
        return max(found, default=None)

    def _of(self, row: Update) -> float | None:
        if row not in self._known:
            self._known[row] = self._find(row)
        return self._known[row]

    def _find(self, row: Update) -> float | None:
        """Return the peak of an update that was not followed; None where it is not known.

        It is no larger than that of a followed update if no size is.
        """
        fit = self._fit_of(kind_of(row))
        bounds = [peak for larger, peak in self.followed.items() if _holds(larger, row)]
        if fit is None:
            self.is_short |= not bounds
            return None
        if not bounds:
            self.fits_used.add(fit)
        return min([sum(fit.passes(row)), *bounds])

    def _fit_of(self, kind: Kind) -> Fit | None:
        if kind not in self._fits:
            alike = [(k, peak) for k, peak in self.followed.items() if kind_of(k) == kind]
            self._fits[kind] = fit_largest(alike)
        return self._fits[kind]


def fit_largest(alike: Sequence[tuple[Update, int]]) -> Fit | None:
    """Return a sum for the largest of these peaks, of as many as it gives from one another.

    The peaks of small updates may be at another place of the step, where less grows.
    """
    ordered = sorted(alike, key=lambda one: -one[1])
    known = [(update, (float(peak), 0.0, 0.0)) for update, peak in ordered]
    for num in range(len(known), MIN_FIT - 1, -1):
        fit = find_fit(known[:num], forms=FORMS)
        if fit is not None:
            return fit
    return None


def kind_of(row: Update) -> Kind:
    """Return what two updates must share so that their peaks can be compared."""
    return row[0], row[TRAINED], row[LARGEST] == row[ELEMENTS]


def _holds(larger: Update, row: Update) -> bool:
    """Return whether one update is at least as large as another of the same kind."""
    is_alike = kind_of(larger) == kind_of(row)
    return is_alike and all(a >= b for a, b in zip(larger, row, strict=True))


# -- counters that only rise


def _highest(
    ranks: Sequence[FoldedRank], read: Callable[[MemorySample], int | None]
) -> HighWater | None:
    found = [mark for rank in ranks if (mark := _high_water(rank, read)) is not None]
    return max(found, key=lambda mark: mark.bytes, default=None)


def _high_water(rank: FoldedRank, read: Callable[[MemorySample], int | None]) -> HighWater | None:
    """Return the end of a counter that only rises, and between which readings it came there."""
    seen = [(s.t * NS, value) for s in rank.steps.signals.memory if (value := read(s)) is not None]
    if not seen:
        return None
    highest = max(value for _, value in seen)
    place = next(place for place, (_, value) in enumerate(seen) if value == highest)
    begun_s = seen[place - 1][0] if place else 0.0
    first, last = (_step_at(rank, t_s) for t_s in (begun_s, seen[place][0]))
    start_s = rank.window.start_s if rank.window.num_steps else 0.0
    warm = [value for t_s, value in seen if t_s <= start_s]
    return HighWater(
        rank=rank.steps.head.rank,
        bytes=highest,
        first_step=first,
        last_step=last if last is not None or first is None else rank.steps.num_steps - 1,
        warmup_bytes=max(warm, default=None),
    )


def _step_at(rank: FoldedRank, t_s: float) -> int | None:
    """Return which step was made at this time; None after the last one that is known."""
    ends_s = rank.steps.steps.end_s
    step = bisect_left(ends_s, t_s)
    return step if step < len(ends_s) else None
