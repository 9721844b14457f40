"""Real trainings are asked while they run, and go on as if nobody had asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import steptime
from end_to_end.harness import (
    SCRIPTS,
    Done,
    Fork,
    Job,
    fork_bare,
    fork_observed,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    start_observed,
    updates,
    wait_until,
)
from steptime.measure.values.answer import RankAnswer
from steptime.report.blocks.run.answer_report import RunAnswer

pytestmark = [needs_torch, needs_linux]

DISTURBED = 2
LIMIT_S = 60.0
WEIGHTS = 32 * 64 + 64 + 64 * 10 + 10
FORWARD = 2 * 64 * (32 * 64 + 64 * 10)
BACKWARD = 2 * 64 * (32 * 64 + 2 * 64 * 10)
"""Of 64 rows: the first layer's input needs no gradient."""


@dataclass(frozen=True)
class Asked:
    """A training that was asked, and what it answered, by what was asked."""

    folder: Path
    answers: Mapping[str, RunAnswer]
    done: Done

    @property
    def stream(self) -> Path:
        return run_folder(self.folder) / "rank-0.jsonl"

    def rank(self, what: str, number: int = 0) -> RankAnswer:
        found = self.answers[what].ranks[number]
        assert found.missing is None
        return found

    def left(self, rank: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{rank}-found.json").read_text())
        return found


def ask_all(folder: Path, job: Fork | Job, *whats: str) -> Asked:
    """Ask a training one thing after the other, and let it end."""
    wait_until(lambda: any((folder / ".steptime" / "runs").glob("*/rank-0.jsonl")))
    stream = run_folder(folder) / "rank-0.jsonl"
    wait_until(lambda: len(updates(stream)) > 40)
    answers = {}
    try:
        for what in whats:
            steps = 20 if what == "health" else None
            answers[what] = steptime.attach(
                run_folder(folder), what, steps=steps, timeout_s=LIMIT_S
            )
    finally:
        (folder / "stop").touch()
        done = job.finish()
    return Asked(folder, answers, done)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """A training of one process that was asked everything that it answers itself."""
    folder = tmp_path_factory.mktemp("asked")
    command = ("python", SCRIPTS / "asked.py", "plain", "stop", "found.json")
    job = fork_observed(folder, *command)
    return ask_all(folder, job, "memory", "count", "profile", "health")


def test_the_memory_is_that_of_the_model(asked: Asked) -> None:
    held = asked.rank("memory").memory

    assert held is not None
    assert held.anatomy.bytes_of("weights") == 4 * WEIGHTS
    assert held.anatomy.bytes_of("gradients") == 4 * WEIGHTS
    assert held.anatomy.bytes_of("optimizer") >= 8 * WEIGHTS
    assert held.anatomy.bytes_of("activations") > 64 * 64 * 4
    (kept,) = [one for one in held.others if one.name == "fp32 [1000]"]
    assert (kept.num, kept.bytes) == (50, 50 * 4000)
    assert held.resident_bytes is not None


def test_the_work_is_that_of_the_products(asked: Asked) -> None:
    counted = asked.rank("count").count

    assert counted is not None
    assert [(one.forward, one.backward) for one in counted.updates] == [(FORWARD, BACKWARD)]
    assert counted.flops_per_s is not None


def test_the_profile_has_the_steps_and_leaves_its_trace(asked: Asked) -> None:
    profile = asked.rank("profile").profile

    assert profile is not None
    assert (profile.num_steps, profile.is_cut) == (3, False)
    assert profile.host is not None
    assert any(one.name == "matmul" for one in profile.host.classes)
    assert profile.file is not None
    assert (run_folder(asked.folder) / profile.file).is_file()


def test_the_layers_are_probed_for_so_many_steps(asked: Asked) -> None:
    rank, layers = asked.rank("health"), asked.answers["health"].layers

    assert layers is not None
    assert (rank.num_updates, layers.num_updates) == (20, 20)
    assert layers.since == (rank.first_update or 0) + 1
    assert {one.kind for one in layers.curves} == {"Linear"}
    assert all(one.gradient_norm for one in layers.curves)
    assert "probed" in str(asked.answers["health"])


def test_what_was_asked_is_gone_from_the_folder(asked: Asked) -> None:
    names = {path.name for path in run_folder(asked.folder).iterdir()}

    assert not names & {"question.json", "answers"}


def test_the_training_computed_what_it_computes_when_nobody_asks(
    asked: Asked, tmp_path: Path
) -> None:
    found = asked.left()
    num_steps = len(found["losses"])
    command = ("python", SCRIPTS / "asked.py", "plain", str(num_steps), "found.json")
    bare = fork_bare(tmp_path, *command).finish()

    assert (asked.done.exit_code, bare.exit_code) == (0, 0)
    assert json.loads((tmp_path / "0-found.json").read_text()) == found
    assert asked.done.stdout == bare.stdout


def test_the_report_names_the_steps_and_leaves_them_out(asked: Asked) -> None:
    data = asked.done.data

    assert [one["what"] for one in data["asked"]] == ["memory", "count", "profile", "health"]
    marks = [row[6] for row in updates(asked.stream)]
    for one in data["asked"]:
        examined = marks[one["first_step"] : one["last_step"] + 1]
        assert DISTURBED in examined
    first = asked.rank("memory").first_update
    assert first == data["asked"][0]["first_step"]
    assert "these steps are in no figure" in " ".join(asked.done.stderr.decode().split())
    assert "guest_failures" not in asked.done.notes


def test_what_was_counted_is_in_the_record_too(asked: Asked) -> None:
    counted = [line for line in rows(asked.stream) if line["k"] == "count"]

    assert asked.rank("count").first_update is not None
    assert any(line["n"] > 40 for line in counted)


def test_an_ended_run_is_not_asked(asked: Asked) -> None:
    with pytest.raises(steptime.SteptimeError, match="has ended"):
        steptime.attach(run_folder(asked.folder), "memory")


def test_a_step_of_two_optimizers_has_two_updates(tmp_path: Path) -> None:
    command = ("python", SCRIPTS / "asked.py", "turns", "stop", "found.json")
    asked = ask_all(tmp_path, fork_observed(tmp_path, *command), "count")

    counted = asked.rank("count").count
    assert counted is not None
    assert len(counted.updates) == 2
    assert counted.flops >= 2 * FORWARD


@pytest.mark.slow("two ranks under torchrun, observed and bare")
def test_two_ranks_examine_the_same_steps_and_compute_the_same(tmp_path: Path) -> None:
    command = ("torchrun", "--standalone", "--nproc-per-node", "2", SCRIPTS / "asked.py", "ranks")
    folder = tmp_path / "asked"
    job = start_observed(folder, *command, "stop", "found.json")  # stacks want true processes
    asked = ask_all(folder, job, "memory", "count", "profile", "health", "stacks")

    assert {one.rank for one in asked.answers["stacks"].stacks} == {0, 1}
    assert asked.done.exit_code == 0, asked.done.stderr.decode()
    for what in ("count", "profile", "health"):
        first = [asked.rank(what, number).first_update for number in range(2)]
        assert first[0] == first[1]
    num_steps = len(asked.left()["losses"])
    bare = fork_bare(tmp_path / "bare", *command, str(num_steps), "found.json").finish()
    assert bare.exit_code == 0, bare.stderr.decode()
    for rank in range(2):
        found = json.loads((tmp_path / "bare" / f"{rank}-found.json").read_text())
        assert asked.left(rank) == found
