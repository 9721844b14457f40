"""Loads an `ObservedRun` from a run's folder, as it was saved or folded now.

In: an id, a path, or a `Run`. Out: the measurement, the diagnosis and the ceilings that it was
judged by.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.kept_ceilings import CEILINGS_FILE, find_ceilings, read_ceilings
from steptime.app.observed_run import ObservedRun
from steptime.app.run_listing import find_run, read_end, run_at
from steptime.core.process_end import ProcessEnd
from steptime.core.store import Run, find_store, read_value, write_value
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Diagnosis
from steptime.diagnose.waterfall.step_waterfall import make_picture
from steptime.errors import DamagedRunError, SteptimeError
from steptime.measure.bare_measurement import measure_bare
from steptime.measure.run_records import read_records
from steptime.measure.values.measurement import Measurement

if TYPE_CHECKING:
    from steptime.measure.values.over_time import RunSeries

MAX_STEPS = 4000
"""Points over time: this places a change to within a four-thousandth of the run."""


def load(
    which: str | os.PathLike[str] = "last", *, store: str | os.PathLike[str] = "."
) -> ObservedRun:
    """Return a run that was made before, with what is known about it.

    Args:
        which: its id or the beginning of it, `last`, `last~1` for the one before, or the path of
            its folder.
        store: the folder that holds `.steptime`.

    Raises:
        NotFoundError: there is no such run.
        DamagedRunError: its files cannot be understood.

    Example:
        >>> print(steptime.load("last"))  # doctest: +SKIP
    """
    return load_run(find(which, store=store))


def find(which: str | os.PathLike[str], *, store: str | os.PathLike[str]) -> Run:
    """Return the run that is meant by an id or by the path of its folder.

    Raises:
        NotFoundError: there is none.
    """
    name = os.fspath(which)
    if is_path(name):
        return run_at(Path(name))
    return find_run(find_store(Path(store)), name)


def is_path(name: str) -> bool:
    """Return whether the name means a folder, not an id."""
    return os.sep in name or (Path(name) / "command.json").is_file()


def load_run(run: Run) -> ObservedRun:
    """Return what was saved; fold the raw files if that is missing, damaged, or outdated."""
    try:
        measurement = read_value(run, "measurement.json", Measurement)
        diagnosis = read_value(run, "diagnosis.json", Diagnosis)
    except (OSError, DamagedRunError):
        return fold(run, read_end(run))
    ceilings = find_ceilings(run, measurement)
    if ceilings != read_ceilings(run):  # the machine was measured since then
        observed = fold(run, read_end(run))
        with suppress(OSError, SteptimeError):  # a read-only store is good enough
            save(observed)
        return observed
    return ObservedRun(
        run=run,
        measurement=measurement,
        diagnosis=diagnosis,
        picture=make_picture(measurement, ceilings),
        ceilings=ceilings,
    )


def load_measurement(run: Run) -> Measurement:
    """Return the saved measurement of the steps, even if the machine was measured since then."""
    try:
        return read_value(run, "measurement.json", Measurement)
    except (OSError, DamagedRunError):
        return fold(run, read_end(run)).measurement


def fold(run: Run, end: ProcessEnd) -> ObservedRun:
    """Read the raw files of a run, measure and diagnose it."""
    records = read_records(run.folder)
    if not records.streams and records.command.profile is None:
        return _judge(run, measure_bare(records, end=end), None)
    # A command that makes no step should not pay for these.
    from steptime.measure.profile.profile_fold import read_profile
    from steptime.measure.rank_fold import fold_ranks
    from steptime.measure.run_fold import measure_ranks
    from steptime.measure.series.run_series import make_series

    folded = fold_ranks(records)
    profile = read_profile(run.folder, folded)
    measurement = replace(measure_ranks(folded, end=end), profile=profile)
    course = make_series(run.folder, folded, measurement=measurement, max_steps=MAX_STEPS)
    return _judge(run, measurement, course)


def _judge(run: Run, measurement: Measurement, series: RunSeries | None) -> ObservedRun:
    ceilings = find_ceilings(run, measurement)
    picture = make_picture(measurement, ceilings)
    return ObservedRun(
        run=run,
        measurement=measurement,
        diagnosis=diagnose(measurement, series, picture.waterfall),
        picture=picture,
        ceilings=ceilings,
        series=series,
    )


def save(observed: ObservedRun) -> None:
    """Write `measurement.json` and `diagnosis.json`, and the ceilings that it was judged by."""
    write_value(observed.run, "measurement.json", observed.measurement)
    write_value(observed.run, "diagnosis.json", observed.diagnosis)
    if observed.ceilings is not None:
        write_value(observed.run, CEILINGS_FILE, observed.ceilings)
