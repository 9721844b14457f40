"""Work that a script does for nothing is found with its line, and not where it does it right."""

from __future__ import annotations

from typing import Any

import pytest

from end_to_end.conftest import RunSpecimen
from end_to_end.harness import SPECIMENS, needs_linux, needs_torch

pytestmark = [needs_torch, needs_linux, pytest.mark.slow("trains until lines have their shares")]

LONG = ("--epochs", "20")
CAUSES = {
    "collects": "collects_garbage",
    "tensors": "tensor_of_arrays",
    "weights": "weights_one_by_one",
    "metric": "grows",
    "frozen": "frozen_again",
    "part": "frozen_part_again",
    "samples": "same_samples",
}


def found(run: Any) -> dict[str, Any]:
    assert "guest_failures" not in {note["code"] for note in run.data["notes"]}
    return {one["cause"]: one for one in run.findings() if one["cause"] in CAUSES.values()}


def line_of(plant: str) -> int:
    lines = (SPECIMENS / "needless.py").read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {plant}"))


@pytest.mark.parametrize("plant", CAUSES)
def test_work_for_nothing_is_named_with_its_line(run_specimen: RunSpecimen, plant: str) -> None:
    run = run_specimen("needless", *LONG, "--plant", plant)

    finding = found(run)[CAUSES[plant]]
    if plant != "samples":
        assert finding["where"].endswith(f"needless.py:{line_of(plant)}")
        assert finding["headroom_speedup"] > 1.1
    spent = run.data["spent"]
    assert spent is None or spent["without_line"] <= 0.02


@pytest.mark.parametrize("plant", [*CAUSES, "teacher"])
def test_the_same_done_right_is_no_finding(run_specimen: RunSpecimen, plant: str) -> None:
    # A teacher is ill in no way: its weights follow others.
    healthy = () if plant == "teacher" else ("--healthy",)

    assert found(run_specimen("needless", *LONG, "--plant", plant, *healthy)) == {}
