"""What `steptime compare` does: read the runs and those stored beside them, compare, report."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from steptime.app.run_listing import find_run, list_runs, read_end, run_at
from steptime.cli.compare import CompareOptions
from steptime.cli.output import STDOUT, console_for, open_store, write_json
from steptime.cli.results import fold, load_measurement
from steptime.compare.facts import take_run
from steptime.compare.judge import compare, wants_stored
from steptime.compare.traits import script_of
from steptime.compare.values import ComparedRun, CompareOutcome, Comparison, GateOutcome
from steptime.core.store import Run, read_value
from steptime.errors import DamagedRunError, SteptimeError, StoreError
from steptime.launch.values import CommandRecord
from steptime.report.document.comparison_document import comparison_envelope
from steptime.report.text.compare_text import ComparisonRequest, render_comparison

MAX_STORED = 60
"""Runs of the store that are looked at for how much equal runs differ, the newest first."""


def report_comparison(options: CompareOptions) -> int:
    """Compare, say what was found where the options say; the exit code."""
    runs = _Runs(options.store)
    named = [[runs.find(name) for name in side] for side in (options.a, options.b)]
    a, b = ([read_run(run) for run in side] for side in named)
    stored = stored_runs([*named[0], *named[1]]) if wants_stored(a, b) else []
    found = compare(a, b, stored=stored, limit=options.limit)
    code = exit_code_of(found, is_forced=options.is_forced)
    asked = ComparisonRequest(price=options.price, is_forced=options.is_forced)
    if options.json is not None:
        write_json(options.json, comparison_envelope(found, asked=asked, exit_code=code))
    if options.json != STDOUT:
        render_comparison(found, asked=asked, console=console_for(sys.stdout))
    return code


def exit_code_of(found: Comparison, *, is_forced: bool) -> int:
    """What the process ends with; the gate says 0 only where it was judged to be passed."""
    is_final = found.outcome is CompareOutcome.NOT_COMPARABLE
    if found.gate is None:
        return 2 if is_final else 4 if found.outcome is CompareOutcome.TOO_NOISY else 0
    if any(obstacle.code == "failed" for obstacle in found.obstacles):
        return 3
    if is_final or (found.obstacles and not is_forced):
        return 2
    return {GateOutcome.PASSED: 0, GateOutcome.FAILED: 5}.get(found.gate.outcome, 4)


class _Runs:
    """Finds runs by id in the store, which is opened once it is needed, or by path."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.store: Path | None = None

    def find(self, name: str) -> Run:
        path = Path(name)
        if os.sep in name or (path / "command.json").is_file():
            return run_at(path)
        if self.store is None:
            self.store = open_store(self.folder)
        return find_run(self.store, name)


def read_run(run: Run) -> ComparedRun:
    """The run as it is compared; one measured by an older Steptime is folded anew.

    Raises:
        SteptimeError: it is damaged, of another schema, or cannot be read.
    """
    try:
        record = read_value(run, "command.json", CommandRecord)
        measurement = load_measurement(run)
        steady = measurement.steady
        if steady is not None and steady.num_steps and steady.mean_s is None:
            measurement = fold(run, read_end(run)).measurement
    except DamagedRunError as error:
        raise DamagedRunError(
            f"the run {run.run_id} cannot be compared: {error}", hint=error.hint
        ) from error
    except OSError as error:
        raise StoreError(f"the run in {run.folder} cannot be read: {error}") from error
    found = take_run(measurement, record, place=str(run.folder))
    return replace(found, run_id=run.run_id)


def stored_runs(named: list[Run]) -> list[ComparedRun]:
    """Other runs of the same scripts in the stores of the named ones, as far as they are sound."""
    found = []
    scripts = {script for run in named if (script := _script_at(run)) is not None}
    folders = {run.folder for run in named}
    for store in dict.fromkeys(run.store for run in named if run.folder.parent.name == "runs"):
        with suppress(StoreError):
            rows = [row for row in list_runs(store) if script_of(row.command) in scripts]
            runs = [Run(run_id=r.run_id, folder=store / "runs" / r.run_id) for r in rows]
            others = [run for run in runs if run.folder not in folders]
            for run in others[:MAX_STORED]:
                with suppress(SteptimeError):
                    found.append(read_run(run))
    return found


def _script_at(run: Run) -> str | None:
    try:
        return script_of(read_value(run, "command.json", CommandRecord).argv)
    except (OSError, DamagedRunError):
        return None  # said when the run itself is read
