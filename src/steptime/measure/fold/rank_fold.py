"""Folds the ranks of a run once: steps, windows and series, from which all else is made.

In: `RunRecords`. Out: `Folded`. The measurement, the profile and the series over time use it; none
of them folds again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.measure.fold.run_records import RunRecords
from steptime.measure.fold.stream import RankStream
from steptime.measure.steps.steady_window import (
    StepTimes,
    StepWindow,
    combine,
    series_of,
    steady_window,
    window_of,
)
from steptime.measure.steps.step_fold import RankSteps, fold_stream
from steptime.measure.values.measurement import SteadyWindow
from steptime.measure.wall.quiet_steps import Stretch, leave_out
from steptime.measure.wall.stalled_steps import mark_stalled


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedRank:
    """One rank: its steps, their times one by one, the steps that count, and its source."""

    steps: RankSteps
    series: StepTimes
    window: StepWindow
    stream: RankStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A run's records and its ranks in order; there are none where no step was seen.

    `left_out` are the stretches whose steps do not count because of busy neighbors.
    """

    records: RunRecords
    ranks: tuple[FoldedRank, ...]
    left_out: tuple[Stretch, ...] = ()

    @property
    def steps(self) -> list[RankSteps]:
        """Return the steps of each rank."""
        return [rank.steps for rank in self.ranks]

    @property
    def windows(self) -> list[StepWindow]:
        """Return the window of each rank."""
        return [rank.window for rank in self.ranks]

    @property
    def busiest(self) -> FoldedRank:
        """Return the rank with the most updates."""
        return max(self.ranks, key=lambda rank: busyness(rank.steps))

    def steady_window(self) -> SteadyWindow:
        """Return the run's window: a single rank's own, or that of the slowest at each step."""
        if len(self.ranks) == 1:
            return self.ranks[0].window.steady
        together = combine([rank.series for rank in self.ranks])
        return steady_window(together, period=self.busiest.window.period)


def fold_ranks(records: RunRecords) -> Folded:
    """Fold the streams of all ranks."""
    streams = {(stream.head.rank, stream.head.pid): stream for stream in records.streams}
    steps = select_ranks(records)
    series, left_out = leave_out(
        steps,
        [series_of(one) for one in steps],
        samples=records.host.samples,
        num_cores=records.host.num_cores,
    )
    ranks = [_fold(one, times, streams) for one, times in zip(steps, series, strict=True)]
    return Folded(records=records, ranks=tuple(ranks), left_out=left_out)


def _fold(
    steps: RankSteps, series: StepTimes, streams: Mapping[tuple[int, int], RankStream]
) -> FoldedRank:
    return FoldedRank(
        steps=steps,
        series=series,
        window=window_of(steps, series),
        stream=streams[steps.head.rank, steps.head.pid],
    )


def select_ranks(records: RunRecords) -> list[RankSteps]:
    """Return the steps of each rank; of its processes, the one with the most updates counts."""
    found: dict[int, RankSteps] = {}
    folded = [fold_stream(stream) for stream in records.streams]
    for steps in sorted(filter(None, folded), key=lambda s: (s.head.t_unix_s, s.head.pid)):
        known = found.get(steps.head.rank)
        if known is None or busyness(steps) > busyness(known):
            found[steps.head.rank] = steps
    return [mark_stalled(found[rank], records.stalls) for rank in sorted(found)]


def busyness(rank: RankSteps) -> tuple[int, int]:
    """Return what ranks processes by how busy they are: updates, then steps."""
    return rank.num_updates, rank.num_steps
