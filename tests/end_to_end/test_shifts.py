"""A step time that changes half-way is told with its step and with what changed at that time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import RunSpecimen
from end_to_end.harness import LIMIT_S, SPECIMENS, by_name, environment, has_gpu, needs_torch
from specimens.neighbor_starts import SECONDS
from steptime.core.stats import median
from steptime.measure.series.run_series import read_series

DRIVER = Path(__file__).parent / "made_up_driver.py"


def shift_at(step: int, data: dict[str, Any]) -> dict[str, Any]:
    """The one shift within a tenth of the run of that step."""
    near = pytest.approx(step, abs=0.1 * data["num_steps"])
    found = [shift for shift in data["diagnosis"]["shifts"] if shift["index"] == near]
    assert len(found) == 1, data["diagnosis"]["shifts"]
    return found[0]


@pytest.mark.slow("a change half-way needs seconds before it and seconds after")
@pytest.mark.serial
def test_a_neighbor_that_starts_half_way_is_the_cause_of_longer_steps(
    run_specimen: RunSpecimen,
) -> None:
    run = run_specimen("neighbor_starts", is_forked=False)
    at = int(re.search(r"changed (\d+)", run.stdout)[1])

    host = read_series(run.folder, None).host
    began = host[0].t_unix_s
    before = [p.busy_cores - p.job_cores for p in host if p.t_unix_s < began + SECONDS / 2 - 1]
    if median(before) > 0.3:
        pytest.skip(f"others kept {median(before):.2f} cores busy before the neighbor started")
    shift = shift_at(at, run.data)
    assert shift["causes"][0] == "neighbor"
    assert shift["ratio"]["low"] > 1.2
    assert_the_neighbor_is_left_out(at, run.data)


def assert_the_neighbor_is_left_out(at: int, data: Mapping[str, Any]) -> None:
    """The steps before it count, and the report is about them; the change is named beside it."""
    steady = data["measurement"]["steady"]
    assert steady["num_beside_neighbor"] > 0.8 * (data["num_steps"] - at)
    assert steady["num_steps"] > 0.5 * at
    findings = {f["cause"]: f for f in data["diagnosis"]["findings"]}
    assert findings["shift_neighbor"]["held_by"] == "nothing"
    assert findings["shift_neighbor"]["severity"] == "info"
    assert data["diagnosis"]["kind"] != "CONTENDED"


@needs_torch
@pytest.mark.slow("a change half-way needs seconds before it and seconds after")
@pytest.mark.serial
def test_a_device_that_holds_its_clock_down_is_the_cause_of_longer_steps(tmp_path: Path) -> None:
    """The device is made up, the run and all that reads and judges it is real."""
    file = tmp_path / "hot"
    command = (sys.executable, str(SPECIMENS / "throttled.py"), "--pretend", str(file))
    done = subprocess.run(
        [sys.executable, DRIVER, file, "run", "--json", "out.json", "--", *command],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    data = by_name(json.loads((tmp_path / "out.json").read_text())["data"])
    shift = shift_at(int(re.search(r"changed (\d+)", done.stdout)[1]), data)
    assert {"throttle", "device_clock"} <= set(shift["causes"])
    assert "shift_throttle" in {f["cause"] for f in data["diagnosis"]["findings"]}


@pytest.mark.gpu
@pytest.mark.slow("a change half-way needs seconds before it and seconds after")
@pytest.mark.skipif(not has_gpu(), reason="no CUDA device is here")
def test_a_gpu_whose_clock_is_locked_low_is_the_cause_of_longer_steps(
    run_specimen: RunSpecimen,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("locking the clock of a GPU needs root")
    run = run_specimen("throttled", is_forked=False)
    shift = shift_at(int(re.search(r"changed (\d+)", run.stdout)[1]), run.data)
    assert {"throttle", "device_clock"} & set(shift["causes"])
