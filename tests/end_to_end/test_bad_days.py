"""What goes wrong on bad days: one clear message, the right exit code, and nothing is lost."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    SPECIMENS,
    Done,
    ask_steptime,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
    run_observed,
    run_truly,
    updates,
)

pytestmark = needs_linux

Damage = Callable[[Path], object]


def said_by_us(done: Done) -> str:
    """What stands on stderr after the command's own words: a report or one paragraph."""
    lines = [line for line in done.stderr.decode().splitlines() if "page of this run" not in line]
    begins = ("steptime", "error  ", "ended  ", "diagnosis  ", "machine  ")
    place = next(i for i, line in enumerate(lines) if line.startswith(begins))
    return " ".join(" ".join(lines[place:]).split())


def errors_of(done: Done) -> list[tuple[str, str]]:
    assert done.document is not None
    return [(error["code"], error["message"]) for error in done.document["errors"]]


# -- a command that is no training


def test_a_command_that_is_no_python_is_one_line(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "ls", "/")
    assert done.exit_code == 0
    assert said_by_us(done).startswith("steptime: the command finished without a step;")
    assert "No Python process was seen" in said_by_us(done)
    assert done.document is not None
    assert (done.document["status"], done.data["num_steps"]) == ("ok", 0)


def test_a_shell_that_fails_keeps_its_code(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "bash", "-c", "echo mine >&2; exit 3")
    assert done.exit_code == 3
    assert "failed with exit code 3 before its first step" in said_by_us(done)
    assert errors_of(done) == [("script_failed", "the script ended with exit code 3")]
    assert done.data["notes"][0]["code"] == "no_python_seen"


# -- a command that dies


@needs_torch
def test_an_exception_in_the_middle_leaves_every_step_and_the_report(tmp_path: Path) -> None:
    done = run_forked(tmp_path, "python", SCRIPTS / "dying.py", "40", "fail")
    assert done.exit_code == 1
    assert b"ValueError: a bad batch" in done.stderr
    assert "failed with exit code 1" in said_by_us(done)
    assert done.data["num_steps"] == 40
    assert errors_of(done) == [("script_failed", "the script ended with exit code 1")]


@needs_torch
def test_a_segmentation_fault_in_the_middle_leaves_all_but_the_last_moment(tmp_path: Path) -> None:
    done = run_forked(tmp_path, "python", SCRIPTS / "dying.py", "60", "crash")
    assert done.exit_code == -signal.SIGSEGV
    assert "killed by SIGSEGV" in said_by_us(done)
    assert 30 <= done.data["num_steps"] <= 60  # 60 steps take 0.6 s and more
    assert "ended_abruptly" in done.notes
    assert errors_of(done) == [("script_killed", "the script was killed by signal 11")]


@needs_torch
def test_one_that_crashes_at_once_is_not_said_to_have_made_no_step(tmp_path: Path) -> None:
    done = run_forked(tmp_path, "python", SCRIPTS / "dying.py", "1", "crash")
    assert done.exit_code == -signal.SIGSEGV
    assert "was killed by SIGSEGV before a step was recorded" in said_by_us(done)
    assert "last 0.2 s" in said_by_us(done)
    assert set(done.notes) == {"unwritten_steps"}


@needs_torch
@pytest.mark.slow("a limit of memory needs a process of its own")
def test_memory_that_runs_out_in_torch_leaves_every_step(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "python", SCRIPTS / "dying.py", "40", "take_all_memory")
    assert done.exit_code == 1
    assert b"can't allocate memory" in done.stderr
    assert done.data["num_steps"] >= 40
    written = [row for row in updates(run_folder(tmp_path) / "rank-0.jsonl") if row[2] >= 0]
    assert len(written) == done.data["num_steps"]
    (error,) = done.data["errors"]
    assert (error["is_memory"], error["type"]) == (True, "RuntimeError")
    assert error["where"].startswith(str(SCRIPTS / "dying.py"))
    assert done.data["diagnosis"]["kind"] == "MEMORY_CAPACITY_BOUND"
    assert "ran out of memory and died" in said_by_us(done)
    assert done.data["host"]["min_available_bytes"] > 0


@needs_torch
def test_a_child_killed_as_the_kernel_does_leaves_its_steps_and_its_memory(tmp_path: Path) -> None:
    wait = "until [ $(wc -l < steps.log) -gt 60 ]; do sleep 0.1; done"
    script = f"touch steps.log; python {SCRIPTS}/steady.py & {wait}; kill -9 $!; wait $!"
    done = run_observed(tmp_path, "bash", "-c", script)
    assert done.exit_code == 137  # the shell's own
    assert "failed with exit code 137" in said_by_us(done)
    assert done.data["num_steps"] >= 40
    assert "ended_abruptly" in done.notes
    samples = [line for line in rows(run_folder(tmp_path) / "rank-0.jsonl") if line["k"] == "m"]
    assert samples[-1]["rss"] > 1 << 20
    assert done.data["host"]["num_oom_kills"] in (None, 0)  # it was not the kernel this time


@needs_torch
def test_a_killed_command_without_a_window_still_tells_of_the_machine(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "bash", "-c", "sleep 0.3; kill -9 $$")
    assert done.exit_code == -signal.SIGKILL
    assert "the command was killed by SIGKILL before its first step" in said_by_us(done)
    assert done.data["host"]["num_samples"] >= 1


# -- a torch that is too old


def test_training_with_an_old_torch_goes_on_unwatched(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    (package / "optim").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '2.1.2+cu118'\nfrom torch import optim\n")
    (package / "optim" / "__init__.py").write_text("def train(): return 'trained'\n")
    (tmp_path / "x.py").write_text("import torch.optim\nprint(torch.optim.train())\n")
    done = run_truly(tmp_path, "python", "x.py")
    assert (done.exit_code, done.stdout) == (0, b"trained\n")
    assert "torch 2.1.2+cu118 is too old to be watched; 2.4 or newer is needed" in said_by_us(done)
    assert done.notes == {"old_torch": {"versions": "2.1.2+cu118"}}


# -- processes without the guest


@needs_torch
@pytest.mark.slow("the processes are looked at once they are some seconds old")
def test_pythons_that_keep_us_out_beside_one_that_does_not_are_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time; time.sleep(6)\n")
    lines = f"python -I train.py & env -i $(which python) train.py & python {SCRIPTS}/tiny.py; wait"
    done = run_observed(tmp_path, "bash", "-c", lines)
    assert (done.exit_code, done.data["num_steps"]) == (0, 5)
    assert done.notes["python_without_guest"]["count"] == 2
    assert "Steptime did not get into these Python processes" in said_by_us(done)


def test_a_python_that_keeps_us_out_is_named_in_the_place_of_none_at_all(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "python", "-I", "-c", "import time; time.sleep(4)")
    assert list(done.notes) == ["python_without_guest"]


@needs_torch
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
@pytest.mark.slow("the processes are looked at once they are some seconds old")
def test_helpers_of_multiprocessing_are_not_missed(tmp_path: Path, context: str) -> None:
    text = f"""\
import multiprocessing, time, torch

if __name__ == "__main__":
    context = multiprocessing.get_context("{context}")
    with context.Pool(2) as pool:
        pool.map(time.sleep, [4, 4])
"""
    (tmp_path / "train.py").write_text(text)
    done = run_observed(tmp_path, "python", "train.py")
    assert done.exit_code == 0, done.stderr.decode()
    assert "python_without_guest" not in done.notes


# -- launchers inside launchers

TORCHRUN = "torchrun --standalone --nproc-per-node"


def launch(folder: Path, line: str) -> Done:
    (folder / "train.sh").write_text(f"set -e\n{line}\n")
    done = run_observed(folder, "bash", "train.sh")
    assert done.exit_code == 0, done.stderr.decode()
    return done


def ranks_of(done: Done) -> list[tuple[int, int, int]]:
    """Rank, world size and steps of each."""
    return [(r["rank"], r["world_size"], r["num_steps"]) for r in done.data["ranks"]]


@needs_torch
@pytest.mark.slow("torchrun, two ranks, and a Python from each: five imports of torch")
def test_pythons_that_ranks_start_are_no_ranks(tmp_path: Path) -> None:
    done = launch(tmp_path, f"{TORCHRUN} 2 {SCRIPTS}/helped.py")
    assert ranks_of(done) == [(0, 2, 6), (1, 2, 6)]
    assert done.notes == {}


@needs_torch
@pytest.mark.slow("a launcher in a launcher: five imports of torch")
def test_a_launcher_under_torchrun_is_no_rank_and_its_processes_are(tmp_path: Path) -> None:
    done = launch(tmp_path, f"{TORCHRUN} 1 {SCRIPTS}/nested.py")
    assert ranks_of(done) == [(0, 2, 6), (1, 2, 6)]
    pids = {int(line.split()[1]) for line in done.stdout.decode().splitlines()}
    assert {rank["pid"] for rank in done.data["ranks"]} == pids


@needs_torch
@pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")
@pytest.mark.slow("accelerate imports torch twice, and much more")
def test_accelerate_inside_a_shell_is_one_rank(tmp_path: Path) -> None:
    options = "--cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"
    done = launch(tmp_path, f"accelerate launch {options} {SCRIPTS}/accelerated.py")
    assert ranks_of(done) == [(0, 1, 16)]


# -- what the source tells


@needs_torch
def test_an_accumulation_that_never_divides_is_found_in_the_source(tmp_path: Path) -> None:
    done = run_forked(tmp_path, "python", SPECIMENS / "accumulation_loss.py")
    found = json.loads((run_folder(tmp_path) / "source.json").read_bytes())
    ((code, file, line, text),) = found["suspicions"]
    assert (code, file) == ("accumulation_loss", str(SPECIMENS / "accumulation_loss.py"))
    assert (SPECIMENS / "accumulation_loss.py").read_text().splitlines()[line - 1].strip() == text
    assert done.exit_code == 0


# -- a store that is damaged


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What `steptime show` said."""

    exit_code: int
    stderr: str
    document: Mapping[str, Any]

    @property
    def error(self) -> tuple[str, str, str]:
        (error,) = self.document["errors"]
        return error["code"], error["message"], error["hint"]

    @property
    def notes(self) -> dict[str, Any]:
        return {
            note["code"]: note["facts"] for note in self.document["data"]["measurement"]["notes"]
        }


def show(folder: Path, run: str = "last") -> Shown:
    done = ask_steptime(folder, "show", run, "--json")
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.exit_code
    return Shown(exit_code=done.exit_code, stderr=done.stderr.decode(), document=document)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run of 60 steps, without what was made of it."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("whole")
    done = run_forked(folder, "python", SCRIPTS / "steady.py", "60")
    assert done.exit_code == 0
    for name in ("measurement.json", "diagnosis.json"):
        (run_folder(folder) / name).unlink()
    (folder / ".steptime" / "index.sqlite").unlink()
    return folder


@pytest.fixture
def damaged(tmp_path: Path, whole: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(whole / ".steptime", tmp_path / ".steptime")
    return tmp_path


def replace_command(**fields: object) -> Damage:
    def damage(run: Path) -> None:
        path = run / "command.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))

    return damage


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def content_of(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files if "index" not in p.name}


COMMANDS: dict[str, tuple[Damage, str]] = {
    "missing": (lambda run: (run / "command.json").unlink(), "no file command.json is in it"),
    "a folder": (lambda run: as_folder(run / "command.json"), "no file command.json is in it"),
    "empty": (lambda run: (run / "command.json").write_text(""), "is not JSON"),
    "rubbish": (lambda run: (run / "command.json").write_bytes(b"\x93\0\xff"), "is not JSON"),
    "an array": (
        lambda run: (run / "command.json").write_text("[]"),
        "must be `object`, got []",
    ),
    "of a wrong type": (replace_command(argv=["python", 3]), "argv[1]` must be `str`, got 3"),
    "of a later schema": (replace_command(schema=2), "schema 2 is newer than this Steptime"),
    "another program's": (
        lambda run: (run / "command.json").write_text('{"lr": 3}'),
        "not written by Steptime",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_damaged_command_is_said_and_nothing_is_touched(damaged: Path, case: str) -> None:
    damage, says = COMMANDS[case]
    damage(run_folder(damaged))
    before = content_of(damaged / ".steptime")
    shown = show(damaged)
    code, message, hint = shown.error
    assert (shown.exit_code, code) == (1, "damaged_run")
    assert says in message
    assert "command.json" in message
    assert shown.stderr == f"error: {message}\n       {hint}\n"
    assert content_of(damaged / ".steptime") == before


def test_a_rank_cut_in_the_middle_shows_the_steps_before_the_cut(damaged: Path) -> None:
    path = run_folder(damaged) / "rank-0.jsonl"
    content = path.read_bytes()
    line_at = content.rindex(b"\n", 0, len(content) * 2 // 3) + 1
    path.write_bytes(content[: line_at + 5])
    shown = show(damaged)
    assert shown.exit_code == 0
    assert 10 < shown.document["data"]["measurement"]["num_steps"] < 60
    assert shown.notes["torn_lines"] == {"count": 1}


def test_a_rank_of_rubbish_is_said_to_be_lost_and_not_to_have_made_no_step(damaged: Path) -> None:
    (run_folder(damaged) / "rank-0.jsonl").write_bytes(b"\x00\xff\x93 rubbish\n" * 20)
    shown = show(damaged)
    assert (shown.exit_code, shown.document["data"]["measurement"]["num_steps"]) == (0, 0)
    assert shown.notes["lost_updates"] == {"count": 60}
    assert "no_steps_seen" not in shown.notes


@pytest.mark.parametrize("name", ["host.jsonl", "processes.jsonl", "source.json"])
def test_a_file_of_rubbish_beside_the_ranks_costs_no_step(damaged: Path, name: str) -> None:
    (run_folder(damaged) / name).write_bytes(b"\x00\xff\x93 rubbish\n" * 20)
    assert show(damaged).document["data"]["measurement"]["num_steps"] == 60


@pytest.mark.parametrize("name", ["rank-0.jsonl", "processes.jsonl", "host.jsonl"])
def test_a_file_that_cannot_be_read_is_named(damaged: Path, name: str) -> None:
    path = run_folder(damaged) / name
    as_folder(path)
    shown = show(damaged)
    code, message, hint = shown.error
    assert (shown.exit_code, code) == (1, "store")
    assert f"{path}: it is a folder, and Steptime reads regular files alone" in message
    assert "move it away" in hint
    path.rmdir()
    assert show(damaged).exit_code == 0


def test_a_rank_of_a_later_schema_is_refused_by_name(damaged: Path) -> None:
    path = run_folder(damaged) / "rank-0.jsonl"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2', 1))
    code, message, hint = show(damaged).error
    assert code == "damaged_run"
    assert "rank-0.jsonl: schema 2 is newer" in message
    assert "pip install -U steptime" in hint


def test_damaged_results_are_made_again_from_the_record(damaged: Path) -> None:
    (run_folder(damaged) / "measurement.json").write_text('{"schema": 1, "run')
    (run_folder(damaged) / "diagnosis.json").mkdir()
    assert show(damaged).document["data"]["measurement"]["num_steps"] == 60


def test_damaged_runs_are_listed(damaged: Path) -> None:
    (run_folder(damaged) / "command.json").write_text("{")
    done = ask_steptime(damaged, "list", "--json")
    (row,) = json.loads(done.stdout)["data"]["runs"]
    assert (done.exit_code, row["run_id"]) == (0, run_folder(damaged).name)


# -- a run that is not there


def test_a_part_of_an_id_is_enough_and_a_wrong_one_names_the_nearest(damaged: Path) -> None:
    run_id = run_folder(damaged).name
    assert show(damaged, run_id[:10]).document["data"]["measurement"]["run_id"] == run_id
    shown = show(damaged, run_id[:-1] + "x")
    code, message, hint = shown.error
    assert (shown.exit_code, code) == (2, "not_found")
    assert f"there is no run or study or fit `{run_id[:-1]}x` in" in message
    assert hint == f"Nearest: {run_id}."


def test_a_beginning_of_several_ids_asks_for_more_of_it(damaged: Path) -> None:
    run = run_folder(damaged)
    twin = run.with_name(run.name[:-4] + "ffff")
    shutil.copytree(run, twin)
    code, message, hint = show(damaged, run.name[:12]).error
    assert code == "not_found"
    assert "2 ids begin with" in message
    assert run.name in hint
    assert twin.name in hint


def test_latest_is_told_that_it_is_called_last(damaged: Path) -> None:
    assert show(damaged, "latest").error[2].startswith("Nearest: last")


@pytest.mark.parametrize("store", ["missing", "empty", "a file"])
def test_without_runs_the_way_to_the_first_is_shown(tmp_path: Path, store: str) -> None:
    if store == "empty":
        (tmp_path / ".steptime" / "runs").mkdir(parents=True)
    elif store == "a file":
        (tmp_path / ".steptime").write_text("")
    shown = show(tmp_path)
    code, message, hint = shown.error
    assert (shown.exit_code, code) == (2, "not_found")
    path = tmp_path / ".steptime"
    if store == "a file":
        assert message == f"`{path}` is not a folder, so it is no store."
        assert "--store" in hint
    else:
        assert re.search(
            rf"there are no runs( or studies or fits)? in {re.escape(str(path))}", message
        )
        assert hint == "Make one: steptime run -- python train.py"
