"""What the recipe of a run gave, against its proof and against a run without it.

In: a run with a recipe. Out: a `RecipeGain`. Neither is a proof: the proof was made at another
time, and so was the other run. `steptime tune` interleaves what it compares. Where other processes
took more of the machine beside one than beside the other, nothing is compared.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice

from steptime.app.stored.run_listing import list_runs
from steptime.compare import judge
from steptime.compare.alike import BUSY_CORES
from steptime.compare.facts import take_run
from steptime.compare.values import ComparedRun
from steptime.core.interval import Interval
from steptime.core.process_end import RunState
from steptime.core.store import Run, read_value
from steptime.errors import SteptimeError
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import RecipeUse
from steptime.report.document.run_document import RecipeGain

_MAX_READ = 20
"""Runs of the same command that are read, newest first."""


def find_gain(run: Run, measurement: Measurement) -> RecipeGain | None:
    """Return what the recipe of a run gave; None without a recipe or without a step time."""
    use, steady = measurement.recipe, measurement.steady
    if use is None or steady is None or steady.step_time_s is None:
        return None
    now = steady.step_time_s
    busy_cores = (measurement.host.others_cores if measurement.host else None) or 0.0
    missing = _why_not(use) or ("busy" if busy_cores > BUSY_CORES else None)
    gain = RecipeGain(
        step_s=now.estimate,
        written_step_s=use.written_step_s,
        proven_step_s=use.proven_step_s,
        against_proof=None if missing else _against(use.written_step_s, now),
        missing=missing,
    )
    with suppress(SteptimeError, OSError):
        return _with_runs(gain, run)
    return gain


def _why_not(use: RecipeUse) -> str | None:
    """Return why the run cannot be compared with the proof, as a machine word."""
    if use.differences:
        return "differs"
    if any(one.error is not None for one in use.levers):
        return "levers_off"
    return "no_step_times" if not use.written_step_s else None


def _against(written_s: float | None, now: Interval) -> Interval | None:
    """Return the step as written over the step now, with the interval of the latter."""
    if not written_s or now.low <= 0:
        return None
    return Interval(
        estimate=written_s / now.estimate,
        low=written_s / now.high,
        high=written_s / now.low,
        n=now.n,
    )


def _with_runs(gain: RecipeGain, run: Run) -> RecipeGain:
    """Return the gain with the comparison to runs of the command without a recipe."""
    plain, alike = _kin(run)
    if not plain or not alike:
        return gain
    found = judge.compare(plain, alike, stored=[*plain, *alike])
    change = None if found.step is None else found.step.change
    if change is None or any(obstacle.is_final for obstacle in found.obstacles):
        return gain
    # A change is B over A minus one; a speedup is A over B, so its ends change places.
    low, high = (None if end is None else 1 / (1 + end) for end in (change.high, change.low))
    return replace(
        gain,
        plain_run_id=plain[0].run_id,
        against_runs=1 / (1 + change.value),
        against_runs_low=low,
        against_runs_high=high,
        num_plain_runs=len(plain),
        num_recipe_runs=len(alike),
    )


def _kin(run: Run) -> tuple[list[ComparedRun], list[ComparedRun]]:
    """Return the finished runs of this command and folder without a recipe, and with this one.

    The newest come first; `run` is the first of the latter, and others were as busy beside all.
    """
    own = read_value(run, "command.json", CommandRecord)
    rows = (row for row in list_runs(run.store) if row.command == own.argv and row.step_time_s)
    plain: list[ComparedRun] = []
    alike = [_read(run, own)]
    for row in islice(rows, _MAX_READ):
        other = Run(run_id=row.run_id, folder=run.folder.parent / row.run_id)
        if other.run_id == run.run_id or row.state is not RunState.FINISHED:
            continue
        with suppress(SteptimeError, OSError):  # one that is damaged is none of them
            record = read_value(other, "command.json", CommandRecord)
            if record.cwd == own.cwd and record.recipe is None:
                plain.append(_read(other, record))
            elif record.cwd == own.cwd and record.recipe == own.recipe:
                alike.append(_read(other, record))
    found = ([one for one in side if _is_as_busy(one, alike[0])] for side in (plain, alike))
    return next(found), next(found)


def _is_as_busy(one: ComparedRun, other: ComparedRun) -> bool:
    a, b = one.others_cores, other.others_cores
    return a is b if a is None or b is None else abs(a - b) <= BUSY_CORES


def _read(run: Run, record: CommandRecord) -> ComparedRun:
    measurement = read_value(run, "measurement.json", Measurement)
    found = take_run(measurement, record, place=str(run.folder))
    return replace(found, run_id=run.run_id)
