"""The real bench: contained trials of the user's command, one at a time.

In: what a study knows about its command, machine and levers. Out: the answers of
`tune.search.bench`. `tune.trials.trial_process` runs one trial, `tune.trials.live_trials` makes
the live comparisons.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steptime.errors import NotFoundError
from steptime.launch.user_command import NotStarted
from steptime.levers.base import Lever
from steptime.tune.search.bench import (
    Baseline,
    ComparisonResult,
    LiveRequest,
    ProcessRequest,
    WholeRequest,
    WholeResult,
)
from steptime.tune.search.budget import judged_updates
from steptime.tune.study.study_folder import StudyFolder
from steptime.tune.trials import as_in_a_run
from steptime.tune.trials.bounds import (
    SeesEpochEnd,
    WindowSize,
    compile_s,
    first_limits,
    is_full,
    lasts_s,
    later_limits,
    longest_gap_s,
    process_window,
)
from steptime.tune.trials.facts.loop_time import updates_a_step
from steptime.tune.trials.judging import claim_of, judge_state
from steptime.tune.trials.kept_trials import KeptTrials
from steptime.tune.trials.live_trials import LiveTrials
from steptime.tune.trials.observe_baseline import ParentFacts, make_baseline
from steptime.tune.trials.process_pairs import Side, compare_in_turns, read_side
from steptime.tune.trials.trial_process import (
    AS_A_RUN,
    COMPILED,
    ENDED_ITSELF,
    Start,
    TrialEnded,
    TrialLimits,
    TrialProcess,
    TrialStart,
    start_trial,
)
from steptime.tune.trials.trial_setting import add_variables, make_plan, variables_of
from steptime.tune.trials.trial_watch import TrialWatch
from steptime.tune.trials.worker_rates import MOST_STARTS, WORKER_RATES, read_rates, search_limit_s
from steptime.tune.values.study_values import State
from steptime.verify.protocol import VARIABLES, RunRequest
from steptime.verify.recordings import RecordingWatch
from steptime.verify.values import Verdict

COMPILER_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is studied.

    Attributes:
        argv: the command.
        environment: the user's.
        levers: by name.
        surroundings: what the parent knows of script and machine.
        budget_s: of the study; all limits follow from it.
        stdin: what each trial reads, if anything.
        training: number of the training of the command that is studied; None for a command with
            one.
        until_s: when each trial has to be over, on the monotonic clock [s]; None without an end.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    levers: Mapping[str, Lever]
    surroundings: ParentFacts
    budget_s: float
    stdin: Path | None = None
    training: int | None = None
    until_s: float | None = None


class RealBench:
    """A `Bench` of real trials; `close` it."""

    def __init__(
        self, subject: Subject, folder: StudyFolder, begin: Start, quiet: Callable[[], object]
    ) -> None:
        """`begin` starts a trial; `quiet` waits until others leave the machine alone."""
        self._subject = subject
        self._folder = folder
        self._begin = begin
        self._quiet = quiet
        self._limits = first_limits(subject.budget_s)
        self.baseline: Baseline | None = None
        self._live = LiveTrials(
            lambda fixed: self.start(fixed, is_live=True),
            subject.levers,
            slack_s=compile_s(subject.budget_s),
        )
        self._kept = KeptTrials(self.start, quiet, slack_s=compile_s(subject.budget_s))

    @property
    def subject(self) -> Subject:
        """What is studied."""
        return self._subject

    def new_folder(self) -> Path:
        """Where the next trial goes, not made yet."""
        return self._folder.new_trial()

    # -- the baseline

    def observe(self) -> Baseline:
        """Run the command as written for a window, measure and diagnose it."""
        self._quiet()
        baseline = self._held_against_a_run(self._observe())
        baseline = self._with_worker_rates(baseline)
        size = self._window(baseline)
        process_s = lasts_s(size, startup_s=baseline.startup_s, step_s=step_s_of(baseline))
        self.adopt(baseline := replace(baseline, process_s=process_s))
        return baseline

    def _observe(self) -> Baseline:
        trial = self.start((), probe=True)
        ended = self.finish(trial, SeesEpochEnd(self._subject.budget_s))
        baseline = make_baseline(trial.folder, trial.watch, ended, self._subject.surroundings)
        self._live.epoch = baseline.epoch
        process = trial.watch.first
        gap_s = longest_gap_s(process) if process is not None else 0.0
        return replace(baseline, longest_gap_s=gap_s)

    def _held_against_a_run(self, baseline: Baseline) -> Baseline:
        """The baseline; refused where the script is slower in trials than under `steptime run`."""
        pairs = list[tuple[Side, Side]]()
        limit_s = as_in_a_run.SHARE * self._subject.budget_s
        size = process_window(limit_s)
        a_pair_s = 2 * lasts_s(size, startup_s=baseline.startup_s, step_s=step_s_of(baseline))
        if not baseline.ending.is_well or as_in_a_run.LEAST_PAIRS * a_pair_s > limit_s:
            return baseline
        begun_s = time.monotonic()
        while len(pairs) < as_in_a_run.MOST_PAIRS:
            turn = 1 if len(pairs) % 2 == 0 else -1
            sides = [self._run_side((), size, plans=plans) for plans in (True, False)[::turn]]
            pairs.append((sides[::turn][0], sides[::turn][1]))
            spent_s = time.monotonic() - begun_s
            if spent_s * (1 + 1 / len(pairs)) > limit_s:
                break
            if len(pairs) >= as_in_a_run.LEAST_PAIRS and not as_in_a_run.refuse_pretence(pairs):
                break  # each pair has to show it
        refused = as_in_a_run.refuse_pretence(pairs)
        loops_s = tuple(trial.loop_s for trial, _ in pairs if trial.loop_s)
        return replace(baseline, ending=refused or baseline.ending, loops_s=loops_s)

    def _with_worker_rates(self, baseline: Baseline) -> Baseline:
        """The baseline with what numbers of loader workers give, where that is worth a trial."""
        limit_s = search_limit_s(baseline, self._subject.levers, self._subject.budget_s)
        if limit_s is None:
            return baseline
        trial = self.start((), worker_search_s=limit_s)
        until_s = time.monotonic() + baseline.startup_s + MOST_STARTS * limit_s
        is_there = trial.folder / WORKER_RATES
        self.finish(trial, lambda _: is_there.exists() or time.monotonic() > until_s)
        rates = read_rates(is_there)
        return replace(baseline, facts=replace(baseline.facts, worker_rates=rates))

    def adopt(self, baseline: Baseline) -> None:
        """Go on from a baseline, observed now or by an earlier call of the same study."""
        self.baseline = baseline
        self._live.epoch = baseline.epoch
        self._limits = later_limits(
            self._subject.budget_s,
            startup_s=baseline.startup_s,
            longest_gap_s=baseline.longest_gap_s,
        )

    # -- comparisons

    def compare_live(self, request: LiveRequest) -> ComparisonResult:
        """Compare states inside one process."""
        self._kept.close()
        return self._live.compare(request)

    def compare_processes(self, request: ProcessRequest) -> ComparisonResult:
        """Compare two states in processes of their own, in turns: AB, BA, AB and so on."""
        if request.is_kept:
            self._live.close()
            return self._kept.compare(request)
        self.close()
        states = request.reference, request.candidate
        return compare_in_turns(request, lambda which: self._run_side(states[which]), self._quiet)

    def _window(self, baseline: Baseline | None) -> WindowSize:
        """What a process of a pair shows: no earlier part than the one that was observed."""
        steady = None if baseline is None else baseline.measurement.steady
        if baseline is None or steady is None:
            return process_window(self._subject.budget_s)
        num_updates = updates_a_step(baseline.measurement)
        return process_window(
            self._subject.budget_s,
            num_warmup=round(steady.first_step * num_updates),
            update_s=step_s_of(baseline) / num_updates,
        )

    def _run_side(
        self, state: State, size: WindowSize | None = None, *, plans: bool = True
    ) -> Side:
        trial = self.start(state, also=None if plans else {"mode": AS_A_RUN})
        size = size or self._window(self.baseline)
        ended = self._run(trial, size)
        warmup, epoch = size.num_warmup, self._live.epoch
        return read_side(trial.folder, ended, trial.watch, num_warmup=warmup, epoch=epoch)

    def judge(self, state: State) -> Verdict:
        """Whether whole runs with `state` train as the command as written does."""
        self.close()
        assert self.baseline is not None
        subject, folder = self._subject, self._folder.folder / "quality"
        claim = claim_of(state, subject.levers, self.baseline.facts)
        updates = judged_updates(step_s_of(self.baseline), subject.budget_s)

        def run(request: RunRequest, path: Path | None) -> tuple[Path, TrialEnded]:
            return self._run_quality(state if request.is_candidate else (), request, path)

        return judge_state(claim, run, folder, updates=updates)

    def run_whole(self, request: WholeRequest) -> WholeResult:
        """Run the command to its end as `run --recipe` does, as written and with a state."""
        self.close()
        took_s: dict[bool, list[float]] = {False: [], True: []}
        until_s = time.monotonic() + request.most_s
        for number in range(request.num_runs):
            for is_tuned in (False, True)[:: 1 if number % 2 == 0 else -1]:
                self._quiet()
                trial = self.start(request.state if is_tuned else (), also={"mode": "recipe"})
                try:
                    ended = trial.wait(lambda _: time.monotonic() > until_s)
                    took_s[is_tuned].append(trial.age_s)
                finally:
                    trial.close()
                if ended is None or ended.reason != ENDED_ITSELF:
                    return WholeResult()
        return WholeResult(written_s=tuple(took_s[False]), tuned_s=tuple(took_s[True]))

    def _run_quality(
        self, state: State, request: RunRequest, path: Path | None
    ) -> tuple[Path, TrialEnded]:
        if path is not None and path.exists():
            shutil.rmtree(path)  # it was cut off
        trial = self.start(state, folder=path, quality=request.quality)
        return trial.folder, self.finish(trial, _recording_is_complete(trial.folder))

    def close(self) -> None:
        """End what still runs."""
        self._live.close()
        self._kept.close()

    # -- trials

    def start(
        self,
        state: State,
        *,
        folder: Path | None = None,
        is_live: bool = False,
        probe: bool = False,
        quality: Mapping[str, Any] | None = None,
        worker_search_s: float | None = None,
        also: Mapping[str, Any] | None = None,
    ) -> TrialProcess:
        """A started trial with a state; `folder` is the next of the trials' where it is None.

        `also` holds more fields of its plan.

        Raises:
            NotFoundError: the command cannot be started.
        """
        subject = self._subject
        variables = variables_of(state, subject.levers, subject.surroundings.libraries)
        environment = add_variables(subject.environment, variables)
        folder = folder or self._folder.new_trial()
        is_shared = self._shares_compiled()
        if is_shared:
            environment[COMPILER_CACHE] = str(folder / COMPILED)
        start = TrialStart(
            folder=folder,
            argv=subject.argv,
            environment=environment if quality is None else {**environment, **VARIABLES},
            compiled=self._folder.find_compiled(COMPILED) if is_shared else None,
            plan=make_plan(
                state,
                subject.levers,
                is_live=is_live,
                probe=probe,
                quality=quality,
                worker_search_s=worker_search_s,
                training=None if probe or self.baseline is None else self.baseline.training,
            )
            | dict(also or {}),
            stdin=subject.stdin,
            training=subject.training,
            levers=tuple(one.name for one in state),
        )
        trial = start_trial(self._begin, start, self.limits)
        if isinstance(trial, NotStarted):
            raise NotFoundError(f"the command `{subject.argv[0]}` {trial.reason}.")
        return trial

    def _shares_compiled(self) -> bool:
        """Whether trials find the code that earlier ones compiled.

        A trial's disk is gone with it, and compiling again takes most of a minute. A script that
        compiles itself finds the cache of the machine, as it does without us.
        """
        is_known = self.baseline is not None and not self.baseline.facts.uses_compile
        return is_known and COMPILER_CACHE not in self._subject.environment

    @property
    def limits(self) -> TrialLimits:
        """Of the next trial."""
        if self._subject.until_s is None:
            return self._limits
        left_s = max(1.0, self._subject.until_s - time.monotonic())
        return replace(self._limits, total_s=min(self._limits.total_s, left_s))

    def _run(self, trial: TrialProcess, size: WindowSize) -> TrialEnded:
        """Let it show a window, and end it."""
        return self.finish(trial, lambda watch: is_full(watch, size))

    def finish(self, trial: TrialProcess, is_done: Callable[[TrialWatch], bool]) -> TrialEnded:
        """Wait until a trial has shown what is wanted, and end it."""
        try:
            trial.wait(is_done)
        finally:
            ended = trial.close()
        return ended


def step_s_of(baseline: Baseline) -> float:
    """A step of the command as written [s]; a second where none was measured."""
    steady = baseline.measurement.steady
    known = steady.step_time_s if steady is not None else None
    return 1.0 if known is None else known.estimate


def _recording_is_complete(folder: Path) -> Callable[[TrialWatch], bool]:
    """Asks now and then whether a quality run has recorded all that it was to."""
    due_s, recordings = time.monotonic() + _POLL_S, RecordingWatch(folder)

    def is_done(watch: TrialWatch) -> bool:
        nonlocal due_s
        if time.monotonic() < due_s:
            return False
        due_s = time.monotonic() + _POLL_S
        return recordings.is_complete()

    return is_done
