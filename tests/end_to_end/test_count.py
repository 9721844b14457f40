"""The work of a step, counted in a run, or in a child where the script compiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.contained import require
from end_to_end.harness import (
    SCRIPTS,
    needs_linux,
    needs_torch,
    run_forked,
)
from steptime.isolate.tiers import Tier

pytestmark = [needs_torch, needs_linux]

BATCH, WIDTH, CLASSES, MICRO = 16, 32, 10, 2
FORWARD = MICRO * 2 * BATCH * (WIDTH * WIDTH + WIDTH * CLASSES)
BACKWARD = 2 * FORWARD - MICRO * 2 * BATCH * WIDTH * WIDTH


def count_of(folder: Path, *options: str, way: str) -> Mapping[str, Any]:
    done = run_forked(folder, "python", SCRIPTS / "counted.py", way, options=options)
    assert done.exit_code == 0, done.stderr.decode()[-2000:]
    return done.data


def by_class(data: Mapping[str, Any]) -> dict[str, int]:
    return {one["name"]: one["flops"] for one in data["count"]["classes"]}


def test_an_eager_script_has_the_work_of_all_its_micro_batches(tmp_path: Path) -> None:
    data = count_of(tmp_path, way="eager")

    assert (data["count"]["forward"], data["count"]["backward"]) == (FORWARD, BACKWARD)
    assert by_class(data)["matmul"] == data["work"]["total"]
    assert data["count"]["is_executed"] is True
    assert data["mfu"]["missing"] == data["hfu"]["missing"] == "unknown_device"
    assert data["mfu"]["flops_per_s"] > 0
    assert (data["work"]["is_complete"], data["mfu"]["is_at_least"]) == (True, False)
    assert [one["name"] for one in data["count"]["devices"]] == ["cpu"]
    names = {one["name"]: one for one in data["count"]["modules"]}
    assert names["Net"]["forward"] == FORWARD
    assert names["Net.head"]["backward"] == 2 * names["Net.head"]["forward"]


def test_a_product_by_numpy_makes_the_count_a_lower_bound_and_is_named(tmp_path: Path) -> None:
    done = run_forked(tmp_path, "python", SCRIPTS / "counted.py", "numpy")

    assert done.exit_code == 0, done.stderr.decode()[-2000:]
    (unmet,) = done.data["count"]["completeness"]["unmet"]
    assert (unmet["name"], unmet["takers"]) == ("Net.body.weight", ["ByNumpy"])
    assert unmet["passes"] == ["forward", "backward"]
    assert done.data["work"]["total"] == MICRO * 3 * 2 * BATCH * WIDTH * CLASSES
    assert (done.data["work"]["is_complete"], done.data["mfu"]["is_at_least"]) == (False, True)
    said = " ".join(done.stderr.decode().split())
    assert "work at least" in said
    assert "rate at least" in said


def test_where_two_optimizers_take_turns_a_step_is_an_update_of_each(tmp_path: Path) -> None:
    data = count_of(tmp_path, way="two_optimizers")

    assert (data["count"]["forward"], data["count"]["backward"]) == (FORWARD, BACKWARD)


@pytest.mark.parametrize(
    ("way", "missing"),
    [
        ("compiled", "compiled"),
        ("functional", "outside_modules"),
        ("teacher", "without_gradients"),
        ("graph", "subclass"),
        ("jagged", "subclass"),
    ],
)
def test_where_a_step_cannot_be_counted_there_is_a_reason(
    tmp_path: Path, way: str, missing: str
) -> None:
    data = count_of(tmp_path, way=way)

    assert data["count"] is None
    assert data["count_missing"] == data["mfu"]["missing"] == missing


def test_a_script_that_compiles_is_counted_in_a_child_that_changes_nothing(tmp_path: Path) -> None:
    require(Tier.ISOLATED)
    folder = tmp_path / "job"

    data = count_of(folder, "--count", way="compiled")

    assert (data["count"]["forward"], data["count"]["backward"]) == (FORWARD, BACKWARD)
    assert data["count"]["is_executed"] is False
    assert data["hfu"]["missing"] == "not_executed"
    assert (folder / "written.txt").read_text() == "once\n"


def test_a_graph_with_a_sparse_matrix_is_counted_in_a_child(tmp_path: Path) -> None:
    require(Tier.ISOLATED)

    data = count_of(tmp_path / "job", "--count", way="graph")

    assert by_class(data)["sparse"] == MICRO * 2 * BATCH * WIDTH
    assert by_class(data)["matmul"] == FORWARD + BACKWARD
    assert data["count"]["is_executed"] is True


@pytest.mark.slow("a child behind walls that imports torch and compiles")
def test_a_script_that_ends_early_in_the_child_leaves_a_reason(tmp_path: Path) -> None:
    require(Tier.ISOLATED)

    data = count_of(tmp_path / "job", "--count", way="compiled_once")

    assert data["count_missing"] == "child_ended"
