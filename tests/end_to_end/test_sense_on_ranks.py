"""Do ranks train together as their owner thinks: each fault is named, and what is right is not."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import SCRIPTS, needs_linux, needs_torch, start_bare

pytestmark = [
    needs_torch,
    needs_linux,
    pytest.mark.core,
    pytest.mark.slow("all trainings run in the same two ranks, which the first test starts"),
]

SCRIPT = SCRIPTS / "odd_ranks.py"
KINDS = {
    node.name: {one.id for one in node.decorator_list if isinstance(one, ast.Name)}
    for node in ast.parse(SCRIPT.read_text()).body
    if isinstance(node, ast.FunctionDef)
}
HEALTHY = [name for name, kinds in KINDS.items() if "healthy" in kinds]
FAULTY = {
    "no_sync_in_the_last": "replicas_drift",
    "no_sync_before_short_windows": "replicas_drift",
    "calls_the_model_inside": "replicas_drift",
    "momentum_on_one_rank": "replicas_drift",
    "weights_loaded_on_one_rank": "replicas_drift",
    "both_ranks_draw_the_same": "same_samples_on_ranks",
    "both_ranks_make_the_same": "same_samples_on_ranks",
}

Found = Mapping[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What was found of each training."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    done = start_bare(folder, "python", SCRIPT, folder, folder / "found.json").finish()
    assert done.exit_code == 0, done.stderr.decode()[-3000:]
    told: Found = json.loads((folder / "found.json").read_text())
    return told


def test_every_planted_fault_is_in_the_table() -> None:
    assert {name for name, kinds in KINDS.items() if "faulty" in kinds} == set(FAULTY)


@pytest.mark.parametrize("name", HEALTHY)
def test_an_odd_training_that_is_right_has_no_finding(found: Found, name: str) -> None:
    assert found[name] == []


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_named_and_nothing_else(found: Found, name: str) -> None:
    assert [one["cause"] for one in found[name]] == [FAULTY[name]]


@pytest.mark.parametrize(
    ("name", "begin", "reason"),
    [
        ("no_sync_in_the_last", "from update 1 on", "before 32 of the first 32 updates"),
        ("no_sync_before_short_windows", "from update 4 on", "before 10 of the first 32 updates"),
        ("calls_the_model_inside", "from update 1 on", "no call goes through"),
        ("momentum_on_one_rank", "from update 2 on", ""),
        ("weights_loaded_on_one_rank", "before the first update", ""),
    ],
)
def test_a_drift_has_its_begin_and_its_reason(
    found: Found, name: str, begin: str, reason: str
) -> None:
    (one,) = found[name]

    assert (one["names"]["begin"], one["names"]["ranks"]) == (begin, "0 and 1")
    assert reason in one["names"]["reason"]
    assert bool(reason) == bool(one["names"]["reason"])


def test_a_backward_call_that_exchanges_nothing_has_its_line(found: Found) -> None:
    assert found["no_sync_in_the_last"][0]["line"] == "mse_loss(model(x), y).backward()"
    assert found["momentum_on_one_rank"][0]["line"] is None
