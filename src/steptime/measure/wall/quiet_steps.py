"""Finds the steps that were made while other programs took cores that the run wanted.

In: the samples of the machine's load, and the steps of the ranks. Out: the indices of the steps
that are left out. What others did decides, and never how long a step took: else slow steps would be
left out for being slow. docs/explanation/how-we-measure.md has the rule and its reasons.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from steptime.core.stats import median
from steptime.measure.steps.steady_window import StepTimes
from steptime.measure.steps.step_blocks import StepBlock
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.steps.step_table import Numbers

if TYPE_CHECKING:
    from steptime.measure.fold.host_lines import HostSample

MIN_TAKEN_CORES = 0.25
"""Others must take so much of the cores that the run wants: what runs beside a training by itself
(a desktop, a monitor, ourselves) takes less."""

MIN_DELAYED_FRACTION = 0.05
"""A thread of the run must have waited for a core for so long, where the kernel counts it: a step
that others make a twentieth longer is within the scatter of quiet steps."""

MIN_IDLE_CORES = 0.5
"""With half a core idle there was room for the run beside the others."""

WANTED_RANK = 0.9
"""The run wants the cores that it kept busy in a tenth of the samples in which it had room, since
one sample may be a start of workers. Without such samples there are no quiet steps."""

MIN_QUIET_STEPS = 20
"""With fewer quiet steps all steps count: the 95 % interval of the median of 20 already reaches
from the sixth value to the fifteenth."""

MIN_QUIET_FRACTION = 0.2
"""With a smaller share of quiet steps all steps count: a few quiet moments may show one part of
the training alone."""


MIN_SEEN_FRACTION = 0.9
"""A training that outlives its command goes on unobserved; then no step is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time in which others took cores that the run wanted [s since 1970]."""

    begin_unix_s: float
    end_unix_s: float


def leave_out(
    ranks: Sequence[RankSteps],
    series: Sequence[StepTimes],
    *,
    samples: Sequence[HostSample],
    num_cores: int | None,
) -> tuple[list[StepTimes], tuple[Stretch, ...]]:
    """Return the times with the steps marked that are left out, and the stretches they fell into.

    Nothing is left out, and there are no stretches, where too few steps would remain.
    """
    if num_cores is None:
        return list(series), ()
    stretches = find_stretches(_while_training(samples, ranks), num_cores=num_cores)
    if not stretches:
        return list(series), ()
    found = []
    for rank, times in zip(ranks, series, strict=True):
        beside = _steps_beside(rank, times, stretches) - times.disturbed
        num_usable = len(times.times_s) - len(times.disturbed)
        num_quiet = num_usable - len(beside)
        if num_quiet < max(MIN_QUIET_STEPS, MIN_QUIET_FRACTION * num_usable):
            return list(series), ()
        disturbed = times.disturbed | beside
        found.append(replace(times, disturbed=disturbed, beside_neighbor=beside))
    is_any = any(times.beside_neighbor for times in found)
    return found, stretches if is_any else ()


def _while_training(samples: Sequence[HostSample], ranks: Sequence[RankSteps]) -> list[HostSample]:
    """Return the samples between the first step and the last: a start wants other cores.

    There are none if they leave more than a part of that time unobserved, since nobody knows what
    others did then.
    """
    limits = [_limits(rank) for rank in ranks if rank.num_steps]
    if not limits:
        return []
    begin, end = min(begin for begin, _ in limits), max(end for _, end in limits)
    inside = [s for s in samples if s.t_unix_s > begin and s.t_unix_s - s.dt_s < end]
    seen_s = sum(min(end, s.t_unix_s) - max(begin, s.t_unix_s - s.dt_s) for s in inside)
    return inside if seen_s >= MIN_SEEN_FRACTION * (end - begin) else []


def _limits(rank: RankSteps) -> tuple[float, float]:
    """Return when the first step of a rank began and the last one ended [s since 1970]."""
    steps, blocks, zero = rank.steps, rank.blocks, rank.head.t_unix_s
    begin_s = steps.begin_s(0) if len(steps) else blocks[0].start_s
    return zero + begin_s, zero + (blocks[-1].end_s if blocks else steps.end_s[-1])


def find_stretches(samples: Sequence[HostSample], *, num_cores: int) -> tuple[Stretch, ...]:
    """Return the samples in which others took cores that the run wanted, in order of time."""
    known = sorted((s for s in samples if s.dt_s > 0), key=lambda s: s.t_unix_s)
    undisturbed = sorted(s.job_cores for s in known if _has_room(s, num_cores))
    if not undisturbed:
        return ()
    wanted = undisturbed[min(len(undisturbed) - 1, int(WANTED_RANK * len(undisturbed)))]
    free = num_cores - wanted
    return tuple(
        Stretch(begin_unix_s=one.t_unix_s - one.dt_s, end_unix_s=one.t_unix_s)
        for one in known
        if one.busy_cores - one.job_cores - free >= MIN_TAKEN_CORES and _has_lost(one)
    )


def _has_lost(sample: HostSample) -> bool:
    """Return whether the run may have waited for a core."""
    delayed = sample.delayed_fraction
    return delayed is None or delayed >= MIN_DELAYED_FRACTION


def _has_room(sample: HostSample, num_cores: int) -> bool:
    """Return whether the run had the cores that it wanted."""
    others = sample.busy_cores - sample.job_cores
    return others < MIN_TAKEN_CORES or num_cores - sample.busy_cores >= MIN_IDLE_CORES


def _steps_beside(
    rank: RankSteps, series: StepTimes, stretches: Sequence[Stretch]
) -> frozenset[int]:
    """Return the steps that began in a stretch, or would usually have reached into one.

    Each step is looked at for as long as the median step: a long step is not likelier to be left
    out than a short one.
    """
    usable = [t for i, t in enumerate(series.times_s) if i not in series.disturbed]
    usual_s = median(usable) if usable else 0.0
    ends = [one.end_unix_s for one in stretches]
    found = []
    for index, begin_s in enumerate(_begins_s(rank)):
        begin = rank.head.t_unix_s + begin_s
        place = bisect_left(ends, begin)
        if place < len(ends) and stretches[place].begin_unix_s < begin + usual_s:
            found.append(index)
    return frozenset(found)


def _begins_s(rank: RankSteps) -> Numbers:
    """Return when each step began, on the clock of the rank's head [s]."""
    steps = rank.steps
    spans_s = steps.sum_of_spans()
    found = array(
        "d", (e - t - s for e, t, s in zip(steps.end_s, steps.times_s, spans_s, strict=True))
    )
    for block in rank.blocks:
        found.extend([block.start_s, *_ends_in(block)[:-1]])
    return found


def _ends_in(block: StepBlock) -> list[float]:
    """Return when each step of a block ended; only sums of its spans are known."""
    total_s = sum(block.times_s)
    stretch = (block.end_s - block.start_s) / total_s if total_s > 0 else 0.0
    return [block.start_s + done_s * stretch for done_s in accumulate(block.times_s)]
