"""`steptime data check -- COMMAND`: the script unmodified, contained, its bugs named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from end_to_end.harness import SCRIPTS, STEPTIME, environment, needs_linux, needs_torch

pytestmark = [
    needs_linux,
    needs_torch,
    pytest.mark.slow("several Pythons import torch, each in a contained child"),
]


def check(folder: Path, *options: str, command: tuple[str, ...]):
    done = subprocess.run(
        [*STEPTIME, "data", "check", "--json", "found.json", *options, "--", *command],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    document = json.loads((folder / "found.json").read_text())
    return done, {one["name"]: one for one in document["data"]["report"]["checks"]}


def test_an_order_that_a_resumed_run_repeats_is_named_with_the_loaders_line(tmp_path):
    script = str(SCRIPTS / "replay.py")

    done, checks = check(
        tmp_path,
        "--checks=resume,reshuffled",
        f"--resume-command={sys.executable} {script} --resume",
        command=(sys.executable, script),
    )

    assert done.returncode == 5, done.stderr
    assert checks["reshuffled"]["outcome"] == "PASS"
    assert checks["resume"]["outcome"] == "FAIL"
    assert "repeats the first epoch's order of 64 samples" in checks["resume"]["finding"]
    assert checks["resume"]["place"].endswith("replay.py:9")
    assert not (tmp_path / "ck.pt").exists()
    assert not list((tmp_path / ".steptime").glob("check-*"))


def test_ranks_that_train_on_the_same_samples_are_named(tmp_path):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2")

    done, checks = check(
        tmp_path, "--checks=ranks_apart", command=(*launcher, str(SCRIPTS / "same_on_ranks.py"))
    )

    assert done.returncode == 5, done.stderr
    assert checks["ranks_apart"]["finding"].startswith("all ranks have the same samples")


def test_a_script_that_fails_is_no_verdict_on_its_data(tmp_path):
    done, checks = check(tmp_path, command=(sys.executable, "-c", "raise SystemExit('no data')"))

    assert (done.returncode, checks) == (3, {})
    assert "exit code 1: no data" in json.loads((tmp_path / "found.json").read_text())["errors"][0][
        "message"
    ]  # fmt: skip
