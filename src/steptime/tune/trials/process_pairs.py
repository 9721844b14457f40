"""Compares two states in processes of their own: reads each process, and puts pairs together.

In: folders of trials. Out: a `Side` for each process, and a `ComparisonResult` for all pairs.
Nothing here starts a process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.stats import median
from steptime.measure.run_fold import measure
from steptime.measure.run_records import read_records
from steptime.measure.trial_lines import read_trial
from steptime.tune.search.bench import ArmResult, ComparisonResult
from steptime.tune.trials.trial_process import TrialEnded
from steptime.tune.values.study_values import WELL, Ending, State, TrialEnd

MIN_STEPS = 3
"""Steady steps without which a process says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one process showed; times are of a step [s], `samples` of a step or None."""

    ending: Ending
    step_s: float | None = None
    step_cpu_s: float | None = None
    samples: float | None = None
    others_cores: float | None = None


def read_side(folder: Path, ended: TrialEnded) -> Side:
    """The times of a trial's steady window."""
    if ended.end is not TrialEnd.FINISHED:
        return Side(ending=ended.ending)
    measurement = measure(read_records(folder), end=ProcessEnd(state=RunState.FINISHED))
    steady = measurement.steady
    if steady is None or steady.step_time_s is None or steady.num_steps < MIN_STEPS:
        return Side(ending=Ending(end=TrialEnd.FAILED, reason="too_few_steps"))
    return Side(
        ending=WELL,
        step_s=steady.step_time_s.estimate,
        step_cpu_s=steady.step_cpu_s.estimate if steady.step_cpu_s is not None else None,
        samples=samples_per_step(folder),
        others_cores=measurement.host.others_cores if measurement.host is not None else None,
    )


def compare_sides(
    state: State, pairs: Sequence[tuple[Side, Side]], *, failed: Side | None = None
) -> ComparisonResult:
    """What pairs of (reference, candidate) say of a state.

    `failed` is the process that ended them early.
    """
    others = [side.others_cores for pair in pairs for side in pair if side.others_cores is not None]
    ending = WELL if failed is None else failed.ending
    arm = ArmResult(
        state=state,
        log_ratios=_log_ratios([(_wall(a), _wall(b)) for a, b in pairs]),
        cpu_log_ratios=_log_ratios([(_cpu(a), _cpu(b)) for a, b in pairs]),
        ending=ending,
        step_s=_median([candidate.step_s for _, candidate in pairs]),
    )
    return ComparisonResult(
        ending=ending,
        arms=(arm,),
        reference_step_s=_median([reference.step_s for reference, _ in pairs]),
        others_cores=max(others, default=None),
    )


def _wall(side: Side) -> float | None:
    return _per_sample(side.step_s, side.samples)


def _cpu(side: Side) -> float | None:
    return _per_sample(side.step_cpu_s, side.samples)


def _per_sample(step_s: float | None, samples: float | None) -> float | None:
    return None if step_s is None else step_s / (samples or 1.0)


def _log_ratios(pairs: Sequence[tuple[float | None, float | None]]) -> tuple[float, ...]:
    """log(reference / candidate) where both are known and above zero."""
    return tuple(math.log(a / b) for a, b in pairs if a and b)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def samples_per_step(folder: Path) -> float | None:
    """Mean samples of an update over all ranks, the first update left out.

    None where most had no size that was seen. The first optimizer update has none: its samples
    stand in the row of the backward call before it, which counted as a step until then.
    """
    total = 0.0
    for rank in read_trial(folder):
        counts = [update.num_samples for update in rank.updates()[1:]]
        known = [count for count in counts if count is not None]
        if 2 * len(known) < len(counts):
            return None
        total += sum(known) / max(1, len(known))
    return total or None
