"""`run --profile` records a few steady steps of a real training, and no more than that."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    LIMIT_S,
    SCRIPTS,
    STEPTIME,
    by_name,
    environment,
    fork_bare,
    has_gpu,
    needs_linux,
    needs_torch,
    run_folder,
    run_forked,
    run_observed,
    show,
    updates,
)

pytestmark = [needs_torch, needs_linux]

DISTURBED = 2
FIRST = 5
"""Early, so that the scripts can be short."""


@dataclass(frozen=True)
class Profiled:
    """A run that was profiled."""

    folder: Path
    exit_code: int
    stdout: str
    stderr: str
    data: Mapping[str, Any]

    @property
    def rank(self) -> Mapping[str, Any]:
        (found,) = self.data["profile"]["ranks"]
        return found

    def events(self, rank: int = 0) -> list[dict[str, Any]]:
        path = run_folder(self.folder) / "profile" / f"rank-{rank}.pt.trace.json.gz"
        found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        return found


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs the script in one way under `run --profile`, once."""

    @cache
    def run(way: str, *options: str, launcher: tuple[str, ...] = ("python",)) -> Profiled:
        folder = tmp_path_factory.mktemp(way)
        command = (*launcher, SCRIPTS / "profiled.py", way)
        done = run_forked(folder, *command, options=("--profile", str(FIRST), *options))
        out, err = done.stdout.decode(), done.stderr.decode()
        return Profiled(folder, done.exit_code, out, err, done.data)

    return run


def test_the_classes_of_a_training_and_python_add_up_to_the_profiled_steps(profile: Any) -> None:
    done = profile("plain")

    assert done.exit_code == 0, done.stderr
    host = done.rank["host"]
    classes = {one["name"]: one for one in host["classes"]}
    assert {"matmul", "optimizer", "normalization", "embedding", "copy", "other"} <= set(classes)
    together = sum(one["time_s"] for one in host["classes"]) + host["python_s"]
    assert together == pytest.approx(host["window_s"])
    assert 0 < host["loader_s"] < host["python_s"]
    assert host["threads"][0]["name"] == "training"
    assert done.rank["devices"] == []
    products = [one for one in host["operators"] if one["kind"] == "matmul"]
    assert products
    assert any(one["shapes"] for one in products)


def test_the_trace_is_left_as_its_readers_expect_it(profile: Any) -> None:
    events = profile("plain").events()

    steps = [e["name"] for e in events if e["name"].startswith("ProfilerStep#")]
    assert steps == [f"ProfilerStep#{FIRST + i}" for i in range(3)]
    updates = [e for e in events if e["name"] == "Optimizer.step#AdamW.step"]
    assert len(updates) == 3
    assert {"aten::addmm", "aten::embedding"} <= {e["name"] for e in events}


def test_nothing_profiled_is_in_the_steady_window(profile: Any) -> None:
    done = profile("plain")

    marks = [row[6] for row in updates(run_folder(done.folder) / "rank-0.jsonl")]
    disturbed = [number for number, mark in enumerate(marks) if mark == DISTURBED]
    warming, writing = FIRST - 1, FIRST + 3
    assert set(range(warming, writing + 1)) <= set(disturbed)
    assert (done.rank["first_step"], done.rank["num_steps"]) == (FIRST, 3)
    assert done.data["steady"]["num_steps"] <= 40 - len(disturbed)


def test_the_work_of_a_step_is_counted_all_the_same(profile: Any) -> None:
    assert profile("plain").data["work"]["total"] > 0


def test_the_report_shows_the_profile_and_show_finds_it_again(profile: Any) -> None:
    done = profile("plain")

    assert f"steps {FIRST} to {FIRST + 2} under torch.profiler" in done.stderr
    assert "profile/rank-0.pt.trace.json.gz" in done.stderr
    assert show(done.folder)["profile"] == done.data["profile"]


def test_the_training_goes_on_as_without_a_profiler(profile: Any, tmp_path: Path) -> None:
    bare = fork_bare(tmp_path, "python", SCRIPTS / "profiled.py", "plain").finish()

    assert profile("plain").stdout == bare.stdout.decode()


def test_nothing_of_it_is_loaded_where_nobody_asked(tmp_path: Path) -> None:
    script = "import sys, torch; print([n for n in sys.modules if n.endswith('.window')])"

    assert run_observed(tmp_path, "python", "-c", script).stdout == b"[]\n"


def test_stacks_name_the_functions_of_the_script(profile: Any) -> None:
    host = profile("plain", "--profile-stacks").rank["host"]

    places = {one["where"] for one in host["operators"]}
    assert any(place and "loss_of" in place for place in places)


def test_a_script_that_fails_in_the_window_keeps_its_exit_code_and_whole_steps(
    profile: Any,
) -> None:
    done = profile("fails")

    assert done.exit_code == 1
    assert "a mistake of the script's own" in done.stderr
    assert (done.rank["num_steps"], done.rank["is_cut"]) == (2, True)
    assert done.data["errors"][0]["type"] == "ValueError"


def test_a_script_that_ends_inside_the_window_leaves_its_whole_steps(profile: Any) -> None:
    done = profile("ends_inside")

    assert done.exit_code == 0
    assert (done.rank["num_steps"], done.rank["is_cut"]) == (2, True)
    assert done.rank["host"]["window_s"] > 0


def test_a_script_that_ends_before_the_window_says_so(profile: Any) -> None:
    done = profile("short")

    assert done.exit_code == 0
    assert done.data["profile"]["missing"] == "too_few_updates"
    assert f"the script made 3 steps; it was to begin at step {FIRST}" in done.stderr


def test_a_process_that_leaves_in_the_window_keeps_its_exit_code(profile: Any) -> None:
    done = profile("leaves")

    assert done.exit_code == 7
    assert done.data["profile"]["missing"] in ("not_said", "no_steps")  # by what was on disk


@pytest.mark.parametrize("way", ["own_profiler", "own_profiler_later"])
def test_a_script_with_a_profiler_of_its_own_keeps_it_alone(profile: Any, way: str) -> None:
    done = profile(way)

    assert done.exit_code == 0, done.stderr
    assert done.data["profile"]["missing"] == "own_profiler"


def test_a_window_with_an_evaluation_is_taken_again(profile: Any) -> None:
    done = profile("evaluates")

    assert done.exit_code == 0
    assert done.rank["first_step"] > FIRST
    assert not done.rank["is_mixed"]


def test_a_compiled_script_and_one_with_workers_are_profiled_too(profile: Any) -> None:
    for way in ("compiled", "workers"):
        done = profile(way)
        assert done.exit_code == 0, done.stderr
        assert {one["name"] for one in done.rank["host"]["classes"]} >= {"matmul", "optimizer"}


@pytest.mark.slow("torchrun and two ranks, profiled")
def test_each_rank_has_a_trace_and_its_exchange(profile: Any) -> None:
    launcher = ("torchrun", "--nproc-per-node", "2")
    done = profile("ranks", launcher=launcher)

    assert done.exit_code == 0, done.stderr
    ranks = done.data["profile"]["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    for number, rank in enumerate(ranks):
        assert rank["missing"] is None
        classes = {one["name"]: one["time_s"] for one in rank["host"]["classes"]}
        assert classes["communication"] > 0
        assert any(e["name"] == "gloo:all_reduce" for e in done.events(number))


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="there is no CUDA device")
def test_the_time_of_a_device_is_busy_or_idle_for_a_reason(profile: Any) -> None:
    done = profile("cuda")

    assert done.exit_code == 0, done.stderr
    (device,) = done.rank["devices"]
    together = sum(one["time_s"] for one in device["classes"]) + device["idle_s"]
    assert together == pytest.approx(device["window_s"])
    assert device["host_wait_s"] > 0  # steps as small as these leave it waiting
    assert {"matmul", "optimizer"} <= {one["name"] for one in device["classes"]}
    assert all(one["launched_by"] for one in device["kernels"] if one["kind"] == "matmul")
    assert done.rank["host"]["sync_s"] > 0  # the loss is read in each step


NSYS = """#!/bin/sh
printf '%s\\n' "$@" > "$NOTED"
shift
while :; do
    case $1 in
        --output=*) touch "${1#--output=}.nsys-rep"; shift ;;
        -*) shift ;;
        *) exec "$@" ;;
    esac
done
"""
"""Notes its arguments, leaves a file, and becomes the command, as far as we know Nsight Systems."""


@pytest.mark.slow("a true process behind a made-up tool")
@pytest.mark.core
def test_nsight_systems_is_put_around_the_command(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nsys"
    tool.parent.mkdir()
    tool.write_text(NSYS)
    tool.chmod(0o755)
    variables = environment(tmp_path)
    variables |= {"PATH": f"{tool.parent}:{variables['PATH']}", "NOTED": str(tmp_path / "noted")}
    words = [*STEPTIME, "run", "--json", "result.json", "--nsys", "5", "--"]
    words += ["python", str(SCRIPTS / "profiled.py"), "fails"]

    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, timeout=LIMIT_S)

    assert done.returncode == 1  # the script's own
    noted = (tmp_path / "noted").read_text().splitlines()
    assert noted[0] == "profile"
    assert {"--capture-range=cudaProfilerApi", "--capture-range-end=stop"} <= set(noted)
    assert noted[-3:] == words[-3:]
    data = by_name(json.loads((tmp_path / "result.json").read_text())["data"])
    assert data["command"] == words[-3:]
    assert data["profile"]["file"] == "profile/nsys.nsys-rep"
    assert data["profile"]["wish"]["tool"] == "nsys"
    if not has_gpu():
        assert data["profile"]["missing"] == "no_device"
        assert "the script used no CUDA device" in done.stderr.decode()
