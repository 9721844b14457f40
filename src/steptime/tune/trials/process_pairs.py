"""Compares two states in processes of their own: reads each process, and puts pairs together.

In: folders of trials, and a way to run either state. Out: a `Side` for each process or stretch of
one, and a `ComparisonResult` for all pairs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.stats import median
from steptime.measure.fold.host_lines import HostSample
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import read_records
from steptime.measure.tried.trial_lines import read_trial
from steptime.measure.values.measurement import Measurement
from steptime.measure.wall.trainings import trainings_in
from steptime.tune.search.bench import (
    ArmResult,
    ComparisonResult,
    EpochGap,
    PairLoad,
    ProcessRequest,
)
from steptime.tune.trials.facts.loop_time import (
    LoopPart,
    is_long,
    loop_part,
    loop_ratio,
    mean_update_s,
    updates_a_step,
)
from steptime.tune.trials.trial_process import TrialEnded
from steptime.tune.trials.trial_watch import Process, TrialWatch, fold_ticks
from steptime.tune.values.study_values import WELL, Ending, State, TrialEnd

MIN_STEPS = 3
"""Steady steps without which a process says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one process showed; times are of a step [s], `samples` of a step or None.

    `loop` is its loop as a whole, `start_s` the time to the end of its first update; `loop_s` is a
    step of the loop, of what lies between steps too; `is_cut`: it was not followed from its
    beginning.
    """

    ending: Ending
    step_s: float | None = None
    step_cpu_s: float | None = None
    samples: float | None = None
    others_cores: float | None = None
    loop: LoopPart | None = None
    loop_s: float | None = None
    is_cut: bool = False
    start_s: float | None = None


def read_side(
    folder: Path,
    ended: TrialEnded,
    watch: TrialWatch,
    *,
    num_warmup: int = 0,
    epoch: EpochGap | None = None,
) -> Side:
    """The times of a trial's steady window; its loop begins after so many updates at least."""
    if ended.end is not TrialEnd.FINISHED:
        return Side(ending=ended.ending)
    number = number_of(folder, watch)
    measurement = measure(read_records(folder, number), end=ProcessEnd(state=RunState.FINISHED))
    steady = measurement.steady
    if steady is None or steady.step_time_s is None or steady.num_steps < MIN_STEPS:
        return Side(ending=Ending(end=TrialEnd.FAILED, reason="too_few_steps"))
    ranks = read_trial(folder)
    loop = next((loop_part(one.updates(), measurement, num_warmup, epoch) for one in ranks), None)
    num_updates = updates_a_step(measurement)
    step_s = steady.step_time_s.estimate
    step_cpu_s = steady.step_cpu_s.estimate if steady.step_cpu_s is not None else None
    if steady.first_step * num_updates < num_warmup:
        step_s, step_cpu_s = _late_step(watch, num_warmup) or (step_s, step_cpu_s)
    return Side(
        ending=WELL,
        step_s=step_s,
        step_cpu_s=step_cpu_s,
        samples=samples_per_step(folder, pids_of(watch)),
        others_cores=measurement.host.others_cores if measurement.host is not None else None,
        loop=loop,
        loop_s=mean_update_s(loop) * num_updates if loop and is_long(loop) else None,
        start_s=None if watch.first is None else startup_s(watch.first, measurement),
    )


def _late_step(watch: TrialWatch, num_warmup: int) -> tuple[float, float | None] | None:
    """The median wall time of a step after so many updates, and its mean CPU time [s].

    None of several ranks, of which the slowest one counts.
    """
    ticks = watch.processes[0].ticks[num_warmup:] if len(watch.processes) == 1 else []
    steps_s = fold_ticks(ticks[1:])
    if len(steps_s) < MIN_STEPS:
        return None
    cpu_s = math.fsum(tick.cpu_s for tick in ticks[1:]) / len(steps_s)
    return median(steps_s), cpu_s or None


def startup_s(process: Process, measurement: Measurement) -> float:
    """From the start of the command to the end of the first update."""
    began_unix_s = 0.0 if process.head is None else process.head.t_unix_s
    first_unix_s = began_unix_s + process.ticks[0].end_s
    return max(0.0, first_unix_s - measurement.started_unix_s)


def number_of(folder: Path, watch: TrialWatch) -> int | None:
    """Which training of a trial's command is watched; None where all of it is."""
    if watch.training is None or watch.first is None or watch.first.head is None:
        return None
    pid = watch.first.head.pid
    found = (one.training.number for one in trainings_in(folder) if pid in one.pids)
    return next(found, None)


def compare_in_turns(
    request: ProcessRequest, run: Callable[[bool], Side], quiet: Callable[[], object]
) -> ComparisonResult:
    """Compare both states in turns, AB, BA, AB and so on, in as many pairs as fit.

    Args:
        request: how many pairs, and what they may take; the first one fits in any case.
        run: runs the candidate where it is called with True, else the reference.
        quiet: called before each pair, to wait until others leave the machine alone.
    """
    pairs: list[tuple[Side, Side]] = []
    begun_s = time.monotonic()
    for number in range(request.num_pairs):
        spent_s = time.monotonic() - begun_s
        a_pair_s = spent_s / max(1, number)
        if number and request.most_s is not None and spent_s + a_pair_s > request.most_s:
            break
        quiet()
        sides: dict[bool, Side] = {}
        for is_candidate in (False, True)[:: 1 if number % 2 == 0 else -1]:
            sides[is_candidate] = side = run(is_candidate)
            if not side.ending.is_well:
                return compare_sides(request.candidate, pairs, failed=side)
        pairs.append((sides[False], sides[True]))
    return compare_sides(request.candidate, pairs)


def mean_others_cores(samples: Sequence[HostSample]) -> float | None:
    """Mean cores that others took over these samples; None where they cover no time."""
    total_s = math.fsum(one.dt_s for one in samples)
    if total_s <= 0:
        return None
    taken = math.fsum(max(0.0, one.busy_cores - one.job_cores) * one.dt_s for one in samples)
    return taken / total_s


def compare_sides(
    state: State, pairs: Sequence[tuple[Side, Side]], *, failed: Side | None = None
) -> ComparisonResult:
    """What pairs of (reference, candidate) say of a state.

    Args:
        state: the candidate's.
        pairs: in order; the first one began with the reference, the next with the candidate.
        failed: the process that ended them early.
    """
    others = [side.others_cores for pair in pairs for side in pair if side.others_cores is not None]
    ending = WELL if failed is None else failed.ending
    timed = [pair for pair in pairs if _log_ratio(_wall, *pair) is not None]
    arm = ArmResult(
        state=state,
        log_ratios=_log_ratios(_wall, pairs),
        cpu_log_ratios=_log_ratios(_cpu, pairs),
        ending=ending,
        step_s=_median([candidate.step_s for _, candidate in pairs]),
        start_s=_median([_minus(b.start_s, a.start_s) for a, b in pairs]),
        loads=tuple(PairLoad(reference=a.others_cores, candidate=b.others_cores) for a, b in timed),
        loop_log_ratios=_loop_ratios(pairs),
    )
    same = neighbors(pairs)
    return ComparisonResult(
        ending=ending,
        arms=(arm,),
        reference_step_s=_median([reference.step_s for reference, _ in pairs]),
        others_cores=max(others, default=None),
        same=_log_ratios(_wall, same),
        same_cpu=_log_ratios(_cpu, same),
        reference_loop_s=tuple(one.loop_s for one, _ in pairs if one.loop_s and not one.is_cut),
    )


def neighbors(pairs: Sequence[tuple[Side, Side]]) -> list[tuple[Side, Side]]:
    """Processes with one state that followed each other: the last of a pair, the first of the next.

    AB, BA, AB: B after B, then A after A.
    """
    return [
        (before[1], after[1]) if number % 2 == 0 else (before[0], after[0])
        for number, (before, after) in enumerate(pairwise(pairs))
    ]


def _loop_ratios(pairs: Sequence[tuple[Side, Side]]) -> tuple[float, ...]:
    """Those of the whole loop, of pairs that show it; per sample as those of a step are."""
    found = []
    for reference, candidate in pairs:
        ratio = loop_ratio(reference.loop, candidate.loop)
        if reference.is_cut and reference.loop_s and candidate.loop_s:
            ratio = math.log(reference.loop_s / candidate.loop_s)
        if ratio is not None:
            scale = (candidate.samples or 1.0) / (reference.samples or 1.0)
            found.append(ratio + math.log(scale))
    return tuple(found)


def _wall(side: Side) -> float | None:
    return _per_sample(side.step_s, side.samples)


def _cpu(side: Side) -> float | None:
    return _per_sample(side.step_cpu_s, side.samples)


def _per_sample(step_s: float | None, samples: float | None) -> float | None:
    return None if step_s is None else step_s / (samples or 1.0)


def _log_ratios(
    time: Callable[[Side], float | None], pairs: Sequence[tuple[Side, Side]]
) -> tuple[float, ...]:
    """log(first / second) where both are known and above zero."""
    found = [_log_ratio(time, *pair) for pair in pairs]
    return tuple(one for one in found if one is not None)


def _log_ratio(time: Callable[[Side], float | None], first: Side, second: Side) -> float | None:
    a, b = time(first), time(second)
    return math.log(a / b) if a and b else None


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def pids_of(watch: TrialWatch) -> set[int] | None:
    """The processes that count; None where all do."""
    if watch.training is None:
        return None
    return {process.head.pid for process in watch.processes if process.head is not None}


def samples_per_step(folder: Path, pids: Container[int] | None = None) -> float | None:
    """Mean samples of an update over all ranks, the first update left out.

    None where most had no size that was seen. The first optimizer update has none: its samples
    stand in the row of the backward call before it, which counted as a step until then.
    """
    total = 0.0
    for rank in read_trial(folder, pids):
        counts = [update.num_samples for update in rank.updates()[1:]]
        known = [count for count in counts if count is not None]
        if 2 * len(known) < len(counts):
            return None
        total += sum(known) / max(1, len(known))
    return total or None
