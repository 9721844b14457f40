"""`steptime attach`: stacks of a run that goes on, that ended, of none, and of a process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from steptime.app.run import attach as app_attach
from steptime.app.run import beside
from steptime.cli import main
from steptime.core.store import Run, create_run
from steptime.errors import StoreError
from steptime.measure.values.stall import Stall
from steptime.measure.wall.stall_file import StallFile
from steptime.watch.stalls import rank_stacks
from steptime.watch.stalls.process_stacks import ProcessProbe
from steptime.watch.stalls.rank_stacks import ProbedRanks, belongs_to, probe_ranks
from unit.builders import COMMAND, make_head, make_update
from unit.test_rules_stall import make_rank, make_stall
from unit.test_watch import HERE, REDUCE, make_probe

Capture = pytest.CaptureFixture[str]


def make_run(folder: Path, *, stall: Stall | None = None, exit_code: int | None = 0) -> Path:
    """The folder of a run of two ranks, which has ended if nothing else is said."""
    run = create_run(folder, started_unix_s=1_790_000_000.0)
    record = {**COMMAND, "exit_code": exit_code, "parent_pid": os.getpid()}
    (run.folder / "command.json").write_text(json.dumps(record))
    for rank in (0, 1):
        lines = [make_head(rank=rank, pid=101 + rank, world_size=2), make_update(0), make_update(1)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (run.folder / f"rank-{rank}.jsonl").write_text(text)
    if stall is not None:
        StallFile(run.folder).add(stall)
    return run.folder


def probe_by_pid(pid: int) -> ProcessProbe:
    return make_probe(pid, REDUCE if pid == 101 else HERE)


def test_each_rank_is_looked_at_and_who_waits_for_whom_is_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    slept: list[float] = []

    found = probe_ranks(folder, probe=probe_by_pid, sleep=slept.append, is_ours=lambda *_: True)

    assert [(one.rank, one.num_steps, one.waits_in) for one in found.ranks] == [
        (0, 2, "collective"),
        (1, 2, "lock"),
    ]
    assert found.culprits == (1,)
    assert slept == [rank_stacks.BETWEEN_S]


def test_before_the_first_step_processes_with_torch_are_looked_at(tmp_path: Path) -> None:
    lines = [{"k": "torch", "pid": 7}, {"k": "torch", "pid": 8}, {"k": "exit", "pid": 8}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "processes.jsonl").write_text(text)

    found = probe_ranks(tmp_path, probe=probe_by_pid, sleep=lambda _: None, is_ours=lambda *_: True)

    assert [(one.rank, one.pid) for one in found.ranks] == [(None, 7)]
    assert found.culprits == ()


def test_a_process_of_another_run_is_not_looked_at(tmp_path: Path) -> None:
    folder = make_run(tmp_path)

    assert not belongs_to(os.getpid(), folder)
    assert probe_ranks(folder, probe=probe_by_pid, sleep=lambda _: None) == ProbedRanks()


def test_the_stacks_of_a_run_are_printed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path)
    ranks = (make_rank(0, "collective", 40), make_rank(1, "lock"))
    monkeypatch.setattr(
        rank_stacks, "probe_ranks", lambda _, training: ProbedRanks(ranks=ranks, culprits=(1,))
    )

    assert main.main(["attach", "last", "--store", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("stacks     rank 0 waits in a collective at train.py:40, for rank 1\n")
    assert "  main  /p/train.py:31" in out
    assert err == ""

    assert main.main(["attach", "last", "--store", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["status"]) == ("attach", "ok")
    assert document["data"]["run_id"] == folder.name
    assert document["data"]["culprits"] == [1]
    assert document["data"]["stacks"][1]["stacks"][0]["frames"][0]["line"] == 31


def test_of_a_run_that_ended_those_of_its_stall_are_shown(tmp_path: Path, capsys: Capture) -> None:
    make_run(tmp_path, stall=make_stall())

    assert main.main(["attach", "last", "--store", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "rank 0 waits for a lock" in out
    assert "taken while it was stalled" in err


@pytest.mark.parametrize(
    ("exit_code", "says"),
    [(0, "has ended (finished)"), (None, "no Python process that uses torch")],
)
def test_without_processes_and_stalls_it_says_so(
    tmp_path: Path, capsys: Capture, exit_code: int | None, says: str
) -> None:
    make_run(tmp_path, exit_code=exit_code)

    assert main.main(["attach", "last", "--store", str(tmp_path)]) == 2
    assert says in capsys.readouterr().err


def test_a_process_is_that_of_its_run_or_is_shown_alone(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, me = make_run(tmp_path), os.getpid()
    monkeypatch.setattr(rank_stacks, "probe_process", lambda pid: make_probe(pid, HERE))
    monkeypatch.setattr(rank_stacks, "BETWEEN_S", 0.0)
    monkeypatch.setattr(rank_stacks, "run_folder_of", {me: folder}.get)

    assert app_attach.find_target(me, lambda: pytest.fail("it is a process")) == Run(
        run_id=folder.name, folder=folder.resolve()
    )

    monkeypatch.setattr(rank_stacks, "run_folder_of", lambda _: None)
    store = ["--store", str(tmp_path)]
    assert main.main(["attach", str(me), *store, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["run_id"], data["stacks"][0]["pid"]) == (None, me)
    assert main.main(["attach", str(me), *store, "--memory"]) == 2
    assert f"process {me} cannot be asked: `steptime run` did not start it" in (
        capsys.readouterr().err
    )
    # Digits that begin the id of a run are no process that nobody measures.
    year = folder.name[:4]
    found = app_attach.find_target(year, lambda: Run(run_id="x", folder=folder))
    assert isinstance(found, Run)


# -- what is done beside a command


def test_each_part_beside_the_command_keeps_its_own_pace() -> None:
    now = [0.0]
    taken: list[str] = []
    rota = beside.Beside(clock=lambda: now[0])

    def take(name: str, wait_s: float) -> float:
        taken.append(name)
        return wait_s

    rota.add(lambda: take("fast", 1.0))
    rota.add(lambda: take("slow", 3.0))
    for _ in range(5):
        now[0] += 1.0
        assert rota.tick() <= 1.0

    assert taken == ["fast", "slow", "fast", "fast", "fast", "slow", "fast"]


def test_a_part_that_fails_is_left_out_and_noted() -> None:
    now = [0.0]
    rota = beside.Beside(clock=lambda: now[0])

    def fail() -> float:
        raise StoreError("the disk is full")

    rota.add(fail)
    for _ in range(3):
        now[0] += 1.0
        rota.tick()

    assert rota.notes == ["the disk is full"]
    assert rota.finish() is None
