"""How a run ended whose training outlived its command: by its record, and by what is alive."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from steptime.app.kept.kept_list import list_current_runs
from steptime.app.run import run_end
from steptime.app.run.run_end import look_at_end
from steptime.app.stored.load import load_measurement, load_run
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run
from steptime.launch.values import Survivor
from steptime.measure.values.outliving import OutlivingProcess, ProcessState
from steptime.record.live.process_identity import describe_own_process
from steptime.report.words.run.outliving_words import describe_outliving
from steptime.watch.host import training_processes
from steptime.watch.host.training_processes import Sighting, TrainingProcess, find_marked, sight
from unit.builders import Line, make_head, make_update, write_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes and /proc as on Linux")

ME = {"pid": os.getpid(), **describe_own_process()}
GONE = {**ME, "pid": os.getpid(), "started": 1}
"""Has our process id, and was started at another time: the id was used again."""
AFAR = {**ME, "boot": "another", "host": "node17"}
HERE = hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:16]


def make_run(
    folder: Path,
    process: Line,
    *lines: Line,
    num_steps: int = 20,
    ended_s_ago: float = 0.0,
    **command: Any,
) -> Run:
    """A run that one process outlived, as it says itself."""
    now = time.time()
    torch = {"k": "torch", "t": now + 1, "version": "2.13.0", **process}
    files: dict[str, list[Line]] = {"processes.jsonl": [torch, *lines]}
    if num_steps:
        head = make_head(t_unix_s=now + 2) | process
        files["rank-0.jsonl"] = [head, *map(make_update, range(num_steps))]
    survivor = {"pid": process["pid"], "name": "python train.py", "started": process["started"]}
    values = {
        "started_unix_s": now - ended_s_ago - 1,
        "ended_unix_s": now - ended_s_ago,
        "machine": {"hostname_hash": HERE, "cpu": None, "num_cores": 2, "memory_bytes": None},
        "survivors": {"boot": process["boot"], "processes": [survivor]},
    }
    run_id = "20261120-101500-3fa2"
    (folder / "runs").mkdir()
    place = write_run(folder / "runs" / run_id, files, **(values | command))
    return Run(run_id=run_id, folder=place)


def exit_of(process: Line, **fields: Any) -> Line:
    counts = {"updates": 20, "backwards": 20, "forwards": 20, "batches": 20, "failures": {}}
    return {"k": "exit", "t": time.time() + 9, **counts, **process, **fields}


def test_a_training_that_is_alive_keeps_its_run_open(tmp_path: Path) -> None:
    seen = look_at_end(make_run(tmp_path, ME))
    assert seen.end == ProcessEnd(state=RunState.STILL_TRAINING, exit_code=0)
    (process,) = seen.processes
    assert (process.pid, process.state, process.is_training) == (
        os.getpid(),
        ProcessState.RUNNING,
        True,
    )


def test_what_it_did_since_is_folded_each_time(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME)
    found = load_run(run)
    assert found.goes_on
    assert found.measurement.outliving[0].num_steps == 20
    assert not (run.folder / "measurement.json").exists()

    with (run.folder / "rank-0.jsonl").open("a") as file:
        file.write(json.dumps(make_update(20)) + "\n")
    assert load_run(run).measurement.num_steps == 21
    assert load_measurement(run).num_steps == 21
    (row,) = list_current_runs(tmp_path)
    assert (row.state, row.num_steps) == (RunState.STILL_TRAINING, 21)


def test_its_last_line_ends_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME, exit_of(ME))
    seen = look_at_end(run)
    assert seen.end == ProcessEnd(state=RunState.FINISHED, exit_code=0)
    kept = json.loads((run.folder / "command.json").read_text())["survivors"]
    assert kept["ended_unix_s"] == seen.ended_unix_s
    assert not kept["was_cut_short"]
    (row,) = list_current_runs(tmp_path)
    assert (row.state, row.num_steps) == (RunState.FINISHED, 20)


def test_an_exception_fails_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME, exit_of(ME, error={"type": "RuntimeError", "text": "no"}))
    for _ in range(2):  # as it is seen, and as it was kept
        assert look_at_end(run).end == ProcessEnd(state=RunState.FAILED)


def test_an_id_that_was_used_again_is_another_process(tmp_path: Path) -> None:
    run = make_run(tmp_path, GONE)
    for _ in range(2):
        assert look_at_end(run).end == ProcessEnd(state=RunState.KILLED)


def test_the_exit_code_of_a_command_that_failed_stays(tmp_path: Path) -> None:
    run = make_run(tmp_path, GONE, exit_code=7)
    assert look_at_end(run).end == ProcessEnd(state=RunState.FAILED, exit_code=7)


def test_a_store_that_cannot_be_written_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    run = make_run(tmp_path, ME, exit_of(ME))
    monkeypatch.setattr(run_end, "write_value", refuse)
    assert look_at_end(run).end.state is RunState.FINISHED
    assert look_at_end(run).end.state is RunState.FINISHED


# -- on another machine


def test_a_training_on_another_machine_is_open_while_it_writes(tmp_path: Path) -> None:
    run = make_run(tmp_path, AFAR, ended_s_ago=30)
    seen = look_at_end(run)
    assert seen.end.state is RunState.STILL_TRAINING
    (process,) = seen.processes
    assert (process.host, process.state) == ("node17", ProcessState.UNKNOWN)
    assert describe_outliving(seen.processes) == (
        f"it cannot be seen from here whether process {os.getpid()} on host node17 "
        "(python train.py, 0 steps so far) has ended"
    )


def test_the_end_of_a_silent_one_is_not_known_there(tmp_path: Path) -> None:
    run = make_run(tmp_path, AFAR, ended_s_ago=30)
    for path in run.folder.iterdir():
        os.utime(path, (time.time() - 100,) * 2)
    assert look_at_end(run).end.state is RunState.UNKNOWN


def test_its_last_line_is_read_anywhere(tmp_path: Path) -> None:
    run = make_run(tmp_path, AFAR, exit_of(AFAR), ended_s_ago=30)
    assert look_at_end(run).end.state is RunState.FINISHED


def test_one_that_left_with_its_command_is_not_waited_for(tmp_path: Path) -> None:
    run = make_run(tmp_path, {**AFAR, "t": time.time() - 50}, ended_s_ago=-3600)
    assert look_at_end(run).end.state is not RunState.STILL_TRAINING


def test_steps_of_a_process_that_nobody_saw_at_the_end_open_a_run_again(tmp_path: Path) -> None:
    run = make_run(tmp_path, AFAR, ended_s_ago=30, survivors={"processes": []})
    assert look_at_end(run).end.state is RunState.STILL_TRAINING


# -- what may still begin to train


def make_left(
    folder: Path, *, num_steps: int, name: str, exit_code: int = 0, **process: Any
) -> Run:
    """A run of which only a process without torch is left; if it stepped, that ended in order."""
    survivor = {"name": name, **process}
    survivors = {"boot": ME["boot"], "processes": [survivor]}
    lines = (exit_of(ME),) if num_steps else ()
    process = ME if num_steps else GONE
    return make_run(
        folder, process, *lines, num_steps=num_steps, survivors=survivors, exit_code=exit_code
    )


def test_without_any_step_whatever_is_left_may_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_end, "is_there", lambda one, *, boot: True)
    monkeypatch.setattr(run_end, "name_again", lambda one: one)
    run = make_left(tmp_path, num_steps=0, pid=1, name="screen", started=77)
    seen = look_at_end(run)
    assert seen.end.state is RunState.RUNNING
    assert describe_outliving(seen.processes) == (
        "process 1 (screen) goes on, without a step so far"
    )


@pytest.mark.parametrize(
    ("name", "age_s", "state"),
    [
        ("python b.py", 1.0, RunState.RUNNING),
        ("python tensorboard", 60.0, RunState.FINISHED),
        ("sleep 100", 1.0, RunState.FINISHED),
    ],
)
def test_beside_a_training_only_a_young_python_may_be_another(
    name: str, age_s: float, state: RunState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_end, "is_there", lambda one, *, boot: True)
    monkeypatch.setattr(run_end, "name_again", lambda one: one)
    monkeypatch.setattr(run_end, "age_s", lambda started: age_s)
    run = make_left(tmp_path, num_steps=20, pid=1, name=name, started=77)
    assert look_at_end(run).end.state is state


@pytest.mark.parametrize("exit_code", [1, 137])
def test_after_a_command_that_failed_only_a_training_keeps_the_run_open(
    exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_end, "is_there", lambda one, *, boot: True)
    monkeypatch.setattr(run_end, "name_again", lambda one: one)
    run = make_left(tmp_path, num_steps=0, pid=1, name="sleep", started=77, exit_code=exit_code)
    assert look_at_end(run).end == ProcessEnd(state=RunState.FAILED, exit_code=exit_code)


def test_a_training_that_begins_late_opens_its_run_again(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME, ended_s_ago=60)
    path = run.folder / "command.json"
    command = json.loads(path.read_text())
    command["survivors"]["ended_unix_s"] = time.time() - 50
    path.write_text(json.dumps(command))
    assert look_at_end(run).end.state is RunState.STILL_TRAINING


# -- seeing processes


def test_a_process_is_itself_by_its_start_and_its_boot() -> None:
    me = TrainingProcess(**ME)
    assert sight(me) is Sighting.ALIVE
    assert sight(TrainingProcess(**GONE)) is Sighting.GONE
    assert sight(TrainingProcess(**{**ME, "boot": "before"})) is Sighting.GONE
    assert sight(TrainingProcess(**AFAR)) is Sighting.ELSEWHERE
    assert sight(TrainingProcess(**ME, has_ended=True)) is Sighting.GONE


def test_a_process_of_another_container_is_not_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside = TrainingProcess(**{**ME, "pid_space": "pid:[1]", "pid": 4_000_000})
    monkeypatch.setattr(training_processes, "_pids", lambda: iter([os.getpid()]))
    assert sight(inside) is Sighting.ELSEWHERE


def test_without_a_start_the_time_of_its_line_decides() -> None:
    old = {"pid": os.getpid(), "host": ME["host"]}
    assert sight(TrainingProcess(**old, wrote_unix_s=time.time())) is Sighting.ALIVE
    assert sight(TrainingProcess(**old, wrote_unix_s=1000.0)) is Sighting.GONE
    assert sight(TrainingProcess(pid=2**22 + 1, wrote_unix_s=time.time())) is Sighting.GONE


def test_processes_are_found_by_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = tmp_path / "proc"
    for pid, mark in ((11, "/run"), (12, "/other"), (13, "/run")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "environ").write_bytes(f"A=1\0STEPTIME_RUN={mark}\0".encode())
        (proc / str(pid) / "cmdline").write_bytes(b"/bin/python\0train.py\0")
    (proc / "self").mkdir()
    (proc / "self" / "stat").touch()
    monkeypatch.setattr(training_processes, "_PROC", proc)
    for pid, words in ((14, b"python\0-c\0from multiprocessing.resource_tracker import main"),):
        (proc / str(pid)).mkdir()
        (proc / str(pid) / "environ").write_bytes(b"STEPTIME_RUN=/run\0")
        (proc / str(pid) / "cmdline").write_bytes(words)
    started = {11: 500, 12: 500, 13: None, 14: 500}
    monkeypatch.setattr(training_processes, "read_started", lambda pid: started[pid])
    monkeypatch.setattr(training_processes, "age_s", lambda started: 1.0)
    found = find_marked(Path("/run"), since_unix_s=time.time() - 5)
    assert found == (Survivor(pid=11, name="python train.py", started=500),)


# -- in words


@pytest.mark.parametrize(
    ("num", "text"),
    [
        (1, "still training in process 7 (python a.py, 1 step so far)"),
        (
            6,
            "still training in processes 7 (python a.py, 1 step so far), 8 (python a.py, 1 step "
            "so far), 9 (python a.py, 1 step so far), 10 (python a.py, 1 step so far), 2 more",
        ),
    ],
)
def test_trainings_that_go_on_are_named(num: int, text: str) -> None:
    one = {"state": ProcessState.RUNNING, "is_training": True, "name": "python a.py"}
    processes = [OutlivingProcess(pid=7 + i, num_steps=1, **one) for i in range(num)]  # type: ignore[arg-type]
    assert describe_outliving(processes) == text
