"""The levers on DistributedDataParallel, on two and three real gloo ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import SCRIPTS, needs_linux, needs_torch

pytestmark = [needs_torch, needs_linux]


def train(folder: Path, num_ranks: int) -> list[dict[str, Any]]:
    """What each rank found, by case."""
    command = [sys.executable, SCRIPTS / "exchange.py", str(num_ranks), folder]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, "a lever must not write into a script's output"
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(num_ranks)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return train(tmp_path_factory.mktemp("two"), 2)


def of_case(ranks: list[dict[str, Any]], case: str) -> list[dict[str, Any]]:
    return [rank[case] for rank in ranks]


CASES = (
    *("plain", "view", "buckets", "unused", "static", "bf16", "own_hook"),
    *("narrow", "powersgd", "own_hook_powersgd"),
    *("accumulated", "no_sync", "no_sync_with_views", "own_no_sync"),
)


@pytest.mark.parametrize("case", CASES)
def test_ranks_end_with_the_same_weights(two: list[dict[str, Any]], case: str) -> None:
    one, other = of_case(two, case)

    assert one["weights"] == other["weights"]


@pytest.mark.parametrize(
    ("case", "like"),
    [
        *(("view", "plain"), ("buckets", "plain"), ("static", "unused"), ("own_hook", "plain")),
        ("own_hook_powersgd", "plain"),
    ],
)
def test_packed_in_another_way_two_ranks_compute_the_same_bits(
    two: list[dict[str, Any]], case: str, like: str
) -> None:
    for one, other in zip(of_case(two, case), of_case(two, like), strict=True):
        assert one["losses"] == other["losses"]
        assert one["weights"] == other["weights"]


def test_the_options_reach_the_exchange_and_are_gone_afterwards(two: list[dict[str, Any]]) -> None:
    assert [rank["view"] for rank in of_case(two, "view")] == [True, True]
    assert [rank["static"] for rank in of_case(two, "static")] == [True, True]
    assert [rank["view"] for rank in of_case(two, "accumulated")] == [False, False]
    assert [rank["init"] for rank in two] == ["DistributedDataParallel.__init__"] * 2


def test_in_bf16_gradients_are_rounded_and_no_more(two: list[dict[str, Any]]) -> None:
    (found, _), (plain, _) = of_case(two, "bf16"), of_case(two, "plain")

    assert found["num_hooks"] == 1
    assert found["losses"] != plain["losses"]
    assert found["losses"] == pytest.approx(plain["losses"], rel=0.02)
    assert found["norms"][0] == pytest.approx(plain["norms"][0], rel=2**-7)


def test_low_rank_products_begin_after_the_warm_up(two: list[dict[str, Any]]) -> None:
    (found, other), (plain, _) = of_case(two, "powersgd"), of_case(two, "narrow")

    assert found["num_hooks"] == 1
    assert found["losses"][:4] == plain["losses"][:4]  # the fourth loss is of the third update
    assert found["norms"][:3] == plain["norms"][:3]
    assert found["losses"][4:] != plain["losses"][4:]
    assert found["losses"] == pytest.approx(plain["losses"], rel=0.1)
    assert found["norms"] == other["norms"], "ranks step with the same gradients"


def test_a_hook_of_the_scripts_own_stays(two: list[dict[str, Any]]) -> None:
    for case in ("own_hook", "own_hook_powersgd"):
        assert [rank["num_hooks"] for rank in of_case(two, case)] == [1, 1]


def test_gradients_are_exchanged_once_an_update(two: list[dict[str, Any]]) -> None:
    """Before the last backward of an update they are those of a rank; with it, of all."""
    one, other = of_case(two, "no_sync")
    are_equal = [a == b for a, b in zip(one["norms"], other["norms"], strict=True)]

    assert are_equal == [False, False, False, True] * 3 + [False, False]
    one, other = of_case(two, "accumulated")
    assert one["norms"] == other["norms"]


@pytest.mark.parametrize(("case", "rel"), [("no_sync", 1e-4), ("no_sync_with_views", 0.02)])
def test_exchanged_later_the_training_is_the_same_up_to_rounding(
    two: list[dict[str, Any]], case: str, rel: float
) -> None:
    """Clipping sees exchanged gradients, also in the last update, which is shorter."""
    for found, plain in zip(of_case(two, case), of_case(two, "accumulated"), strict=True):
        assert found["losses"] == pytest.approx(plain["losses"], rel=rel)
        assert found["weights"] == pytest.approx(plain["weights"], rel=rel, abs=10 * rel)


def test_a_script_with_its_own_no_sync_is_left_alone(two: list[dict[str, Any]]) -> None:
    one, other = of_case(two, "own_no_sync")
    are_equal = [a == b for a, b in zip(one["norms"], other["norms"], strict=True)]

    assert are_equal == [False, False, False, True] * 3 + [False, True]


@pytest.mark.slow("three ranks train fourteen cases")
def test_three_ranks_compute_the_same_up_to_the_order_of_sums(tmp_path: Path) -> None:
    ranks = train(tmp_path, 3)

    for case in CASES:
        assert len({tuple(rank["weights"]) for rank in of_case(ranks, case)}) == 1
    assert ranks[0]["view"]["losses"] == ranks[0]["plain"]["losses"]
    assert ranks[0]["buckets"]["losses"] == pytest.approx(ranks[0]["plain"]["losses"], rel=1e-5)
    assert ranks[0]["no_sync"]["losses"] == pytest.approx(
        ranks[0]["accumulated"]["losses"], rel=1e-4
    )
