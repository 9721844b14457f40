"""A step time that changes half-way is told with its step and with what changed at that time."""

from __future__ import annotations

import re

import pytest

from end_to_end.conftest import RunSpecimen
from specimens.neighbor_starts import SECONDS
from steptime.core.stats import median
from steptime.measure.series import read_series


@pytest.mark.slow
def test_a_neighbor_that_starts_half_way_is_the_cause_of_longer_steps(
    run_specimen: RunSpecimen,
) -> None:
    run = run_specimen("neighbor_starts")
    at = int(re.search(r"changed (\d+)", run.stdout)[1])

    host = read_series(run.folder, None).host
    began = host[0].t_unix_s
    before = [p.busy_cores - p.job_cores for p in host if p.t_unix_s < began + SECONDS / 2 - 1]
    if median(before) > 0.3:
        pytest.skip(f"others kept {median(before):.2f} cores busy before the neighbor started")
    near = [
        shift
        for shift in run.data["diagnosis"]["shifts"]
        if shift["index"] == pytest.approx(at, abs=0.1 * run.data["num_steps"])
    ]
    assert near[0]["causes"][0] == "neighbor"
    assert near[0]["low"] > 1.2
    findings = {f["cause"]: f for f in run.data["diagnosis"]["findings"]}
    assert findings["shift_neighbor"]["severity"] != "info"
