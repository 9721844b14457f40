"""`steptime tune` from the outside, on real scripts: how it ends, and what it leaves."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    EVERYWHERE,
    SCRIPTS,
    STEPTIME,
    Job,
    environment,
    needs_linux,
    needs_torch,
    wait_until,
)

pytestmark = [needs_torch, needs_linux]


def start(folder: Path, *words: str, levers: str = "autocast") -> Job:
    folder.mkdir(exist_ok=True)
    shutil.copy(SCRIPTS / "stoppable.py", folder)
    ours = ["tune", "--budget", "60s", "--levers", levers, "--json", "result.json", "--"]
    command = [*STEPTIME, *ours, sys.executable, "stoppable.py", *words]
    return Job(folder, command, environment(folder))


def studies(folder: Path) -> list[Mapping[str, Any]]:
    found = folder.glob(".steptime/studies/*/study.json")
    return [json.loads(path.read_bytes()) for path in found]


@pytest.mark.slow("the walls are probed, and a trial imports torch")
@pytest.mark.core
def test_a_script_that_fails_as_written_ends_with_3_and_its_own_code_is_told(
    tmp_path: Path,
) -> None:
    done = start(tmp_path, "--fail-at", "3").finish()
    assert done.exit_code == 3
    assert done.document is not None
    (error,) = done.document["errors"]
    assert error["code"] == "script_failed"
    assert "exit code 1: RuntimeError: the disk of this script is full" in error["message"]
    assert b"the command fails as written" in done.stdout
    assert done.stdout.splitlines()[-1].strip().startswith(b"steptime run -- ")
    page = Path(done.document["data"]["page"]).read_text()
    assert "RuntimeError: the disk of this script is full" in page
    assert b"trials are " in done.stderr.splitlines()[0]


@pytest.mark.slow("the walls are probed")
def test_a_training_that_outlives_its_command_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time; time.sleep(600)")
    command = f"{sys.executable} {script} > /dev/null 2>&1 & sleep 1"
    words = [*STEPTIME, "tune", "--levers", "autocast", "--", "sh", "-c", command]
    done = Job(tmp_path, words, environment(tmp_path)).finish()
    assert done.exit_code == 3
    said = " ".join(done.stdout.decode().split())
    assert "the command cannot be tried: the command returned while its training went on" in said
    assert "steptime tune -- python" in said


def test_a_command_that_is_not_there_starts_nothing(tmp_path: Path) -> None:
    command = [*STEPTIME, "tune", "--", "no-such-command"]
    done = Job(tmp_path, command, environment(tmp_path)).finish()
    assert (done.exit_code, done.stdout) == (127, b"")
    assert b"`no-such-command` was not found" in done.stderr
    assert not (tmp_path / ".steptime").exists()


@pytest.mark.slow("a study up to its first trial, twice")
@pytest.mark.core
def test_ctrl_c_ends_with_what_was_found_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = ("--sleep", "0.002")
    job = start(tmp_path, *words, levers=EVERYWHERE)
    wait_until(lambda: any(study.get("trials") for study in studies(tmp_path)))
    job.process.send_signal(signal.SIGINT)
    done = job.finish()
    assert done.exit_code == 130
    assert done.data["is_interrupted"]
    assert done.data["trials"]
    assert b"interrupted: " in done.stdout
    assert done.document is not None
    assert "Interrupted" in Path(done.document["data"]["page"]).read_text()

    again = start(tmp_path, *words, levers=EVERYWHERE)
    wait_until(lambda: any(not s["is_interrupted"] for s in studies(tmp_path) if "trials" in s))
    again.process.send_signal(signal.SIGINT)
    assert b"this continues the study that was cut short" in again.finish().stderr
    assert len(studies(tmp_path)) == 1
