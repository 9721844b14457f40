"""A step time that changes half-way is told with its step and with what changed at that time."""

from __future__ import annotations

import re

import pytest

from end_to_end.conftest import RunSpecimen


@pytest.mark.slow
def test_a_neighbor_that_starts_half_way_is_the_cause_of_longer_steps(
    run_specimen: RunSpecimen,
) -> None:
    run = run_specimen("neighbor_starts")
    at = int(re.search(r"changed (\d+)", run.stdout)[1])

    (shift,) = run.data["diagnosis"]["shifts"]
    assert shift["causes"][0] == "neighbor"
    assert shift["index"] == pytest.approx(at, abs=0.1 * run.data["num_steps"])
    assert shift["low"] > 1.2
    findings = {f["cause"]: f for f in run.data["diagnosis"]["findings"]}
    assert findings["shift_neighbor"]["severity"] != "info"
