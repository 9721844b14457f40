"""Counting the operators of one update leaves every bit as it was, or nothing is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    Done,
    names_in,
    needs_linux,
    needs_torch,
    rows,
    run_both_forked,
    run_folder,
)

pytestmark = [
    needs_torch,
    needs_linux,
    pytest.mark.slow("dozens of ways to train, bare and observed, some on two ranks"),
]

Compare = Callable[..., Path]

MISSING = {
    "checkpointed_by_reentering": "inexact",
    "products": "inexact",
    "filled_with_a_value_that_trains": "inexact",
    "smoothed_labels_with_weights": "inexact",
    "inside_a_mode_of_their_own": "mode_active",
    "a_tensor_subclass": "subclass",
    "scripted": "compiled",
    "compiled": "compiled",
    "too_few_updates": "too_few_updates",
}
LOOKED_AT = 12
"""Or one more where the first backward call had a row of its own."""


@pytest.fixture(scope="module")
def compare(tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Runs a script bare and observed, once; the folder with what both left."""

    @cache
    def run(*command: str) -> Path:
        folder = tmp_path_factory.mktemp("looks")
        for done in run_both_forked(folder, "python", *command):
            assert_ended(done)
        return folder

    return run


def assert_ended(done: Done) -> None:
    assert done.exit_code == 0, done.stderr.decode()[-2000:]


def both(folder: Path, name: str) -> list[Any]:
    return [json.loads((folder / arm / f"{name}.json").read_text()) for arm in ("bare", "observed")]


def lines_of(folder: Path, pid: int) -> list[dict[str, Any]]:
    """The lines of the process that trained."""
    for path in run_folder(folder / "observed").glob("rank-*.jsonl"):
        lines = rows(path)
        if lines[0]["pid"] == pid:
            return lines
    raise AssertionError(f"process {pid} left nothing")


def operators(folder: Path, pid: int) -> dict[str, Any]:
    (line,) = [line for line in lines_of(folder, pid) if line["k"] == "ops"]
    return line


def disturbed(folder: Path, pid: int) -> list[int]:
    found = [row for line in lines_of(folder, pid) if line["k"] == "u" for row in line["rows"]]
    return [row[0] for row in found if row[6] == 2]


@pytest.mark.parametrize("way", names_in("looks.py", "COUNTED"))
def test_counting_operators_leaves_the_same_bits(compare: Compare, way: str) -> None:
    folder = compare(SCRIPTS / "looks.py")
    bare, observed = both(folder, way)
    found = operators(folder, observed["pid"])

    assert observed["result"] == bare["result"]
    assert found["num"] >= found["num_tiny"] > 0
    assert {LOOKED_AT, LOOKED_AT + 1} & set(disturbed(folder, observed["pid"]))


@pytest.mark.parametrize("way", names_in("looks.py", "ABSTAINED"))
def test_where_it_might_not_nothing_is_counted(compare: Compare, way: str) -> None:
    folder = compare(SCRIPTS / "looks.py")
    bare, observed = both(folder, way)

    assert observed["result"] == bare["result"]
    assert operators(folder, observed["pid"])["missing"] == MISSING[way]


@pytest.mark.parametrize("rank", [0, 1])
def test_counting_operators_of_two_ranks_leaves_the_same_bits(compare: Compare, rank: int) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    folder = compare(*launcher, SCRIPTS / "looks_ddp.py")
    bare, observed = both(folder, str(rank))

    assert observed["result"] == bare["result"]
    assert operators(folder, observed["pid"])["num"] > 0


PRODUCT = 2 * 8 * 16 * 32
"""Either product of the model that is cut, on one rank's batch."""


@pytest.mark.parametrize(("way", "share"), [("fsdp", 1), ("tensor_parallel", 2)])
@pytest.mark.parametrize("rank", [0, 1])
def test_of_a_model_cut_over_ranks_each_counts_its_own_work_and_keeps_the_same_bits(
    compare: Compare, rank: int, way: str, share: int
) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    folder = compare(*launcher, SCRIPTS / "looks_sharded.py", way)
    bare, observed = both(folder, str(rank))
    (work,) = [line for line in lines_of(folder, observed["pid"]) if line["k"] == "count"]

    assert observed["result"] == bare["result"]
    assert (work["forward"], work["backward"]) == (2 * PRODUCT // share, 3 * PRODUCT // share)
    assert work["uncovered"] == []


def test_no_look_makes_the_guest_fail(compare: Compare) -> None:
    folder = compare(SCRIPTS / "looks.py")
    ends = rows(run_folder(folder / "observed") / "processes.jsonl")

    assert [line["failures"] for line in ends if line.get("failures")] == []
