"""A run that stands still is seen from outside: where each rank stands, and who waits for whom."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from end_to_end.harness import (
    LIMIT_S,
    SPECIMENS,
    STEPTIME,
    environment,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    start_observed,
    wait_until,
)
from steptime.watch.stalls.process_stacks import find_py_spy

SPECIMEN = SPECIMENS / "waits_for_ever.py"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

needs_py_spy = pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not installed")


def line_of(text: str) -> int:
    lines = SPECIMEN.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@needs_torch
@needs_linux
@needs_py_spy
@pytest.mark.slow("a stall is one after ten seconds without a step")
def test_a_rank_that_waits_for_ever_is_named_with_its_line_and_the_other_waits_for_it(
    tmp_path: Path,
) -> None:
    shutil.copy(SPECIMEN, tmp_path)
    shutil.copy(SPECIMENS / "_leave.py", tmp_path)
    job = start_observed(tmp_path, *TORCHRUN, SPECIMEN.name)
    try:
        wait_until(lambda: any((tmp_path / ".steptime").glob("runs/*/stalls.jsonl")))
        wait_until(lambda: len(rows(run_folder(tmp_path) / "stalls.jsonl")) == 2)
        now = subprocess.run(
            [*STEPTIME, "attach", "last"],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert job.process.poll() is None
        job.process.send_signal(signal.SIGTERM)
        done = job.finish()
    finally:
        job.close()

    waiting = f"rank 0 waits in a collective at {SPECIMEN.name}:{line_of('loss.backward()')}"
    line = f"{SPECIMEN.name}:{line_of('# ailment')}"
    assert now.stdout.startswith(f"stacks     {waiting}, for rank 1\n"), now.stderr
    assert f"rank 1 waits for a lock, a queue or a process at {line}\n" in now.stdout
    assert "wait_in_vain" in now.stdout
    (stall,) = done.data["stalls"]
    assert stall["culprits"] == [1]
    assert [one["waits_in"] for one in stall["ranks"]] == ["collective", "lock"]
    assert stall["ranks"][1]["where"] == line
    assert stall["duration_s"] is None
    first = done.data["diagnosis"]["findings"][0]
    assert (first["cause"], first["severity"]) == ("stalled_rank", "critical")
    assert first["where"] == line
    assert "the other ranks waited for rank 1" in " ".join(done.stderr.decode().split())
