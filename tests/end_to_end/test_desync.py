"""Real gloo ranks that lose each other: each is named with what it called and where."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SPECIMENS,
    Done,
    needs_linux,
    needs_torch,
    run_both_forked,
    run_folder,
    run_forked,
)
from steptime.record.live import call_ring
from steptime.watch.stalls.process_stacks import find_py_spy

SPECIMEN = SPECIMENS / "desync.py"
pytestmark = [needs_torch, needs_linux]


def place_of(text: str) -> str:
    lines = SPECIMEN.read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}"))
    return f"{SPECIMEN.name}:{line}"


def observe(folder: Path, kind: str, *options: str) -> Done:
    shutil.copy(SPECIMEN, folder)
    return run_forked(
        folder, sys.executable, SPECIMEN.name, "--kind", kind, *options, options=["--live"]
    )


def find_desync(done: Done) -> Mapping[str, Any]:
    findings = done.data["diagnosis"]["findings"]
    return next(found for found in findings if found["cause"] == "desync")


def left_in_memory(folder: Path) -> list[str]:
    start = call_ring.calls_file_start(str(run_folder(folder)))
    return [name for name in os.listdir(call_ring.FOLDER) if name.startswith(start)]


def test_ranks_that_agree_compute_the_same_bits_and_leave_no_record(tmp_path: Path) -> None:
    for name in ("bare", "observed"):
        (tmp_path / name).mkdir()
        shutil.copy(SPECIMEN, tmp_path / name)

    bare, observed = run_both_forked(tmp_path, sys.executable, SPECIMEN.name, "--kind", "none")

    assert (bare.exit_code, observed.exit_code) == (0, 0), observed.stderr.decode()
    assert sorted(bare.stdout.splitlines()) == sorted(observed.stdout.splitlines())
    assert observed.data["num_ranks"] == 2
    assert "guest_failures" not in observed.notes
    assert "desync" not in [one["cause"] for one in observed.data["diagnosis"]["findings"]]
    assert left_in_memory(tmp_path / "observed") == []


def test_ranks_that_gloo_ends_over_a_size_say_what_both_called(tmp_path: Path) -> None:
    done = observe(tmp_path, "size", "--ranks", "3")

    found = find_desync(done)
    evidence = {one["name"]: one["value"] for one in found["evidence"]}
    assert found["names"]["what"] == "shape"
    assert evidence["culprit_rank"] == 1
    assert (found["site"]["file"], found["where"]) == (SPECIMEN.name, place_of("culprit: size"))
    desync = done.data["desync"]
    assert (desync["called"]["elements"], desync["expected"]["elements"]) == (5000, 77)
    assert desync["expected"]["where"] == place_of("first")
    assert "rank 1 called all_reduce #" in " ".join(done.stderr.decode().split())
    assert left_in_memory(tmp_path) == []


@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not installed")
@pytest.mark.slow("a stall is one after ten seconds without a step")
def test_ranks_that_hang_in_different_operations_say_what_both_called(tmp_path: Path) -> None:
    done = observe(tmp_path, "operation", "--ranks", "3", "--culprit", "2")

    found = find_desync(done)
    assert (found["names"]["what"], found["severity"]) == ("operation", "critical")
    assert found["where"] == place_of("culprit: operation")
    (stall,) = done.data["stalls"]
    assert stall["culprits"] == stall["desync"]["culprits"] == [2]
    assert stall["desync"]["expected"]["where"] == place_of("first")
    said = " ".join(done.stderr.decode().split())
    assert f"steptime: the ranks stand still: {found['names']['told']}." in said
    assert f"called broadcast #61 of 9 float32 at {place_of('culprit: operation')}" in said
