"""How a trial ends: each end is data. The child is scripted and the clock moved by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from steptime.core.process_end import ProcessEnd, RunState
from steptime.launch.origin import describe_run
from steptime.launch.values import CommandRecord
from steptime.tune.trials import trial_process
from steptime.tune.trials.bounds import WindowSize, is_full, process_window
from steptime.tune.trials.process_pairs import _late_step
from steptime.tune.trials.trial_process import (
    TrialEnded,
    TrialLimits,
    TrialProcess,
    TrialStart,
    find_outliving,
    start_trial,
)
from steptime.tune.trials.trial_watch import Tick, TrialWatch, fold_ticks
from steptime.tune.values.study_values import TrialEnd
from unit.builders import make_head

LIMITS = TrialLimits(start_s=10.0, silence_s=5.0, total_s=100.0)
EXIT_0 = ProcessEnd(state=RunState.FINISHED, exit_code=0)
EXIT_1 = ProcessEnd(state=RunState.FAILED, exit_code=1)
NEVER = 1e9


@dataclass
class Child:
    """Writes an update each `step_s` from `first_s` on, until `silent_s`; ends at `end_s`."""

    folder: Path
    first_s: float = 1.0
    step_s: float = 0.1
    silent_s: float = NEVER
    end_s: float = NEVER
    end: ProcessEnd = EXIT_0
    last_rows: tuple[Mapping[str, Any], ...] = ()
    is_working: bool = False
    tells: float = 1.0
    """Its record's clock by ours."""
    tells_cpu: float = 1.0
    """Its record's CPU time by the kernel's."""
    now_s: float = 0.0
    is_killed: bool = False
    evaluates_s: float = 0.0
    """After the first update, whose line is on disk only then."""
    num_updates: int = 0
    pid: int = 2**22 + 1  # no process has it

    @property
    def left(self) -> tuple[tuple[int, str], ...]:
        return ()

    def __post_init__(self) -> None:
        self._write("rank-0.jsonl", make_head(buckets=["other", "compile"], counts=[]))
        self._write("host.jsonl", {"k": "head", "schema": 1, "num_cores": 2})

    def clock(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s
        if self.is_working:
            self._write("host.jsonl", make_load(job_cores=1.0))
        first_s = self.first_s + self.evaluates_s
        while first_s + self.num_updates * self.step_s <= min(self.now_s, self.silent_s):
            self._update()

    def poll(self) -> ProcessEnd | None:
        if self.now_s < self.end_s:
            return None
        for row in self.last_rows:
            self._write("processes.jsonl" if row["k"] == "exit" else "rank-0.jsonl", row)
        return self.end

    def kill(self) -> None:
        self.is_killed = True

    def _update(self) -> None:
        end_s = self.first_s + self.num_updates * self.step_s
        end_s += self.evaluates_s if self.num_updates else 0.0
        end_ns = round(end_s * self.tells * 1e9)
        wall_ns = round(self.step_s * self.tells * 1e9)
        cpu_ns = round(self.step_s * self.tells_cpu * 1e9)
        row = [self.num_updates, 0, 0, end_ns - wall_ns, end_ns, 0, 1, wall_ns, 0, cpu_ns, 0]
        self._write("rank-0.jsonl", {"k": "u", "rows": [row]})
        self.num_updates += 1

    def _write(self, name: str, row: Mapping[str, Any]) -> None:
        with (self.folder / name).open("a") as file:
            file.write(json.dumps(row) + "\n")


def make_load(**fields: Any) -> dict[str, Any]:
    """A second of the machine's load."""
    usual = {"t_unix_s": 1000.0, "dt_s": 1.0, "busy_cores": 1.0, "job_cores": 0.0}
    return {"k": "h", **usual, **fields}


def make_record(folder: Path) -> CommandRecord:
    return describe_run(folder.name, ("python", "x.py"), environment={}, started_unix_s=1.0)


def run(
    child: Child,
    is_done: Callable[[TrialWatch], bool] = lambda watch: False,
    *,
    limits: TrialLimits = LIMITS,
) -> TrialEnded:
    """What the trial with this child came to."""
    start = TrialStart(folder=child.folder, argv=("python", "x.py"), environment={}, plan={})
    record = make_record(child.folder)
    trial = TrialProcess(start, record, child, limits, clock=child.clock, sleep=child.sleep)
    trial.wait(is_done)
    return trial.close()


def test_a_trial_that_has_shown_enough_is_killed_and_finished(tmp_path: Path) -> None:
    child = Child(tmp_path)

    ended = run(child, lambda watch: watch.num_updates >= 5)

    assert ended == TrialEnded(end=TrialEnd.FINISHED)
    assert child.is_killed
    assert child.now_s < 2.0


def test_a_command_that_ends_by_itself_is_finished_too(tmp_path: Path) -> None:
    child = Child(tmp_path, end_s=3.0)

    ended = run(child)

    assert (ended.end, ended.reason) == (TrialEnd.FINISHED, "ended_itself")
    assert not child.is_killed


@pytest.mark.parametrize(
    ("left", "lines", "process"),
    [
        ((), (), None),
        (((7, "python a.py"),), (), "python a.py"),
        (((7, "bash -c x"),), (), "bash"),  # a fork that has not become anything yet
        (((7, "python a.py"),), ({"k": "torch", "pid": 7},), "python a.py"),
        (((7, "python a.py"),), ({"k": "torch", "pid": 7}, {"k": "exit", "pid": 7}), None),
        (((8, "tensorboard"),), ({"k": "torch", "pid": 7},), None),
    ],
)
def test_a_training_that_outlives_its_command_is_named(
    left: tuple[tuple[int, str], ...],
    lines: Sequence[dict[str, Any]],
    process: str | None,
    tmp_path: Path,
) -> None:
    (tmp_path / "processes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if any(pid == 8 for pid, _ in left) or len(lines) == 2:
        (tmp_path / "rank-0.jsonl").write_text(json.dumps(make_head(pid=7)) + "\n")
    assert find_outliving(tmp_path, left, ("/bin/bash", "-c", "x &")) == process


def test_a_command_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "stderr").write_text("warning\nTraceback\nValueError: no such label\n")

    ended = run(Child(tmp_path, end_s=3.0, end=EXIT_1))

    assert ended.end is TrialEnd.FAILED
    assert ended.ending.facts == {"exit_code": 1, "last_line": "ValueError: no such label"}


def test_a_signal_is_told(tmp_path: Path) -> None:
    ended = run(Child(tmp_path, end_s=3.0, end=ProcessEnd(state=RunState.KILLED, signal=11)))

    assert (ended.end, ended.reason, ended.ending.facts) == (
        TrialEnd.FAILED,
        "signal",
        {"signal": 11},
    )


def test_a_lever_that_fails_is_named(tmp_path: Path) -> None:
    row = {"k": "lever", "n": 0, "name": "fused", "settings": {}, "state": None, "error": "No: x"}
    end = ProcessEnd(state=RunState.FAILED, exit_code=86)

    ended = run(Child(tmp_path, end_s=3.0, end=end, last_rows=(row,)))

    assert (ended.end, ended.reason, ended.lever) == (TrialEnd.FAILED, "lever_failed", "fused")
    assert ended.ending.facts == {"lever": "fused", "error": "No: x"}


def multiply_by_ten(path: Path) -> None:
    """What a thread of a script did to its own steps."""
    path.write_text(path.read_text().replace("100000000", "010000000"))


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def put_a_copy_there(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


@pytest.mark.parametrize("name", ["rank-0.jsonl", "processes.jsonl"])
@pytest.mark.parametrize("edit", [multiply_by_ten, cut_in_half, put_a_copy_there, Path.unlink])
@pytest.mark.parametrize("ends", [True, False])
def test_a_trial_whose_record_was_changed_is_refused_by_name(
    edit: Callable[[Path], object], name: str, *, ends: bool, tmp_path: Path
) -> None:
    line = json.dumps({"k": "start", "pid": 7, "t": 100000000.0}) + "\n"
    (tmp_path / "processes.jsonl").write_text(2 * line)
    child = Child(tmp_path, end_s=4.0 if ends else NEVER)

    edits = [edit]

    def is_done(watch: TrialWatch) -> bool:
        if watch.num_updates >= 10 and edits:
            edits.pop()(tmp_path / name)
        return not edits and not ends

    ended = run(child, is_done)

    assert (ended.end, ended.reason) == (TrialEnd.FAILED, "record_changed")
    assert ended.ending.facts == {"file": name}


@pytest.mark.parametrize(
    ("told", "reason"), [(1.0, None), (0.9, None), (0.25, "record_untrue"), (3.0, "record_untrue")]
)
@pytest.mark.parametrize("end_s", [21.0, NEVER])
def test_a_record_whose_time_is_not_ours_is_refused_with_both(
    told: float, reason: str | None, end_s: float, tmp_path: Path
) -> None:
    child = Child(tmp_path, end_s=end_s, tells=told)  # as of a script with a clock of its own

    ended = run(child, lambda watch: child.now_s > 20.0)

    assert (ended.reason == "record_untrue") is (reason is not None)
    if reason is not None:
        assert ended.end is TrialEnd.FAILED
        assert ended.ending.facts is not None
        assert ended.ending.facts["told_s"] == pytest.approx(3 / 4 * 19 * told, rel=0.02)
        assert ended.ending.facts["passed_s"] == pytest.approx(3 / 4 * 19, rel=0.02)


@pytest.mark.parametrize(("told", "is_true"), [(1.0, True), (0.5, False), (3.0, False)])
def test_a_record_is_true_though_its_first_line_came_with_the_end_of_an_evaluation(
    told: float, *, is_true: bool, tmp_path: Path
) -> None:
    child = Child(tmp_path, end_s=17.0, tells=told, evaluates_s=6.0)

    ended = run(child)

    assert ended.reason == ("ended_itself" if is_true else "record_untrue")


def test_a_record_is_true_though_its_last_line_was_held_by_a_compilation(tmp_path: Path) -> None:
    child = Child(tmp_path, end_s=12.6, silent_s=8.0)

    def compiles(watch: TrialWatch) -> bool:
        if child.now_s >= 12.5 and child.silent_s < NEVER:
            child.silent_s = NEVER  # from now on its clock stood still for 4.5 s
            child._update()
            child.first_s = NEVER
        return False

    ended = run(child, compiles)

    assert ended.reason == "ended_itself"


@pytest.mark.parametrize(("told", "is_true"), [(1.0, True), (0.9, True), (0.25, False), (3, False)])
def test_a_record_whose_cpu_time_is_not_the_kernels_is_refused_with_both(
    told: float, *, is_true: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(tmp_path, end_s=21.0, tells_cpu=told)
    pid = make_head()["pid"]
    monkeypatch.setattr(trial_process, "cpu_by_inner_id", lambda _: {pid: child.now_s})

    ended = run(child)

    assert (ended.reason == "ended_itself") is is_true
    if not is_true:
        assert (ended.end, ended.reason) == (TrialEnd.FAILED, "cpu_untrue")
        assert ended.ending.facts is not None
        # Three quarters of 19 s and up to a second more, as often as it is counted.
        assert ended.ending.facts["told_s"] == pytest.approx(15.2 * told, rel=0.06)
        assert ended.ending.facts["kernel_s"] == pytest.approx(15.2, rel=0.06)


def test_an_exit_code_of_the_scripts_own_blames_no_lever(tmp_path: Path) -> None:
    ended = run(Child(tmp_path, end_s=3.0, end=ProcessEnd(state=RunState.FAILED, exit_code=86)))

    assert ended.reason == "exit_code"


def test_torch_says_that_memory_ran_out(tmp_path: Path) -> None:
    row = {"k": "exit", "pid": 1, "error": {"type": "RuntimeError", "is_memory": True}}

    ended = run(Child(tmp_path, end_s=3.0, end=EXIT_1, last_rows=(row,)))

    assert ended.end is TrialEnd.OUT_OF_MEMORY


def test_the_kernel_says_that_memory_ran_out(tmp_path: Path) -> None:
    (tmp_path / "host.jsonl").write_text(
        '{"k": "head", "schema": 1, "num_cores": 2}\n' + json.dumps(make_load(oom_kills=1)) + "\n"
    )

    ended = run(Child(tmp_path, end_s=3.0, end=ProcessEnd(state=RunState.KILLED, signal=9)))

    assert ended.end is TrialEnd.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("child", "reason", "after_s"),
    [
        ({"first_s": NEVER}, "no_first_step", 10.0),
        ({"silent_s": 2.0}, "hung", 7.0),
        ({"silent_s": 40.0, "step_s": 2.0}, "hung", 59.0),  # ten steps
        ({}, "time_limit", 100.0),
    ],
)
def test_what_takes_too_long_is_killed(
    tmp_path: Path, child: Mapping[str, Any], reason: str, after_s: float
) -> None:
    made = Child(tmp_path, **child)

    ended = run(made)

    assert (ended.end, ended.reason) == (TrialEnd.TIMED_OUT, reason)
    assert made.is_killed
    assert made.now_s == pytest.approx(after_s, abs=1.1)


def test_a_pause_that_the_command_makes_as_written_is_no_hang(tmp_path: Path) -> None:
    child = Child(tmp_path, silent_s=2.0)

    run(child, limits=TrialLimits(start_s=10.0, silence_s=5.0, total_s=100.0, longest_gap_s=8.0))

    assert child.now_s == pytest.approx(2.0 + 3 * 8.0, abs=0.5)


def test_a_silent_child_that_works_may_be_compiling(tmp_path: Path) -> None:
    limits = TrialLimits(start_s=10.0, silence_s=5.0, total_s=100.0, working_s=30.0)
    (tmp_path / "idle").mkdir()
    (tmp_path / "busy").mkdir()
    idle = Child(tmp_path / "idle", silent_s=2.0)
    busy = Child(tmp_path / "busy", silent_s=2.0, is_working=True)

    assert [run(child, limits=limits).reason for child in (idle, busy)] == ["hung", "hung"]
    assert idle.now_s == pytest.approx(2.0 + 5.0, abs=0.5)
    assert busy.now_s == pytest.approx(2.0 + 5.0 + 30.0, abs=0.5)


def test_code_that_was_compiled_is_handed_on(tmp_path: Path) -> None:
    compiled = tmp_path / "000" / "compiled"
    compiled.mkdir(parents=True)
    (compiled / "kernel.so").touch()
    start = TrialStart(
        folder=tmp_path / "001", argv=("x",), environment={}, plan={}, compiled=compiled
    )

    start_trial(lambda environment, *, folder, stdin: Child(folder), start, LIMITS)

    assert (tmp_path / "001" / "compiled" / "kernel.so").is_file()
    assert not compiled.exists()


def test_the_end_is_written_down(tmp_path: Path) -> None:
    run(Child(tmp_path, end_s=3.0, end=EXIT_1))

    record = json.loads((tmp_path / "command.json").read_text())
    assert (record["exit_code"], record["ended_unix_s"] is not None) == (1, True)


SIZE = WindowSize(num_steps=30, least_s=1.0, most_s=20.0)


@pytest.mark.parametrize(
    ("step_s", "seconds"),
    [
        (0.01, 1.0),  # steps enough long before a second
        (0.1, 3.3),  # 30 and the first ones
        (2.0, 20.0),  # time alone, for fewer steps
        (30.0, 60.0),  # three steps at least, or twice the time
    ],
)
def test_a_window_is_full_by_steps_and_time(tmp_path: Path, step_s: float, seconds: float) -> None:
    child = Child(tmp_path, step_s=step_s)

    run(
        child,
        lambda watch: is_full(watch, SIZE),
        limits=TrialLimits(start_s=10, silence_s=500, total_s=500),
    )

    assert child.now_s - 1.0 == pytest.approx(seconds, abs=0.2)


def test_steps_of_several_optimizers_are_rounds_of_updates() -> None:
    optimizers = (-1, 0, 1, 0, 1, 0, 1)
    ticks = [
        Tick(number=i, optimizer=o, end_s=float(i), wall_s=0.5, compile_s=0.0)
        for i, o in enumerate(optimizers)
    ]

    assert fold_ticks(ticks) == [1.5, 1.0, 1.0]


def test_a_process_of_a_pair_runs_on_past_what_was_left_out_of_the_observation(
    tmp_path: Path,
) -> None:
    """A step is slower until the first evaluation, which the pair would not reach else."""
    size = process_window(600.0, num_warmup=100, update_s=0.1)
    child, seen = Child(tmp_path), []

    def is_done(watch: TrialWatch) -> bool:
        seen.append(watch)
        return is_full(watch, size)

    run(child, is_done)

    assert 120 < child.num_updates < 170
    late = _late_step(seen[-1], 100)
    assert late is not None
    assert late[0] == pytest.approx(0.1)
    assert _late_step(seen[-1], child.num_updates - 2) is None
    assert process_window(600.0, num_warmup=100, update_s=1.0).num_warmup == 2  # 100 are too dear


def test_the_first_third_of_what_a_process_shows_does_not_count() -> None:
    size = process_window(600.0, num_warmup=1, update_s=0.05)

    assert (size.num_warmup, size.least_s) == (40, 4.0)
