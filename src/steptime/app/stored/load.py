"""Loads an `ObservedRun` from a run's folder, as it was saved or folded now.

In: an id, a path, or a `Run`. Out: the measurement, the diagnosis and the ceilings that it was
judged by.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.run.observed_run import ObservedRun, numbered_name
from steptime.app.run.run_end import RunEnd, look_at_end
from steptime.app.stored.kept_ceilings import CEILINGS_FILE, find_ceilings, read_ceilings
from steptime.app.stored.run_listing import add_to_index, find_runs, run_at
from steptime.core.process_end import ProcessEnd
from steptime.core.store import Run, find_store, read_value, write_value
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Diagnosis
from steptime.diagnose.waterfall.step_waterfall import make_picture
from steptime.errors import DamagedRunError, SteptimeError
from steptime.launch.values import CommandRecord
from steptime.measure.fold.bare_measurement import measure_bare
from steptime.measure.fold.run_records import RecordReader, RunRecords, no_such_training
from steptime.measure.source.scan import NAME as SOURCE
from steptime.measure.source.scan import write_source
from steptime.measure.values.measurement import Measurement
from steptime.measure.wall.rank_progress import count_updates
from steptime.record import files
from steptime.report.document.run_document import TrainingDocument

if TYPE_CHECKING:
    from steptime.measure.values.over_time import RunSeries

MEASUREMENT, DIAGNOSIS = "measurement.json", "diagnosis.json"
MAX_STEPS = 4000
"""Points over time: this places a change to within a four-thousandth of the run."""


def load(
    which: str | os.PathLike[str] = "last",
    *,
    store: str | os.PathLike[str] = ".",
    training: int | None = None,
) -> ObservedRun:
    """Return a run that was made before, with what is known about it.

    Args:
        which: its id or the beginning of it, `last`, `last~1` for the one before, or the path of
            its folder.
        store: the folder that holds `.steptime`; the current one where it is not given.
        training: which training of the command, counted from 1 in the order of start; None for
            the one that lasted longest. `ObservedRun.trainings` has all of them.

    Raises:
        NotFoundError: there is no such run, or no such training in it.
        DamagedRunError: its files cannot be understood.

    Example:
        >>> print(steptime.load("last"))  # doctest: +SKIP
    """
    return load_run(find(which, store=store), training=training)


def find(which: str | os.PathLike[str], *, store: str | os.PathLike[str]) -> Run:
    """Return the run that is meant by an id or by the path of its folder.

    Raises:
        NotFoundError: there is none.
    """
    (found,) = find_all([which], store=store)
    return found


def find_all(
    which: Sequence[str | os.PathLike[str]], *, store: str | os.PathLike[str]
) -> list[Run]:
    """Return several such runs; the store is listed once for all of them.

    Raises:
        NotFoundError: there is none of one of them.
    """
    names = [os.fspath(one) for one in which]
    ids = [name for name in names if not is_path(name)]
    wanted = None if Path(store) == Path() else Path(store)
    of_ids = iter(find_runs(find_store(wanted), ids) if ids else ())
    return [run_at(Path(name)) if is_path(name) else next(of_ids) for name in names]


def is_path(name: str) -> bool:
    """Return whether the name means a folder, not an id."""
    return os.sep in name or os.path.isfile(os.path.join(name, "command.json"))


def load_run(run: Run, *, training: int | None = None) -> ObservedRun:
    """Return what was saved; fold the raw files if that is missing, damaged, or outdated.

    Raises:
        NotFoundError: the run has no training with this number.
    """
    seen = look_at_end(run)
    saved = _find_saved(run, seen)
    if saved is None:
        return _fold_and_keep(run, seen, training=training)
    ceilings = find_ceilings(run, saved[0].measurement)
    if ceilings != read_ceilings(run):  # the machine was measured since then
        return _fold_and_keep(run, seen, training=training)
    chosen = saved[0] if training is None else _numbered(run, training, saved)
    return ObservedRun(
        run=run,
        measurement=chosen.measurement,
        diagnosis=chosen.diagnosis,
        picture=make_picture(chosen.measurement, ceilings),
        ceilings=ceilings,
        parts=_in_order(saved),
    )


def load_measurement(run: Run, *, training: int | None = None) -> Measurement:
    """Return the saved measurement of the steps, even if the machine was measured since then.

    Raises:
        NotFoundError: the run has no training with this number.
    """
    seen = look_at_end(run)
    saved = _find_saved(run, seen)
    if saved is None:
        return _fold_and_keep(run, seen, training=training).measurement
    chosen = saved[0] if training is None else _numbered(run, training, saved)
    return chosen.measurement


def _find_saved(run: Run, seen: RunEnd) -> tuple[TrainingDocument, ...] | None:
    """Return what was saved, the longest training first; None if it is missing or outdated."""
    if seen.processes or _has_grown(run.folder, MEASUREMENT):
        return None
    try:
        saved = _read_saved(run)
    except (OSError, DamagedRunError):
        return None
    is_outdated = seen.end.is_over and not saved[0].measurement.end.is_over
    return None if is_outdated else saved


def _has_grown(folder: Path, since: str) -> bool:
    """Return whether a process stepped after a file was written: on another machine, perhaps."""
    try:
        then_s = (folder / since).stat().st_mtime
        return any(path.stat().st_mtime > then_s for path in folder.glob(files.RANKS))
    except OSError:
        return False


def fold_now(run: Run, *, training: int | None = None) -> ObservedRun:
    """Fold the raw files as they are now.

    Raises:
        NotFoundError: the run has no training with this number.
    """
    return fold(run, look_at_end(run), training=training)


def _fold_and_keep(run: Run, seen: RunEnd, *, training: int | None) -> ObservedRun:
    """Fold the raw files, and save the result if the run is over."""
    with suppress(OSError, SteptimeError, ValueError):
        _complete(run, seen)
    observed = fold(run, seen, training=training)
    if seen.end.is_over:
        with suppress(OSError, SteptimeError, ValueError):  # a read-only store is good enough
            save(observed)
            add_to_index(run)
    return observed


def _complete(run: Run, seen: RunEnd) -> None:
    """Do what `steptime run` does before it measures, if it could not, or if steps came since."""
    record = read_value(run, "command.json", CommandRecord)
    if not os.path.lexists(run.folder / SOURCE) or _has_grown(run.folder, SOURCE):
        write_source(run.folder, cwd=record.cwd)
    if record.profile is not None and seen.end.is_over:
        from steptime.measure.profile.profile_fold import pack_traces

        pack_traces(run.folder)


def fold(run: Run, seen: RunEnd, *, training: int | None = None) -> ObservedRun:
    """Read the raw files of a run, measure and diagnose its trainings, one after the other.

    Raises:
        NotFoundError: the run has no training with this number.
    """
    observed = _fold_trainings(run, seen.end, training=training)
    return _with_processes(observed, seen) if seen.processes else observed


def _with_processes(observed: ObservedRun, seen: RunEnd) -> ObservedRun:
    """Add the processes that outlived the command, with the steps they made so far."""
    measured = [observed.measurement, *(part.measurement for part in observed.parts)]
    num_steps = count_updates(observed.folder)
    num_steps |= {rank.pid: rank.num_steps for one in measured for rank in one.ranks}
    processes = tuple(replace(p, num_steps=num_steps.get(p.pid, 0)) for p in seen.processes)
    return replace(
        observed,
        measurement=replace(observed.measurement, outliving=processes),
        parts=tuple(
            replace(part, measurement=replace(part.measurement, outliving=processes))
            for part in observed.parts
        ),
    )


def _fold_trainings(run: Run, end: ProcessEnd, *, training: int | None) -> ObservedRun:
    reader = RecordReader(run.folder)
    seen = reader.trainings
    if len(seen) < 2 or reader.longest is None:
        return _fold_one(run, end, reader.read(training))
    wanted = reader.longest.number if training is None else training
    chosen = None
    parts = []
    for one in seen:
        observed = _fold_one(run, end, reader.read(one.number))
        part = TrainingDocument(
            number=one.number, measurement=observed.measurement, diagnosis=observed.diagnosis
        )
        parts.append(part)
        chosen = observed if one.number == wanted else chosen
    if chosen is None:
        raise no_such_training(run.run_id, wanted, len(seen))
    return replace(chosen, parts=tuple(parts))


def _fold_one(run: Run, end: ProcessEnd, records: RunRecords) -> ObservedRun:
    """Measure and diagnose one training."""
    if not records.streams and records.command.profile is None:
        return _judge(run, measure_bare(records, end=end), None)
    # A command that makes no step should not pay for these.
    from steptime.measure.fold.rank_fold import fold_ranks
    from steptime.measure.fold.run_fold import measure_ranks
    from steptime.measure.profile.profile_fold import read_profile
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
    """Write `measurement.json` and `diagnosis.json`, and the ceilings that it was judged by.

    Of several trainings the longest has these names; the others have their number in them.
    """
    run = observed.run
    own = TrainingDocument(number=1, measurement=observed.measurement, diagnosis=observed.diagnosis)
    parts = observed.parts or (own,)
    longest = max(parts, key=lambda part: _lasted_s(part.measurement))
    for part in parts:
        number = None if part is longest else part.number
        write_value(run, numbered_name(MEASUREMENT, number), part.measurement)
        write_value(run, numbered_name(DIAGNOSIS, number), part.diagnosis)
    if observed.ceilings is not None:
        write_value(run, CEILINGS_FILE, observed.ceilings)


def _lasted_s(measurement: Measurement) -> float:
    return 0.0 if measurement.training is None else measurement.training.lasted_s


def _read_saved(run: Run) -> tuple[TrainingDocument, ...]:
    """Return the saved trainings, the longest first.

    Raises:
        OSError, DamagedRunError: one of the files is missing or damaged.
    """
    first = _read_part(run, None)
    known = first.measurement.training
    if known is None:
        return (first,)
    others = (n for n in range(1, known.num_trainings + 1) if n != known.number)
    return (first, *(_read_part(run, number) for number in others))


def _read_part(run: Run, number: int | None) -> TrainingDocument:
    measurement = read_value(run, numbered_name(MEASUREMENT, number), Measurement)
    known = measurement.training
    return TrainingDocument(
        number=number or (1 if known is None else known.number),
        measurement=measurement,
        diagnosis=read_value(run, numbered_name(DIAGNOSIS, number), Diagnosis),
    )


def _numbered(run: Run, number: int, saved: Sequence[TrainingDocument]) -> TrainingDocument:
    has_steps = saved[0].measurement.num_steps > 0
    for part in saved:
        if part.number == number and has_steps:
            return part
    raise no_such_training(run.run_id, number, len(saved) if has_steps else 0)


def _in_order(saved: Sequence[TrainingDocument]) -> tuple[TrainingDocument, ...]:
    """Return several trainings in the order of start, and nothing for a training alone."""
    return tuple(sorted(saved, key=lambda part: part.number)) if len(saved) > 1 else ()
