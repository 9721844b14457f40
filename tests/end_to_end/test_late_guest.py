"""The guest visits a process that has used torch before, and leaves it as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    fork_bare,
    needs_linux,
    needs_torch,
    rows,
    updates,
)

pytestmark = [needs_torch, needs_linux]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes have ended in it: one was visited twice, and one never."""
    folder = tmp_path_factory.mktemp("visits")
    jobs = [
        fork_bare(folder / way, "python", SCRIPTS / "visited.py", way, folder / way)
        for way in ("bare", "visited")
    ]
    for done in [job.finish() for job in jobs]:
        assert done.exit_code == 0, done.stderr.decode()
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Mapping[str, Any]:
    document: dict[str, Any] = json.loads((folder / "visited" / "found.json").read_text())
    return document


def test_training_in_a_visit_and_after_it_leaves_the_same_bits(
    folder: Path, found: Mapping[str, Any]
) -> None:
    bare = json.loads((folder / "bare" / "found.json").read_text())
    for name in ("losses", "bits", "seen"):
        assert found[name] == bare[name], name
    saved = [(folder / way / "model.pt").read_bytes() for way in ("bare", "visited")]
    assert saved[0] == saved[1]


def test_hooks_are_there_during_a_visit_and_gone_after_it(found: Mapping[str, Any]) -> None:
    assert found["hooked"] > 30
    assert (found["changed"], found["left"], found["changed_again"]) == ([], [], [])


def test_nothing_remains_registered(found: Mapping[str, Any]) -> None:
    before, between, after = found["registries"]
    assert (between, after) == (before, before)
    assert not found["context_lives"]


def test_a_wrapper_that_is_still_held_writes_nothing(found: Mapping[str, Any]) -> None:
    assert found["held_is_ours"]
    assert not found["wrote_later"]


@pytest.mark.parametrize(("visit", "num"), [("first", 24), ("second", 16)])
def test_the_updates_of_a_visit_are_in_its_folder(folder: Path, visit: str, num: int) -> None:
    run = folder / "visited" / visit
    assert len(updates(run / "rank-0.jsonl")) == num
    processes = {line["k"]: line for line in rows(run / "processes.jsonl")}
    assert processes["exit"]["updates"] == num
    assert processes["exit"]["failures"] == {}
    assert rows(run / "rank-0.jsonl")[-1]["k"] == "end"


def test_an_error_is_that_of_the_visit(folder: Path) -> None:
    errors = {}
    for visit in ("first", "second"):
        lines = rows(folder / "visited" / visit / "processes.jsonl")
        errors[visit] = next(line for line in lines if line["k"] == "exit").get("error")
    assert errors["first"] is None
    assert errors["second"]["text"] == "what the cell raised"
