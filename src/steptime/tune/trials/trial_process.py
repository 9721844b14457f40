"""One trial: a contained child of the user's command with a plan, watched, and its end as data.

In: a folder, a plan, an environment, and how to start a contained child. Out: a `TrialEnded`, and
the trial's folder, a run folder. The child is ended by SIGKILL of its whole tree once what was
wanted is on disk: a gentle interrupt would make trainers save checkpoints. What the trial says
is left to `tune.trials.real_bench`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from steptime.core.executable import NotStarted
from steptime.core.note import Fact
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.stats import median
from steptime.core.store import Run, write_text, write_value
from steptime.launch.origin import describe_run
from steptime.launch.user_command import observed_environment, shell_exit_code
from steptime.launch.values import CommandRecord
from steptime.measure.fold.host_lines import read_host
from steptime.record import files
from steptime.record.lines import Torn
from steptime.record.regular_file import open_regular
from steptime.tune.trials.facts.tried_writes import write_levers
from steptime.tune.trials.trial_watch import TrialWatch
from steptime.tune.values.study_values import Ending, TrialEnd
from steptime.watch.host.host_sampler import HostSampler, system_readers
from steptime.watch.host.processes import cpu_by_inner_id
from steptime.watch.host.training_processes import read_training_processes
from steptime.watch.host.worker_processes import Workers

LEVER_FAILED, TIME_LIMIT, ENDED_ITSELF = "lever_failed", "time_limit", "ended_itself"
AS_A_RUN = "run"
"""The mode of a plan that the guest does not get: it watches the command as in a run."""
COMPILED = "compiled"
_LEVER_FAILED_CODE = 86  # of a trial's guest; docs/internals/study-folder.md
_POLL_S = 0.05
_TAIL_BYTES = 4096
_TAIL_LINES = 12
_SILENCE_STEPS = 10  # no step for this many medians is a hang, if it is long enough, too
_WORKING_CORES, _WORKING_SAMPLES = 0.1, 3  # a second each: one that waits for a lock takes none
_SILENCE_GAPS = 3  # nor is it one while it is no longer than this many of the longest gap known


class ContainedProcess(Protocol):
    """A started child that can do no harm."""

    @property
    def pid(self) -> int:
        """Of the first process of its tree."""

    def poll(self) -> ProcessEnd | None:
        """How it ended; None while it runs."""

    @property
    def left(self) -> tuple[tuple[int, str], ...]:
        """The processes, with names, that were still there when the command itself had ended."""

    def show(self, text: str) -> None:
        """Show a text to the guests in it: the experiment that is due."""

    def kill(self) -> None:
        """End the whole tree; it is gone when this returns."""

    def hold(self) -> None:
        """Stop all of the tree where it is."""

    def go_on(self) -> None:
        """Let a stopped tree go on."""


class Start(Protocol):
    """Starts the user's command in a contained child."""

    def __call__(
        self, environment: Mapping[str, str], *, folder: Path, stdin: Path | None
    ) -> ContainedProcess | NotStarted:
        """The child; `folder` is the only place it can really write to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """How long a trial may take [s].

    Attributes:
        start_s: until its first update ended.
        silence_s: without an update at least; more where steps are long.
        working_s: more of that while the command keeps the processor busy: it may compile.
        total_s: in all.
        longest_gap_s: between two updates, known from the command as written.
    """

    start_s: float
    silence_s: float
    total_s: float
    working_s: float = 0.0
    longest_gap_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """How a trial ended.

    Attributes:
        end: FINISHED also where it was ended by us because what was wanted is on disk.
        reason: machine word of any other end.
        process: how the command ended; None where we ended it.
        text: the last lines it wrote to stderr, or what a lever failed with.
        lever: that failed.
        seen: what shows that its record cannot be true.
        outlived_by: name of the process in which the training went on when the command had
            returned; None where there was none.
    """

    end: TrialEnd
    reason: str | None = None
    process: ProcessEnd | None = None
    text: str = ""
    lever: str | None = None
    seen: Mapping[str, Fact] | None = None
    outlived_by: str | None = None

    @property
    def ending(self) -> Ending:
        """How it ended, with the facts for the sentence of the reason."""
        return Ending(end=self.end, reason=self.reason, facts=self._facts())

    def _facts(self) -> dict[str, Fact] | None:
        if self.end is TrialEnd.FINISHED:
            return None
        if self.reason == LEVER_FAILED:
            return {"lever": str(self.lever), "error": self.text}
        if self.seen is not None:
            return dict(self.seen)
        found: dict[str, Fact] = {}
        if self.text:
            found["last_line"] = self.text.rpartition("\n")[2]
        process = self.process
        if process is not None and process.exit_code is not None:
            found["exit_code"] = process.exit_code
        elif process is not None and process.signal is not None:
            found["signal"] = process.signal
        return found or None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStart:
    """What a trial is started with; `environment` is the user's, with the levers' variables.

    `compiled` is the folder of code that an earlier trial had compiled; it is handed on. `levers`
    are the names of those that are on from its start. With the mode `run` it gets no plan.
    `training` is the number of the only training that counts.
    """

    folder: Path
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    plan: Mapping[str, Any]
    stdin: Path | None = None
    compiled: Path | None = None
    training: int | None = None
    levers: tuple[str, ...] = ()


class TrialProcess:
    """A trial that was started; `close` it, whatever happens."""

    def __init__(
        self,
        start: TrialStart,
        record: CommandRecord,
        contained: ContainedProcess,
        limits: TrialLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.folder = start.folder
        is_scoped = start.plan.get("only") is not None
        self.watch = TrialWatch(
            start.folder,
            training=start.training,
            is_scoped=is_scoped,
            clock=clock,
            cpu_s=lambda: cpu_by_inner_id(self._sampler.job),
        )
        self.limits = limits
        self._record = record
        self._contained = contained
        self._clock = clock
        self._sleep = sleep
        self._started = self._last_update = self._clock()
        self._sampler = _sampler(start.folder, contained.pid)
        self._sample_due = self._started
        self._levers = frozenset(start.levers)
        self._plan = json.dumps(start.plan)
        self._ended: TrialEnded | None = None

    @property
    def age_s(self) -> float:
        """Since it was started."""
        return self._clock() - self._started

    @property
    def pid(self) -> int:
        """Of the first process of its tree, which is the launcher's."""
        return self._contained.pid

    @property
    def started_unix_s(self) -> float:
        """When it was started [s since 1970]."""
        return self._record.started_unix_s

    def hold(self) -> None:
        """Stop it with all it started, until it may go on; it takes no cores meanwhile."""
        self._contained.hold()
        self._sampler.take()

    def go_on(self) -> None:
        """Let it go on. What others did until now is no load beside it."""
        self._sampler.take()
        self._last_update = self._clock()
        self._contained.go_on()

    def note_levers(self, names: Iterable[str]) -> None:
        """Note levers that are about to be switched on: what is written then may be theirs."""
        self._levers |= set(names)

    def show(self, text: str) -> None:
        """Show its guests the experiment that is due."""
        self._contained.show(text)

    def wait(self, is_done: Callable[[TrialWatch], bool]) -> TrialEnded | None:
        """Wait until `is_done`; None then, else how it ended before."""
        while self._ended is None:
            process = self._contained.poll()  # before reading: what it wrote last is read then
            if self.watch.read():
                self._last_update = self._clock()
            if process is not None:
                self._sampler.take_last()  # a kill by the kernel came after the last sample
                self._ended = self._judge(process)
            elif is_done(self.watch):
                ended = TrialEnded(end=TrialEnd.FINISHED)
                if self._unless_forged(ended) is ended:
                    return None
                self._kill()
                self._ended = ended
            elif (reason := self._overdue()) is not None:
                self._kill()
                self._ended = TrialEnded(end=TrialEnd.TIMED_OUT, reason=reason, text=self.tail())
            else:
                self._sample()
                self._sleep(_POLL_S)
        self._ended = self._unless_forged(self._ended)
        return self._ended

    def close(self) -> TrialEnded:
        """End it if it still runs, and write down how it ended."""
        if self._ended is None:
            self._sampler.take()
            self._kill()
            self._ended = self._unless_forged(TrialEnded(end=TrialEnd.FINISHED))
        process = self._ended.process
        record = replace(
            self._record,
            ended_unix_s=time.time(),
            exit_code=process.exit_code if process else None,
            signal=process.signal if process else None,
            num_sample_failures=self._sampler.num_failures,
        )
        write_value(_as_run(self.folder), "command.json", record)
        write_text(self.folder / "plan.json", self._plan + "\n")  # before, the script could read it
        write_levers(self.folder, self._levers)
        return self._ended

    def tail(self) -> str:
        """The last lines that the command wrote to stderr."""
        return read_tail(self.folder / "stderr")

    def _unless_forged(self, ended: TrialEnded) -> TrialEnded:
        """The end of a trial; one whose record cannot be true says nothing, however it ended."""
        refuse = partial(TrialEnded, end=TrialEnd.FAILED, process=ended.process)
        if (file := self.watch.changed_file()) is not None:
            return refuse(reason="record_changed", seen={"file": file})
        if (untrue := self.watch.untrue) is not None:
            reason, times_s = untrue
            return refuse(reason=reason, seen=times_s)
        return ended

    def _kill(self) -> None:
        self._contained.kill()
        self.watch.read()

    def _sample(self) -> None:
        if self._clock() >= self._sample_due:
            self._sample_due = self._clock() + self._sampler.take()

    def _overdue(self) -> str | None:
        """Machine word of the limit that is passed."""
        limits, now = self.limits, self._clock()
        if now - self._started > limits.total_s:
            return TIME_LIMIT
        first = self.watch.first
        if first is None:
            # Another training of the command may step first, as long as it takes.
            return "no_first_step" if now - self._last_update > limits.start_s else None
        step_s = median([tick.wall_s for tick in first.ticks[-_SILENCE_STEPS:]])
        allowed_s = max(
            limits.silence_s, _SILENCE_STEPS * step_s, _SILENCE_GAPS * limits.longest_gap_s
        )
        silent_s = now - self._last_update
        if silent_s <= allowed_s:
            return None
        is_working = silent_s <= allowed_s + limits.working_s and self._is_working()
        return None if is_working else "hung"

    def _is_working(self) -> bool:
        """Whether the command kept the processor busy in the last seconds."""
        samples = read_host(self.folder / files.HOST, Torn()).samples[-_WORKING_SAMPLES:]
        return any(sample.job_cores > _WORKING_CORES for sample in samples)

    def _judge(self, process: ProcessEnd) -> TrialEnded:
        """The end of a command that ended by itself."""
        failed = next(iter(self.watch.failed_levers), None)
        if shell_exit_code(process) == _LEVER_FAILED_CODE and failed is not None:
            return TrialEnded(
                end=TrialEnd.FAILED,
                reason=LEVER_FAILED,
                process=process,
                text=failed.error or "",
                lever=failed.name,
            )
        if process.state is RunState.FINISHED:
            return TrialEnded(
                end=TrialEnd.FINISHED,
                reason=ENDED_ITSELF,
                process=process,
                outlived_by=find_outliving(self.folder, self._contained.left, self._record.argv),
            )
        if _is_memory(self.watch, self.folder):
            return TrialEnded(
                end=TrialEnd.OUT_OF_MEMORY,
                reason="out_of_memory",
                process=process,
                text=self.tail(),
            )
        reason = "exit_code" if process.exit_code is not None else "signal"
        return TrialEnded(end=TrialEnd.FAILED, reason=reason, process=process, text=self.tail())


def start_trial(begin: Start, start: TrialStart, limits: TrialLimits) -> TrialProcess | NotStarted:
    """Make the trial's folder and start the command in it.

    Raises:
        OSError: the folder cannot be written.
    """
    start.folder.mkdir(parents=True)
    if start.compiled is not None:
        start.compiled.rename(start.folder / COMPILED)
    run = _as_run(start.folder)
    record = describe_run(
        run.run_id, start.argv, environment=start.environment, started_unix_s=time.time()
    )
    write_value(run, "command.json", record)
    environment = observed_environment(start.environment, start.folder)
    if start.plan.get("mode") != AS_A_RUN:
        environment["STEPTIME_PLAN"] = json.dumps(start.plan)
    contained = begin(environment, folder=start.folder, stdin=start.stdin)
    if isinstance(contained, NotStarted):
        return contained
    record = replace(record, child_pid=contained.pid)
    return TrialProcess(start, record, contained, limits)


def find_outliving(
    folder: Path, left: Sequence[tuple[int, str]], argv: Sequence[str]
) -> str | None:
    """Return the process in which a training went on when the command had returned, if any.

    That is one with torch and without a last line; where no process stepped, any that was left.

    Args:
        folder: of the trial.
        left: the processes that were there when the command ended, with their names.
        argv: the command; a process of that name is a fork that had not become anything yet.
    """
    trainings = {one.pid: one for one in read_training_processes(folder)}
    goes_on = {pid for pid, one in trainings.items() if not one.has_ended}
    names = [name for pid, name in left if pid in goes_on]
    if not names and not any(one.has_stepped for one in trainings.values()):
        names = [name for _, name in left]
    shell = os.path.basename(argv[0])
    command = " ".join([shell, *argv[1:]])
    return next((shell if command.startswith(name) else name for name in names), None)


def read_tail(path: Path) -> str:
    """The last lines of a file; empty if there is none."""
    try:
        with open_regular(path, max_bytes=sys.maxsize) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_TAIL_LINES:]).strip()


def _as_run(folder: Path) -> Run:
    return Run(run_id=folder.name, folder=folder)


def _sampler(folder: Path, pid: int) -> HostSampler:
    # A contained process numbers itself in a namespace of its own, so that it cannot be found
    # among those that the guest was seen in, nor among those that say they are workers.
    readers = replace(
        system_readers(folder, pid), unwatched=lambda layouts: (), workers=lambda pids: Workers()
    )
    return HostSampler(
        folder / files.HOST, root_pid=pid, num_cores=os.cpu_count() or 1, readers=readers
    )


def _is_memory(watch: TrialWatch, folder: Path) -> bool:
    """Whether a command failed because it ran out of memory.

    Torch said so, or the kernel killed meanwhile: a launcher hands the signal of a rank on as an
    exit code of its own.
    """
    return watch.has_memory_error or _num_oom_kills(folder) > 0


def _num_oom_kills(folder: Path) -> int:
    """Kills by the kernel since the trial began."""
    samples = read_host(folder / files.HOST, Torn()).samples
    return max((sample.oom_kills or 0 for sample in samples), default=0)
