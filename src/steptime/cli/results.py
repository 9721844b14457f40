"""From a run's folder to its measurement and diagnosis, stored or folded now."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from steptime.app.run_listing import read_end
from steptime.cli.roofs import CEILINGS_FILE, find_ceilings, read_ceilings
from steptime.core.process_end import ProcessEnd
from steptime.core.store import Run, read_value, write_value
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Diagnosis
from steptime.diagnose.values.reach_values import Picture
from steptime.diagnose.waterfall.step_waterfall import make_picture
from steptime.errors import DamagedRunError, SteptimeError
from steptime.machine.values.inventory_values import Ceilings
from steptime.measure.profile.profile_fold import read_profile
from steptime.measure.rank_fold import fold_ranks
from steptime.measure.run_fold import measure_ranks
from steptime.measure.run_records import read_records
from steptime.measure.series.run_series import make_series
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.over_time import RunSeries

MAX_STEPS = 4000
"""Points over time: a change is placed to within a four-thousandth of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known about one run; `picture` is what it reaches of the machine's ceilings.

    `series` is what is drawn over time, where the run was folded just now.
    """

    measurement: Measurement
    diagnosis: Diagnosis
    picture: Picture
    ceilings: Ceilings | None = None
    series: RunSeries | None = None


def fold(run: Run, end: ProcessEnd) -> Result:
    """Read the raw files, measure and diagnose."""
    folded = fold_ranks(read_records(run.folder))
    profile = read_profile(run.folder, folded)
    measurement = replace(measure_ranks(folded, end=end), profile=profile)
    course = make_series(run.folder, folded, measurement=measurement, max_steps=MAX_STEPS)
    ceilings = find_ceilings(run, measurement)
    picture = make_picture(measurement, ceilings)
    return Result(
        measurement=measurement,
        diagnosis=diagnose(measurement, course, picture.waterfall),
        picture=picture,
        ceilings=ceilings,
        series=course,
    )


def save(run: Run, result: Result) -> None:
    """Write `measurement.json` and `diagnosis.json`, and the ceilings that it was judged by."""
    write_value(run, "measurement.json", result.measurement)
    write_value(run, "diagnosis.json", result.diagnosis)
    if result.ceilings is not None:
        write_value(run, CEILINGS_FILE, result.ceilings)


def load(run: Run) -> Result:
    """What was saved; folded from the raw files where that is missing, damaged, or knew less."""
    try:
        measurement = read_value(run, "measurement.json", Measurement)
        diagnosis = read_value(run, "diagnosis.json", Diagnosis)
    except (OSError, DamagedRunError):
        return fold(run, read_end(run))
    ceilings = find_ceilings(run, measurement)
    if ceilings != read_ceilings(run):  # the machine was measured since
        result = fold(run, read_end(run))
        with suppress(OSError, SteptimeError):  # a store that can only be read is as good
            save(run, result)
        return result
    return Result(
        measurement=measurement,
        diagnosis=diagnosis,
        picture=make_picture(measurement, ceilings),
        ceilings=ceilings,
    )


def load_measurement(run: Run) -> Measurement:
    """What was saved of the steps alone, however the machine was measured since."""
    try:
        return read_value(run, "measurement.json", Measurement)
    except (OSError, DamagedRunError):
        return fold(run, read_end(run)).measurement
