"""`steptime data bench`: an unmodified script in contained children, reported and written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from end_to_end.harness import LIMIT_S, SPECIMENS, STEPTIME, needs_linux, needs_torch


def bench(folder, *words):
    argv = [*STEPTIME, "data", "bench", "--window", "0.1s", "--json", "b.json", "--", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    return done, json.loads((folder / "b.json").read_text())


@needs_torch
@needs_linux
@pytest.mark.slow("three contained children that import torch")
def test_the_loader_of_a_script_is_measured_and_nothing_of_it_stays(tmp_path):
    pytest.importorskip("PIL")
    script = str(SPECIMENS / "planted_loader.py")
    done, document = bench(tmp_path, sys.executable, script, "--plant", "transform")

    assert done.returncode == 0, done.stderr
    found = document["data"]["bench"]
    assert (document["command"], document["status"]) == ("data", "ok")
    assert found["bottleneck"] == "transform"
    assert "The step waits for transform" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(("next", " " * 11))
    page = Path(document["data"]["page"]).read_text()
    assert "planted_loader.py" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == [".steptime", "b.json"]


@needs_torch
@needs_linux
def test_a_command_that_fails_says_so(tmp_path):
    done, document = bench(tmp_path, sys.executable, "-c", "import torch; raise SystemExit('gone')")

    assert done.returncode == 3, done.stderr
    assert document["errors"][0]["code"] == "command_failed"
    assert "exit code 1: gone" in done.stdout
