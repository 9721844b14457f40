"""Whatever a script does to its own process: what was seen of it is kept, or said to be lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    STEPTIME,
    Done,
    Job,
    environment,
    names_in,
    needs_linux,
    needs_torch,
    rows,
    run_both,
    run_folder,
    run_forked,
    show,
    start_observed,
    updates,
    wait_until,
)

pytestmark = [needs_torch, needs_linux]

MIB = 1 << 20
PROMISED_S = 0.2
"""A step that ended this long before the script's last act is on disk."""


def seen(folder: Path) -> list[int]:
    """The numbers of the steps in the one stream of the one run, which begins with a backward."""
    return [row[0] - 1 for row in updates(run_folder(folder) / "rank-0.jsonl")]


# -- kills


def logged(folder: Path) -> list[tuple[int, float]]:
    """The steps that the script itself noted, with the time each ended."""
    path = folder / "steps.log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(line.split()[0]), float(line.split()[1])) for line in lines]


def train_for_a_while(folder: Path) -> Job:
    job = start_observed(folder, "python", SCRIPTS / "steady.py")
    wait_until(lambda: len(logged(folder)) >= 40)
    return job


def promised(folder: Path, killed_at: float) -> list[int]:
    """The steps that must be on disk, and there are some.

    On a busy machine, the script may have waited for a core when it was killed, so that no act of
    its own could write: the last step that it noted began after the one before it had ended.
    """
    ends = [row for row in logged(folder) if row[1] < killed_at]
    last_act = ends[-2][1]
    found = [number for number, ended_at in ends if ended_at < last_act - PROMISED_S]
    assert len(found) > 10
    return found


def child_pid(folder: Path) -> int:
    (pid,) = {line["pid"] for line in rows(run_folder(folder) / "processes.jsonl")}
    return int(pid)


def test_a_killed_script_leaves_every_step_but_the_last_moment(tmp_path: Path) -> None:
    job = train_for_a_while(tmp_path)
    killed_at = time.time()
    os.kill(child_pid(tmp_path), signal.SIGKILL)
    done = job.finish()
    assert done.exit_code == -signal.SIGKILL
    assert set(promised(tmp_path, killed_at)) <= set(seen(tmp_path))
    assert "ended_abruptly" in done.notes
    assert "did not reach its end" in done.stderr.decode()
    assert show(tmp_path)["num_steps"] == done.data["num_steps"] >= len(seen(tmp_path))


def test_our_death_loses_nothing_and_ends_nothing(tmp_path: Path) -> None:
    job = train_for_a_while(tmp_path)
    try:
        job.process.kill()
        job.process.wait()
        before = len(logged(tmp_path))
        wait_until(lambda: len(logged(tmp_path)) >= before + 30)
        assert show(tmp_path)["end"]["state"] == "running"
        killed_at = time.time()
        os.kill(child_pid(tmp_path), signal.SIGKILL)
        must_be_there = promised(tmp_path, killed_at)
        assert len(must_be_there) > before
        assert set(must_be_there) <= set(seen(tmp_path))
        data = show(tmp_path)
        assert data["num_steps"] >= len(must_be_there)
        assert data["end"]["state"] in ("running", "unknown")
    finally:
        job.close()


# -- ends


@pytest.mark.parametrize(
    ("act", "exit_code", "is_abrupt"),
    [("leave", 5, True), ("crash", -signal.SIGSEGV, True), ("raise_error", 1, False)],
)
@pytest.mark.slow("the end of an interpreter, bare and observed")
def test_a_script_that_ends_badly_ends_as_without_us(
    tmp_path: Path, act: str, exit_code: int, *, is_abrupt: bool
) -> None:
    bare, observed = run_both(tmp_path, "python", SCRIPTS / "steady.py", "40", act)
    assert observed.exit_code == bare.exit_code == exit_code
    assert observed.stdout == bare.stdout
    assert observed.stderr.startswith(bare.stderr)
    found = seen(tmp_path / "observed")
    if is_abrupt:
        assert "ended_abruptly" in observed.notes
        assert set(range(10)) <= set(found)  # 40 steps take 0.4 s and more
    else:
        assert found == list(range(40))


@pytest.mark.slow("the end of an interpreter is waited for, bare and observed")
def test_a_thread_that_trains_on_after_the_main_one_is_recorded_to_its_end(tmp_path: Path) -> None:
    command = ("python", SCRIPTS / "steady.py", "20", "train_on_in_a_thread")
    bare, observed = run_both(tmp_path, *command)
    assert observed.exit_code == bare.exit_code == 0
    assert observed.stdout == bare.stdout
    assert "several_threads_stepped" in observed.notes
    threads = [row[1] for row in updates(run_folder(tmp_path / "observed") / "rank-0.jsonl")]
    assert (threads.count(0), threads.count(1)) == (20, 60)
    assert "ended_abruptly" not in observed.notes


# -- what a script does to its own process


@pytest.fixture(scope="module")
def rude(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done, Done]:
    folder = tmp_path_factory.mktemp("rude")
    return folder, *run_both(folder, "python", SCRIPTS / "rude.py")


def told(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "told.json").read_text())


@pytest.mark.parametrize("act", names_in("rude.py", "ACTS"))
@pytest.mark.slow("every rude act in turn, bare and observed")
@pytest.mark.core
def test_the_steps_after_this_act_are_recorded(rude: tuple[Path, Done, Done], act: str) -> None:
    folder, _, _ = rude
    first, last, is_right = told(folder / "observed")["acts"][act]
    assert is_right
    # All but the step after the pause, which is written with those of the next act.
    assert set(range(first, last - 1)) <= set(seen(folder / "observed"))


def test_a_rude_script_trains_and_ends_as_without_us(rude: tuple[Path, Done, Done]) -> None:
    folder, bare, observed = rude
    assert told(folder / "observed") == told(folder / "bare")
    assert observed.exit_code == bare.exit_code == 1
    assert observed.stdout == bare.stdout == b"caught by the script: the end\n"


def test_what_could_not_be_written_is_said(rude: tuple[Path, Done, Done]) -> None:
    folder, _, observed = rude
    num_updates = told(folder / "observed")["num_updates"]
    found = seen(folder / "observed")
    assert int(observed.notes["lost_updates"]["count"]) == num_updates - len(found) > 0
    assert len(found) == len(set(found))
    assert "guest_failures" not in observed.notes
    assert "ended_abruptly" not in observed.notes


def test_a_turned_clock_does_not_reach_the_record(rude: tuple[Path, Done, Done]) -> None:
    folder, _, observed = rude
    stream = rows(run_folder(folder / "observed") / "rank-0.jsonl")
    ends = [row[4] for line in stream if line["k"] == "u" for row in line["rows"]]
    assert ends == sorted(ends)
    (end,) = [line for line in stream if line["k"] == "end"]
    assert ends[-1] <= end["t"] < ends[-1] + 60e9
    assert observed.data["duration_s"] > 0


def test_odd_optimizers_lose_no_update_and_count_none_twice(tmp_path: Path) -> None:
    done = run_forked(tmp_path, "python", SCRIPTS / "odd_optimizers.py")
    assert done.data["num_optimizer_updates"] == int(done.stdout)
    assert "guest_failures" not in done.notes


# -- disks and folders


def may_mount() -> bool:
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    has_unshare = shutil.which("unshare") is not None
    return has_unshare and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow("a disk is filled and runs on as long as a flush takes")
def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("no small disk can be mounted here (user namespaces are off)")
    small, result = tmp_path / "small", tmp_path / "result.json"
    small.mkdir()
    script = (
        f"mount -t tmpfs -o size=512k tmpfs {small} && cd {small} && "
        f"{' '.join(STEPTIME)} run --json {result} -- python {SCRIPTS / 'full.py'} {small}; "
        f"code=$?; rm {small}/ballast; cp -r {small}/.steptime {tmp_path}; exit $code"
    )
    job = Job(tmp_path, ["unshare", "-rm", "sh", "-c", script], environment(tmp_path))
    done = job.finish()
    assert done.exit_code == 0, done.stderr.decode()
    found = set(seen(tmp_path))
    assert set(range(19)) <= found
    assert set(range(220, 259)) <= found
    assert len(set(range(20, 220)) - found) > 50
    assert max(found) < 460 - 50
    assert int(done.notes["lost_updates"]["count"]) == max(found) + 1 - len(found)
    assert "ended_abruptly" in done.notes
    assert "Updates that are not in the record" in done.stderr.decode()
    assert done.stderr.count(b"No space left on device") == 1
    assert done.data["num_steps"] == len(found)
    bare = subprocess.check_output(
        [sys.executable, SCRIPTS / "full.py", tmp_path], env=environment(tmp_path)
    )
    assert done.stdout == bare


@pytest.mark.slow("a true process without a home, in a folder of the kernel")
def test_without_a_home_and_a_writable_folder_the_run_is_kept_elsewhere(tmp_path: Path) -> None:
    env = environment(tmp_path, HOME="/nowhere/at/all")
    result = tmp_path / "result.json"
    words = [*STEPTIME, "run", "--json", str(result), "--", "python", str(SCRIPTS / "tiny.py")]
    done = subprocess.run(words, cwd="/proc", env=env, capture_output=True)
    assert done.returncode == 0
    data = json.loads(result.read_text())["data"]["measurement"]
    assert data["num_steps"] == 5
    assert b"cannot be written" in done.stderr
    assert list((tmp_path / "tmp").glob(f"steptime-*/.steptime/runs/{data['run_id']}"))


@pytest.mark.slow("a true process that trains on for a while")
def test_a_run_folder_deleted_in_mid_run_does_not_stop_the_training(tmp_path: Path) -> None:
    job = start_observed(tmp_path, "python", SCRIPTS / "steady.py", "80")
    wait_until(lambda: len(logged(tmp_path)) >= 20)
    shutil.rmtree(tmp_path / ".steptime")
    done = job.finish()
    assert done.exit_code == 0
    assert len(logged(tmp_path)) == 80
    assert b"was deleted while the command ran" in done.stderr
    assert not (tmp_path / ".steptime").exists()


@pytest.mark.slow("two runs side by side")
def test_two_runs_at_once_in_one_store_keep_apart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    jobs = []
    for name, num_steps in (("a", "30"), ("b", "40")):
        words = [*STEPTIME, "run", "--store", str(tmp_path), "--json", "result.json", "--"]
        words += ["python", str(SCRIPTS / "steady.py"), num_steps]
        jobs.append(Job(tmp_path / name, words, environment(tmp_path)))
    counts = {}
    for job in jobs:
        done = job.finish()
        assert done.exit_code == 0
        counts[done.data["run_id"]] = done.data["num_steps"]
    assert sorted(counts.values()) == [30, 40]
    for run_id, num_steps in counts.items():
        assert show(tmp_path, run_id)["num_steps"] == num_steps


# -- long runs


@pytest.mark.slow("two hundred thousand steps, twice")
def test_two_hundred_thousand_steps_stay_small(tmp_path: Path) -> None:
    bare, observed = run_both(tmp_path, "python", SCRIPTS / "many.py")
    grown = int(observed.stdout) - int(bare.stdout)
    assert grown < 20 * MIB
    files = run_folder(tmp_path / "observed").rglob("*")
    assert sum(path.stat().st_size for path in files) < 30 * MIB
    assert observed.data["num_steps"] == 200_000
    assert "lost_updates" not in observed.notes
