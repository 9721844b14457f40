"""Compares two sets of runs: what was changed between them, and how the step time changed.

In: runs, by id, path or value. Out: a `RunComparison`. Other runs of the same scripts in the same
stores show how much equal runs differ.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from steptime.app.load import find, fold, load_measurement
from steptime.app.observed_run import ObservedRun
from steptime.app.plain_text import WIDTH, as_html, plain_text
from steptime.app.run_listing import list_runs, read_end
from steptime.compare import judge
from steptime.compare.facts import take_run
from steptime.compare.traits import script_of
from steptime.compare.values import ComparedRun, CompareOutcome, Comparison, Effect
from steptime.core.store import Run, read_value
from steptime.errors import DamagedRunError, SteptimeError, StoreError, UsageError
from steptime.launch.values import CommandRecord

MAX_STORED = 60
"""To see how much equal runs differ, at most so many runs of the store are read, newest first."""

Side = str | os.PathLike[str] | ObservedRun | Sequence[str | os.PathLike[str] | ObservedRun]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunComparison:
    """Two sets of runs, compared. `print(comparison)` shows the report of the terminal.

    Attributes:
        comparison: all that was found.
    """

    comparison: Comparison

    @property
    def outcome(self) -> CompareOutcome:
        """Whether B is slower, faster, the same, too noisy to say, or not comparable."""
        return self.comparison.outcome

    @property
    def step(self) -> Effect | None:
        """The step times of A and of B with their difference; None if a run has none."""
        return self.comparison.step

    def text(self, *, width: int = WIDTH) -> str:
        """Return the report as plain text, folded to `width` columns; commands are not folded."""
        from steptime.report.text.compare_text import ComparisonRequest, render_comparison

        return plain_text(
            lambda console: render_comparison(
                self.comparison, asked=ComparisonRequest(), console=console
            ),
            width=width,
        )

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    def __repr__(self) -> str:
        num_a, num_b = len(self.comparison.a), len(self.comparison.b)
        return f"<RunComparison of {num_a} and {num_b} runs: {self.outcome.value}>"

    def _repr_html_(self) -> str:
        return as_html(str(self))


def compare(
    a: Side, b: Side, *, store: str | os.PathLike[str] = ".", limit: float | None = None
) -> RunComparison:
    """Return what was changed between the runs of A and those of B, and how the step time changed.

    Compare at least three runs on each side: one run says nothing about how much runs differ.

    Args:
        a: a run or several: ids, `last`, `last~1`, paths of run folders, or `ObservedRun` values.
        b: those that A is compared with.
        store: the folder that holds `.steptime`, for ids.
        limit: judge whether B is slower by more than this fraction; the answer is in
            `comparison.gate`.

    Raises:
        NotFoundError: there is no such run.
        DamagedRunError: the files of a run cannot be understood.

    Example:
        >>> print(steptime.compare(["last~3", "last~1"], ["last~2", "last"]))  # doctest: +SKIP
    """
    named = _members(a), _members(b)
    for name, side in zip("AB", named, strict=True):
        if not side:
            raise UsageError(f"no run of {name} was named.")
    runs_a, runs_b = ([_run_of(one, store) for one in side] for side in named)
    return RunComparison(comparison=compare_runs(runs_a, runs_b, limit=limit))


def compare_runs(a: Sequence[Run], b: Sequence[Run], *, limit: float | None) -> Comparison:
    """Return the same for runs that were already found."""
    read_a, read_b = ([read_run(run) for run in side] for side in (a, b))
    needs_stored = judge.wants_stored(read_a, read_b)
    stored = stored_runs([*a, *b]) if needs_stored else []
    return judge.compare(read_a, read_b, stored=stored, limit=limit)


def _members(side: Side) -> Sequence[str | os.PathLike[str] | ObservedRun]:
    return (side,) if isinstance(side, (str, os.PathLike, ObservedRun)) else side


def _run_of(one: str | os.PathLike[str] | ObservedRun, store: str | os.PathLike[str]) -> Run:
    return one.run if isinstance(one, ObservedRun) else find(one, store=store)


def read_run(run: Run) -> ComparedRun:
    """Return the run as it is compared; if an older Steptime measured it, it is folded again.

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
    """Return other sound runs of the same scripts from the stores of the named runs."""
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
        return None  # reading the run itself reports this
