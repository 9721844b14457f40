"""The real bench of a fit: contained trials of the user's command, with and without the limit.

In: a command and what its trials may have. Out: the answers of `fit_search.FitBench`. A trial never
gets more memory than is free here, and it is ended before the machine runs short, so that nothing
else is killed.
"""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steptime.core.executable import NotStarted
from steptime.core.stats import median
from steptime.isolate.child import ContainedChild, start_contained
from steptime.isolate.tiers import Containment
from steptime.measure.fold.run_records import RecordReader
from steptime.measure.memory.memory_anatomy import find_anatomy
from steptime.measure.values.model.anatomy import Anatomy
from steptime.tune.fit.bench_answers import MACHINE_SHORT, BudgetSpentError, LimitedRun, Observed
from steptime.tune.fit.device_peak import device_peak
from steptime.tune.search.bench import ComparisonResult, LiveRequest
from steptime.tune.trials.bounds import WindowSize, is_full, longest_gap_s
from steptime.tune.trials.children.forecast_child import (
    CommandForecast,
    ForecastWish,
    forecast_script,
)
from steptime.tune.trials.facts.resources import read_available_bytes
from steptime.tune.trials.observe_baseline import ParentFacts, make_baseline
from steptime.tune.trials.real_bench import RealBench
from steptime.tune.trials.trial_process import TrialEnded, TrialProcess
from steptime.tune.trials.trial_watch import TrialWatch, fold_ticks
from steptime.tune.values.study_values import Ending, State, TrialEnd
from steptime.verify.values import Outcome, Verdict
from steptime.watch.host.private_memory import PrivateMemory

FREE_SHARE = 0.9
"""Of the memory that is free when a trial begins: what it may have without a limit of the user."""

LEAST_FREE_BYTES = 256 << 20
"""A trial is ended when less than this is left: the kernel would begin to kill."""

NUM_STEPS = 15
"""Steps of a window: the storages of the fourteenth update are followed, and three are warmup."""

READ_S = 0.1

BATCH_ROUNDS = 32
"""Of larger batches in turns with those as written; six carry an interval."""

BATCH_SHARE, MOST_BATCH_S = 0.1, 60.0
"""Of the budget, and what a comparison of batches may take at most [s]."""

MEMORY_WORDS = re.compile(
    r"can't allocate memory|cannot allocate memory|MemoryError|bad_alloc|out of memory"
    r"|could not create a (?:memory object|primitive)|unable to mmap",
    re.IGNORECASE,
)
"""What torch, Python, C++, oneDNN and the C library say."""


class LimitedDoor:
    """Starts the command; `memory_bytes` is what each of its processes may have from now on."""

    def __init__(self, command: tuple[str, ...], cwd: Path, containment: Containment) -> None:
        self.memory_bytes: int | None = None
        self._command = command
        self._cwd = cwd
        self._containment = containment

    def __call__(
        self, environment: Mapping[str, str], *, folder: Path, stdin: Path | None
    ) -> ContainedChild | NotStarted:
        """Start it in a folder."""
        return start_contained(
            self._command,
            environment,
            cwd=self._cwd,
            folder=folder,
            containment=self._containment,
            stdin=stdin,
            memory_bytes=self.memory_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A trial that has ended, and the most private memory that a process of it had [bytes]."""

    trial: TrialProcess
    ended: TrialEnded
    peak_bytes: int


class RealFitBench:
    """Answers with contained trials; `close` it."""

    def __init__(
        self,
        real: RealBench,
        door: LimitedDoor,
        surroundings: ParentFacts,
        *,
        budget_s: float,
        tell: Callable[[str, State, float], None],
        measures: bool = False,
    ) -> None:
        """`door` is what `real` starts its trials with; `tell` gets what begins.

        With `measures`, a forecast runs each different operator once, alone.
        """
        self._real = real
        self._door = door
        self._surroundings = surroundings
        self._size = WindowSize(num_steps=NUM_STEPS, least_s=1.0, most_s=max(5.0, budget_s / 6))
        self._tell = tell
        self._budget_s = budget_s
        self._measures = measures
        self._largest = False  # the runs under the limit must see a batch that had not come

    def observe(self) -> Observed:
        """Run the command as written for a window; never with more than is free here."""
        self._begin("observe", ())
        cap_bytes = self._door.memory_bytes = free_bytes()
        shown = self._show((), probe=True)
        baseline = make_baseline(
            shown.trial.folder, shown.trial.watch, shown.ended, self._surroundings
        )
        process = shown.trial.watch.first
        if process is not None:
            baseline = replace(baseline, longest_gap_s=longest_gap_s(process))
        ending = ending_of(shown.ended)
        if ending.end is TrialEnd.OUT_OF_MEMORY:
            baseline = replace(baseline, ending=ending)
        self._real.adopt(baseline)
        longest = baseline.measurement.longest_batch
        self._largest = (
            longest is not None and longest.largest is not None and longest.is_to_come is not False
        )
        return Observed(baseline=baseline, peak_bytes=shown.peak_bytes, cap_bytes=cap_bytes or 0)

    def forecast(self) -> CommandForecast:
        """Forecast the peak of a step of the command; what it is unsure of is measured."""
        self._begin("forecast", ())
        self._door.memory_bytes = free_bytes()
        found = self._forecast(measure=self._measures)
        is_enough = self._measures or not found.memory.is_unsure
        return found if is_enough else self._forecast(measure=True)

    def _forecast(self, *, measure: bool) -> CommandForecast:
        subject = self._real.subject
        return forecast_script(
            self._door,
            subject.argv,
            subject.environment,
            folder=self._real.new_folder(),
            wish=ForecastWish(measure=measure, limit_s=self._real.limits.total_s),
            stdin=subject.stdin,
        )

    def run_under(
        self, state: State, limit_bytes: int, *, is_on_device: bool = False, what: str = "limit"
    ) -> LimitedRun:
        """Run the command with a state for a window, under the limit.

        `is_on_device`: the limit is what torch's allocator may hold on each device.
        """
        self._begin(what, state)
        free = free_bytes()
        self._door.memory_bytes = free
        if not is_on_device:
            self._door.memory_bytes = limit_bytes if free is None else min(limit_bytes, free)
        also = {"largest": self._largest, "device_bytes": limit_bytes if is_on_device else None}
        shown = self._show(state, also=also)
        process = shown.trial.watch.first
        steps_s = [] if process is None else fold_ticks(process.ticks)
        ending = ending_of(shown.ended)
        if ending.is_well and not steps_s:
            ending = Ending(end=TrialEnd.FAILED, reason="no_steps")
        # The kernel lets no process have more; what is read of one may be some pages too much.
        peak_bytes = min(shown.peak_bytes, self._door.memory_bytes or shown.peak_bytes) or None
        if is_on_device:
            held = device_peak(read_anatomy(shown.trial.folder))
            peak_bytes = None if held is None else held.peak_bytes
            if ending.is_well and (held is None or held.reserved_bytes > limit_bytes):
                ending = Ending(end=TrialEnd.FAILED, reason="not_limited")
        return LimitedRun(
            ending=ending,
            peak_bytes=peak_bytes,
            num_steps=len(steps_s),
            step_s=None if self._largest or len(steps_s) < 2 else median(steps_s[1:]),
        )

    def compare_batches(self, states: Sequence[State], limit_bytes: int | None) -> ComparisonResult:
        """Compare states with larger batches inside one process, the command as written first."""
        self._begin("batch", ())
        free = free_bytes()
        known = [size for size in (free, limit_bytes) if size is not None]
        self._door.memory_bytes = min(known, default=None)
        most_s = min(MOST_BATCH_S, BATCH_SHARE * self._budget_s, self._left_s())
        request = LiveRequest(
            fixed=(), states=tuple(states), num_rounds=BATCH_ROUNDS, is_fresh=True, most_s=most_s
        )
        try:
            return self._real.compare_live(request)
        finally:
            self._real.close()

    def judge(self, state: State) -> Verdict:
        """Judge whole runs, which have what is free here: the command as written needs it."""
        self._begin("quality", state)
        self._door.memory_bytes = free_bytes()
        verdict = self._real.judge(state)
        if verdict.outcome is not Outcome.PASS:
            self._left_s()  # a run that was cut off says nothing of its training
        return verdict

    def _left_s(self) -> float:
        left_s = (self._real.subject.until_s or 0.0) - time.monotonic()
        if left_s <= 0:
            raise BudgetSpentError
        return left_s

    def _begin(self, what: str, state: State) -> None:
        self._tell(what, state, self._left_s())

    def _show(
        self, state: State, *, probe: bool = False, also: Mapping[str, Any] | None = None
    ) -> _Shown:
        """Let a trial show a window, and watch its memory and the machine's.

        `also` holds more of its plan: with `largest`, its loaders hand out the largest batch of the
        epoch from the second one on.
        """
        trial = self._real.start(state, probe=probe, also=also)
        memory = PrivateMemory(trial.pid)
        due_s, is_short = 0.0, False

        def is_done(watch: TrialWatch) -> bool:
            nonlocal due_s, is_short
            if time.monotonic() >= due_s:
                memory.read()
                is_short = (read_available_bytes() or LEAST_FREE_BYTES) < LEAST_FREE_BYTES
                due_s = time.monotonic() + READ_S
            return is_short or is_full(watch, self._size)

        ended = self._real.finish(trial, is_done)
        if is_short:
            ended = TrialEnded(end=TrialEnd.OUT_OF_MEMORY, reason=MACHINE_SHORT, text=trial.tail())
        return _Shown(trial=trial, ended=ended, peak_bytes=memory.peak_bytes)


def read_anatomy(folder: Path) -> Anatomy | None:
    """Return who held the memory in a trial; None where no process told."""
    return find_anatomy(RecordReader(folder).read(None).memory, (), worker_bytes=None)


def free_bytes() -> int | None:
    """Return what a trial may have here [bytes]; None where the system does not say.

    A limit that is there already (`ulimit -d`) counts: nothing gets beyond it.
    """
    free = read_available_bytes()
    own = resource.getrlimit(resource.RLIMIT_DATA)[0]
    sizes = [] if free is None else [int(free * FREE_SHARE)]
    sizes += [] if own == resource.RLIM_INFINITY else [own]
    return min(sizes, default=None)


def ending_of(ended: TrialEnded) -> Ending:
    """Return how a trial ended; one that failed for want of memory says so."""
    found = ended.ending
    if found.end is TrialEnd.FAILED and MEMORY_WORDS.search(ended.text):
        return replace(found, end=TrialEnd.OUT_OF_MEMORY, reason="out_of_memory")
    return found
