"""From a run's folder to its measurement and diagnosis, stored or folded now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steptime.core.listing import read_end
from steptime.core.store import Run, read_value, write_value
from steptime.core.types import Diagnosis, Measurement, ProcessEnd
from steptime.diagnose.engine import diagnose
from steptime.errors import DamagedRunError
from steptime.measure.measurement import measure
from steptime.measure.profile import read_profile
from steptime.measure.records import read_records
from steptime.measure.series import make_series

MAX_STEPS = 4000
"""Points over time: a change is placed to within a four-thousandth of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known about one run."""

    measurement: Measurement
    diagnosis: Diagnosis


def fold(run: Run, end: ProcessEnd) -> Result:
    """Read the raw files, measure and diagnose."""
    records = read_records(run.folder)
    profile = read_profile(run.folder, records)
    measurement = replace(measure(records, end=end), profile=profile)
    course = make_series(run.folder, records, measurement=measurement, max_steps=MAX_STEPS)
    return Result(measurement=measurement, diagnosis=diagnose(measurement, course))


def save(run: Run, result: Result) -> None:
    """Write `measurement.json` and `diagnosis.json`."""
    write_value(run, "measurement.json", result.measurement)
    write_value(run, "diagnosis.json", result.diagnosis)


def load(run: Run) -> Result:
    """What was saved; folded from the raw files where that is missing or damaged."""
    try:
        return Result(
            measurement=read_value(run, "measurement.json", Measurement),
            diagnosis=read_value(run, "diagnosis.json", Diagnosis),
        )
    except (OSError, DamagedRunError):
        return fold(run, read_end(run))
