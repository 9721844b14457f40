"""Objects that workers copy by reading are named with their line; arrays are shared in silence."""

from __future__ import annotations

import pytest

from end_to_end.conftest import RunSpecimen
from end_to_end.harness import needs_linux, needs_torch

pytestmark = [needs_torch, needs_linux]


@pytest.mark.slow("a run with workers for each of two data sets")
def test_copied_objects_are_named_and_arrays_are_not(run_specimen: RunSpecimen) -> None:
    listed = run_specimen("copied_samples", "--steps", "40")
    arrays = run_specimen("copied_samples", "--steps", "40", "--arrays")

    (finding,) = [one for one in listed.findings() if one["cause"] == "worker_copies"]
    assert finding["names"]["attribute"] == "Records.rows"
    assert finding["where"].endswith("copied_samples.py:15")
    assert "worker_copies" not in {one["cause"] for one in arrays.findings()}
    assert arrays.data["workers"]["copied_bytes"] > 0
    assert listed.data["workers"]["first_start_s"] > 0
