"""Comparisons between two processes that are kept and run in turns, one stopped meanwhile.

In: a way to start trials, and requests. Out: `ComparisonResult`s. A start costs as much as many
steps, so two starts serve all pairs of a comparison; what the two happen to be like stays in each
of them, which is why nothing is claimed from it. A script that is over is started again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from steptime.measure.fold.host_lines import HostSample, read_host
from steptime.record import files
from steptime.record.lines import Torn
from steptime.tune.search.bench import ComparisonResult, ProcessRequest
from steptime.tune.search.budget import STRETCH_S, STRETCH_STEPS
from steptime.tune.trials.live_trials import is_warm
from steptime.tune.trials.process_pairs import (
    Side,
    compare_in_turns,
    mean_others_cores,
    pids_of,
    samples_per_step,
)
from steptime.tune.trials.trial_process import TrialEnded, TrialProcess
from steptime.tune.trials.trial_watch import Tick, TrialWatch, fold_ticks
from steptime.tune.values.study_values import WELL, Ending, State, TrialEnd

_MORE_MEMORY = 1.25
"""What must have been left beside one process, of what it took: the second may take more."""

_STARTS_AGAIN = 4
"""Of a script that is over before the pairs are full."""

_TOO_FEW = Side(ending=Ending(end=TrialEnd.FAILED, reason="too_few_steps"))


def has_memory_for_two(samples: Sequence[HostSample]) -> bool:
    """Return whether a second process fits beside one, by what was free while that one ran."""
    free = [one.available_bytes for one in samples if one.available_bytes is not None]
    return len(free) > 1 and min(free) > _MORE_MEMORY * (max(free) - min(free))


@dataclass(slots=True)
class _Kept:
    """A process that is kept: it is stopped, but for its own stretches."""

    trial: TrialProcess
    is_held: bool = False
    start_s: float | None = None
    samples: float | None = None  # of a step, read once a request


class KeptTrials:
    """Keeps two processes across requests for the same comparison; `close` them."""

    def __init__(
        self,
        start: Callable[[State], TrialProcess],
        quiet: Callable[[], object],
        *,
        slack_s: float,
    ) -> None:
        """`slack_s` is what a stretch may take beyond what its steps should."""
        self._start, self._quiet, self._slack_s = start, quiet, slack_s
        self._kept: dict[bool, _Kept] = {}  # by whether it is the candidate
        self._states: tuple[State, State] = ((), ())
        self._starts_left = 0

    def close(self) -> None:
        """End the processes that wait."""
        kept, self._kept = self._kept, {}
        for one in kept.values():
            one.trial.close()

    def compare(self, request: ProcessRequest) -> ComparisonResult:
        """Answer a request: stretches of both in turns, AB, BA, AB and so on."""
        if self._states != (request.reference, request.candidate):
            self.close()
            self._states = request.reference, request.candidate
        self._starts_left = 2 + _STARTS_AGAIN
        for one in self._kept.values():
            one.samples = None
        result = compare_in_turns(request, self._stretch, self._quiet)
        if not result.ending.is_well:
            self.close()
        # How far two starts are apart is what an A/A between processes tells, and not here.
        return replace(result, same=(), same_cpu=())

    def _stretch(self, is_candidate: bool) -> Side:  # noqa: FBT001  # one of two processes
        """A stretch of steps of one of the two, started where it does not run."""
        while True:
            one = self._kept.get(is_candidate)
            if one is None:
                if not self._starts_left:
                    return _TOO_FEW
                self._starts_left -= 1
                one = _Kept(self._start(self._states[is_candidate]))
                self._kept[is_candidate] = one
                ended = self._wait(one, is_warm)
            else:
                ended = None
            since_s = time.time()
            ended = ended or self._wait(one, _has_stretch(since_s))
            if ended is None:
                one.trial.hold()
                one.is_held = True
                return _read(one, since_s)
            if ended.end is not TrialEnd.FINISHED:
                return Side(ending=ended.ending)
            self._kept.pop(is_candidate).trial.close()  # the script was over

    def _wait(self, one: _Kept, is_done: Callable[[TrialWatch], bool]) -> TrialEnded | None:
        """Let a process go on until then; how it ended where it did before."""
        trial = one.trial
        if one.is_held:
            trial.go_on()
            one.is_held = False
        limits = trial.limits
        trial.limits = replace(limits, total_s=trial.age_s + limits.start_s + self._slack_s)
        is_over = False
        try:
            ended = trial.wait(is_done)
            is_over = True
        finally:
            if not is_over:
                self.close()
        return ended


def _has_stretch(since_s: float) -> Callable[[TrialWatch], bool]:
    """Asks whether a process made enough steps since then [s since 1970]."""

    def is_done(watch: TrialWatch) -> bool:
        ticks = _ticks_since(watch, since_s)
        if len(ticks) <= STRETCH_STEPS:
            return False
        return ticks[-1].end_s - ticks[0].end_s >= STRETCH_S

    return is_done


def _ticks_since(watch: TrialWatch, since_s: float) -> list[Tick]:
    """The updates that ended since then; what the first one took lies before it, in part."""
    process = watch.first
    if process is None or process.head is None:
        return []
    zero_s = process.head.t_unix_s
    return [tick for tick in process.ticks if zero_s + tick.end_s >= since_s]


def _read(one: _Kept, since_s: float) -> Side:
    """What a stretch showed: means, for loader workers bring batches in bursts."""
    trial = one.trial
    process, ticks = trial.watch.first, _ticks_since(trial.watch, since_s)
    if one.start_s is None and process is not None and process.head is not None:
        first_s = process.head.t_unix_s + process.ticks[0].end_s
        one.start_s = max(0.0, first_s - trial.started_unix_s)
    steps_s = fold_ticks(ticks[1:])
    if not steps_s:
        return _TOO_FEW
    if one.samples is None:
        one.samples = samples_per_step(trial.folder, pids_of(trial.watch))
    cpu_s = math.fsum(tick.cpu_s for tick in ticks[1:]) / len(steps_s)
    loop_s = (ticks[-1].end_s - ticks[0].end_s) / len(steps_s)
    return Side(
        ending=WELL,
        step_s=fmean(steps_s),
        step_cpu_s=cpu_s or None,
        samples=one.samples,
        others_cores=_others_cores(trial, since_s),
        loop_s=loop_s,
        is_cut=True,
        start_s=one.start_s,
    )


def _others_cores(trial: TrialProcess, since_s: float) -> float | None:
    """Mean cores that others took while it ran."""
    samples = read_host(trial.folder / files.HOST, Torn()).samples
    inside = [one for one in samples if one.t_unix_s - one.dt_s >= since_s - 0.05]
    return mean_others_cores(inside)
