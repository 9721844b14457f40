"""The life of a run: its end is kept whatever happens to us, and a training may outlive it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    LIMIT_S,
    SCRIPTS,
    STEPTIME,
    Done,
    Job,
    ask_steptime,
    environment,
    needs_linux,
    needs_torch,
    run_folder,
    show,
    start_observed,
    updates,
    wait_until,
)
from run_folders import unpack_run
from unit.builders import make_head, make_update

pytestmark = [needs_linux]


def runs(folder: Path) -> Mapping[str, Any]:
    """What `steptime list` says of the one run."""
    done = ask_steptime(folder, "list", "--json")
    assert done.exit_code == 0, done.stderr.decode()
    (row,) = json.loads(done.stdout)["data"]["runs"]
    return dict(row)


def test_a_run_says_how_its_page_is_drawn(tmp_path: Path) -> None:
    kept = unpack_run("healthy", tmp_path / "kept")
    command = f"cp {kept}/rank-0.jsonl {kept}/processes.jsonl $STEPTIME_RUN"
    words = [*STEPTIME, "run", "--", "sh", "-c", command]
    done = Job(tmp_path, words, environment(tmp_path)).finish()

    page = run_folder(tmp_path) / "report.html"
    *_, last = done.stderr.decode().splitlines()
    assert last == f"steptime: the page of this run: steptime report {page.parent.name}"
    assert not page.exists()
    assert ask_steptime(tmp_path, *last.split()[-2:], "--no-open").exit_code == 0
    assert b"<svg" in page.read_bytes()


# -- the end of a run is on disk before anything is made of it


class Held:
    """A run that waits in one of our functions, after its command ended with code 3."""

    def __init__(self, folder: Path, module: str, function: str) -> None:
        record = [make_head(), *map(make_update, range(20))]
        (folder / "record").write_text("".join(json.dumps(line) + "\n" for line in record))
        command = f"cp {folder}/record $STEPTIME_RUN/rank-0.jsonl; exit 3"
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        words = [sys.executable, str(SCRIPTS / "held.py"), str(self.pipe), module, function]
        words += ["run", "--", "sh", "-c", command]
        self.job = Job(folder, words, environment(folder))
        wait_until(self._is_held)

    def _is_held(self) -> bool:
        """Whether the pipe has a reader."""
        assert self.job.process.poll() is None
        with contextlib.suppress(OSError):
            self._writer = os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
            return True
        return False

    def send(self, number: int) -> Done:
        """Send a signal, and wait for the end."""
        self.job.process.send_signal(number)
        self.job.process.wait(60)
        os.close(self._writer)
        return self.job.finish()


WINDOWS = {
    "look for what is left": ("steptime.app.run.run_end", "look_for_survivors"),
    "measure": ("steptime.app.stored.load", "fold"),
    "save": ("steptime.app.stored.load", "save"),
    "report": ("steptime.report.text.print_run", "render"),
}


@pytest.mark.parametrize(
    ("window", "number"),
    [
        *((window, signal.SIGTERM) for window in WINDOWS),
        *((window, signal.SIGKILL) for window in WINDOWS),
        *(("measure", number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)),
    ],
)
def test_an_end_is_kept_whenever_the_report_is_cut_short(
    tmp_path: Path, window: str, number: signal.Signals
) -> None:
    held = Held(tmp_path, *WINDOWS[window])
    kept = json.loads((run_folder(tmp_path) / "command.json").read_text())
    assert kept["exit_code"] == 3
    assert kept["ended_unix_s"] >= kept["started_unix_s"]

    done = held.send(number)

    if number == signal.SIGKILL:
        assert done.exit_code == -signal.SIGKILL
    else:
        assert done.exit_code == 3
        assert b"To print it: steptime show" in done.stderr
    row = runs(tmp_path)
    assert (row["state"], row["exit_code"], row["num_steps"]) == ("failed", 3, 20)


def test_a_measurement_that_was_never_made_is_made_when_it_is_shown(tmp_path: Path) -> None:
    Held(tmp_path, *WINDOWS["measure"]).send(signal.SIGKILL)
    folder = run_folder(tmp_path)
    assert not (folder / "measurement.json").exists()

    assert show(tmp_path)["num_steps"] == 20

    assert (folder / "measurement.json").exists()
    assert (folder / "diagnosis.json").exists()


# -- a training that outlives its command


class Outliving:
    """A run whose command has returned while its training waits for us."""

    def __init__(self, folder: Path, *acts: str) -> None:
        self.folder = folder
        self.go = folder / "go"
        script = SCRIPTS / "outlives.py"
        self.job = start_observed(folder, "python", script, self.go, *acts)
        self.done = self.job.finish()
        self.pid: int | None = None

    def wait_for_steps(self) -> None:
        stream = run_folder(self.folder) / "rank-0.jsonl"
        wait_until(lambda: len(updates(stream)) >= 29)
        self.pid = json.loads(stream.read_text().splitlines()[0])["pid"]

    def wait_for_end(self) -> None:
        pid = self.pid
        assert pid is not None
        wait_until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.fixture
def outlive(tmp_path: Path) -> Any:
    started: list[Outliving] = []

    def start(*acts: str) -> Outliving:
        started.append(Outliving(tmp_path, *acts))
        return started[-1]

    yield start
    for one in started:
        if one.pid is not None and is_alive(one.pid):
            os.kill(one.pid, signal.SIGKILL)


Outlive = Callable[..., Outliving]


@needs_torch
@pytest.mark.core
@pytest.mark.slow("a true process that trains after its launcher has left")
def test_a_training_that_outlives_its_command_is_followed_to_its_end(
    tmp_path: Path, outlive: Outlive
) -> None:
    run = outlive()
    assert run.done.exit_code == 0
    assert b"look again with: steptime show" in run.done.stderr
    assert run.done.data["outliving"]
    run.wait_for_steps()

    data = show(tmp_path)
    assert data["end"] == {"state": "still_training", "exit_code": 0, "signal": None}
    (process,) = data["outliving"]
    assert (process["pid"], process["state"], process["host"]) == (run.pid, "running", None)
    assert process["num_steps"] >= 29
    assert runs(tmp_path)["state"] == "still_training"

    run.go.touch()
    run.wait_for_end()
    row = runs(tmp_path)
    assert (row["state"], row["exit_code"], row["num_steps"]) == ("finished", 0, 60)
    data = show(tmp_path)
    assert (data["end"]["state"], data["outliving"]) == ("finished", [])
    assert data["duration_s"] > 0.5
    assert "ended_abruptly" not in {note["code"] for note in data["notes"]}
    kept = json.loads((run_folder(tmp_path) / "command.json").read_text())
    assert kept["survivors"]["ended_unix_s"] == pytest.approx(
        kept["started_unix_s"] + data["duration_s"]
    )


@needs_torch
@pytest.mark.slow("a true process that trains after its launcher has left")
def test_a_training_that_imported_torch_before_it_left_is_followed(
    tmp_path: Path, outlive: Outlive
) -> None:
    run = outlive("torch_first", "raise_error")
    run.wait_for_steps()
    assert show(tmp_path)["end"]["state"] == "still_training"
    run.go.touch()
    run.wait_for_end()
    data = show(tmp_path)
    assert data["end"] == {"state": "failed", "exit_code": None, "signal": None}
    assert data["errors"][0]["text"] == "the last act"
    assert data["num_steps"] == 60


@needs_torch
@pytest.mark.slow("a true process that trains after its launcher has left")
def test_a_training_in_the_background_that_is_killed_is_seen_to_have_ended(
    tmp_path: Path, outlive: Outlive
) -> None:
    run = outlive()
    run.wait_for_steps()
    assert run.pid is not None
    os.kill(run.pid, signal.SIGKILL)
    run.wait_for_end()
    assert runs(tmp_path)["state"] == "killed"
    data = show(tmp_path)
    assert data["num_steps"] >= 29
    assert "ended_abruptly" in {note["code"] for note in data["notes"]}
    assert data["host"] is None
    assert "host_unobserved" in {note["code"] for note in data["notes"]}


@needs_torch
@pytest.mark.slow("a true process that trains after its launcher has left")
def test_from_python_a_training_that_outlives_its_command_is_loaded_again(
    tmp_path: Path, outlive: Outlive
) -> None:
    import steptime

    run = outlive()
    run.wait_for_steps()
    found = steptime.load("last", store=tmp_path)
    assert found.goes_on
    assert found.exit_code == 0
    assert f"still training in process {run.pid}" in str(found)
    run.go.touch()
    run.wait_for_end()
    found = steptime.load("last", store=tmp_path)
    assert not found.goes_on
    assert found.measurement.num_steps == 60


WITH_WORKERS = """
import os, signal
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(torch.ones(4000, 4), batch_size=4, num_workers=2)
for number, batch in enumerate(loader):
    model(batch).sum().backward()
    optimizer.step()
    if number == 40:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_torch
@pytest.mark.slow("a true process with loader workers")
def test_workers_that_a_killed_training_leaves_keep_no_run_open(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WITH_WORKERS)
    job = start_observed(tmp_path, "python", "train.py")
    job.process.wait(LIMIT_S)
    job.kill_group()  # workers without a parent may hold the pipe of the output for long
    done = job.finish()
    assert done.exit_code == -signal.SIGKILL
    assert done.data["end"]["state"] == "killed"
    assert done.data["outliving"] == []


def test_what_a_command_leaves_behind_is_named(tmp_path: Path) -> None:
    job = start_observed(tmp_path, "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    done = job.finish()
    try:
        (process,) = done.data["outliving"]
        assert (process["pid"], process["is_training"]) == (int(done.stdout), False)
        assert done.data["end"]["state"] == "running"
        assert b"goes on, without a step so far" in done.stderr
    finally:
        job.kill_group()
