"""Compares two sets of runs: what was changed between them, and how the step time changed.

In: runs, by id, path or value. Out: a `RunComparison`. Other runs of the same scripts in the same
stores show how much equal runs differ.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steptime.app.run.observed_run import ObservedRun
from steptime.app.stored.load import find_all, fold_now, load_measurement, load_run
from steptime.app.stored.run_listing import list_runs
from steptime.compare import judge
from steptime.compare.facts import take_run
from steptime.compare.traits import script_of
from steptime.compare.values import ComparedRun, CompareOutcome, Comparison, Effect
from steptime.core.store import Run, read_value
from steptime.errors import DamagedRunError, SteptimeError, StoreError, UsageError
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import Measurement
from steptime.report.blocks.run.training_blocks import name_trainings
from steptime.report.text.plain_text import Shown

if TYPE_CHECKING:
    from rich.console import Console

MAX_STORED = 60
"""To see how much equal runs differ, at most so many runs of the store are read, newest first."""

Side = str | os.PathLike[str] | ObservedRun | Sequence[str | os.PathLike[str] | ObservedRun]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunComparison(Shown):
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

    def render(self, console: Console) -> None:
        """Write the report to a console of rich."""
        from steptime.report.blocks.compare.comparison_report import (
            ComparisonRequest,
            comparison_report,
        )
        from steptime.report.text.paint_text import print_report

        report = comparison_report(self.comparison, asked=ComparisonRequest())
        print_report(report, console=console)

    def __repr__(self) -> str:
        num_a, num_b = len(self.comparison.a), len(self.comparison.b)
        return f"<RunComparison of {num_a} and {num_b} runs: {self.outcome.value}>"


def compare(
    a: Side,
    b: Side,
    *,
    store: str | os.PathLike[str] = ".",
    limit: float | None = None,
    training: int | None = None,
    in_pairs: bool = False,
    by_cpu: bool = False,
) -> RunComparison:
    """Return what was changed between the runs of A and those of B, and how the step time changed.

    Compare at least three runs on each side: one run says nothing about how much runs differ.

    Args:
        a: a run or several: ids, `last`, `last~1`, paths of run folders, or `ObservedRun` values.
        b: those that A is compared with.
        store: the folder that holds `.steptime`, for ids.
        limit: judge whether B is slower by more than this fraction; the answer is in
            `comparison.gate`.
        training: which training is compared of each run whose command had several, from 1 on. An
            `ObservedRun` is compared as it is.
        in_pairs: the n-th run of A and the n-th of B were made side by side, and what the machine
            did to both does not count.
        by_cpu: compare the CPU time of a step, which other programs lengthen least; waiting is not
            in it.

    Raises:
        NotFoundError: there is no such run, or no such training in it.
        UsageError: the command of a run had several trainings, and none was named; or there are
            not as many runs of A as of B to make pairs.
        DamagedRunError: the files of a run cannot be understood.

    Example:
        >>> print(steptime.compare(["last~3", "last~1"], ["last~2", "last"]))  # doctest: +SKIP
    """
    named = _members(a), _members(b)
    for name, side in zip("AB", named, strict=True):
        if not side:
            raise UsageError(f"no run of {name} was named.")
    runs_a, runs_b = (_named(side, store, training) for side in named)
    return RunComparison(comparison=compare_runs(runs_a, runs_b, limit=limit, in_pairs=in_pairs))


NamedRun = tuple[Run, int | None]
"""A run that was found, and the number of the training that is meant, if it has several."""


def compare_runs(
    a: Sequence[NamedRun],
    b: Sequence[NamedRun],
    *,
    limit: float | None,
    in_pairs: bool = False,
    by_cpu: bool = False,
) -> Comparison:
    """Return the same for runs that were already found."""
    if in_pairs and len(a) != len(b):
        raise UsageError(
            f"pairs need as many runs of A as of B, got {len(a)} and {len(b)}.",
            hint="Name the runs of A and B in the order in which they were made side by side.",
        )
    read_a, read_b = (
        [read_run(run, training=number, by_cpu=by_cpu) for run, number in side] for side in (a, b)
    )
    needs_stored = not in_pairs and judge.wants_stored(read_a, read_b)
    stored = stored_runs([*a, *b], by_cpu=by_cpu) if needs_stored else []
    found = judge.compare(read_a, read_b, stored=stored, limit=limit, in_pairs=in_pairs)
    return replace(found, by_cpu=by_cpu)


def _members(side: Side) -> Sequence[str | os.PathLike[str] | ObservedRun]:
    return (side,) if isinstance(side, (str, os.PathLike, ObservedRun)) else side


def _named(
    side: Sequence[str | os.PathLike[str] | ObservedRun],
    store: str | os.PathLike[str],
    training: int | None,
) -> list[NamedRun]:
    words = [one for one in side if not isinstance(one, ObservedRun)]
    runs = iter(find_all(words, store=store))
    found = list[NamedRun]()
    for one in side:
        if isinstance(one, ObservedRun):
            own = one.measurement.training
            number = None if own is None else own.number
            found.append((one.run, number))
        else:
            found.append((next(runs), training))
    return found


def read_run(run: Run, *, training: int | None = None, by_cpu: bool = False) -> ComparedRun:
    """Return the run as it is compared; if an older Steptime measured it, it is folded again.

    Raises:
        UsageError: the run has several trainings, and none was named.
        SteptimeError: it is damaged, of another schema, or cannot be read.
    """
    try:
        record = read_value(run, "command.json", CommandRecord)
        measurement = load_measurement(run)
        number = _number_in(run, measurement, training)
        if number is not None:
            measurement = load_measurement(run, training=number)
        steady = measurement.steady
        if steady is not None and steady.num_steps and steady.mean_s is None:
            measurement = fold_now(run, training=number).measurement
    except DamagedRunError as error:
        raise DamagedRunError(
            f"the run {run.run_id} cannot be compared: {error}", hint=error.hint
        ) from error
    except OSError as error:
        raise StoreError(f"the run in {run.folder} cannot be read: {error}") from error
    place = str(run.folder) if number is None else f"{run.folder} (training {number})"
    found = take_run(measurement, record, place=place, by_cpu=by_cpu)
    return replace(found, run_id=run.run_id, training=number)


def _number_in(run: Run, measurement: Measurement, training: int | None) -> int | None:
    """Return which of several trainings is meant; None for a run that has one.

    Raises:
        UsageError: the run has several, and none was named.
    """
    own = measurement.training
    if own is None or own.is_alone:
        return None
    if training is None:
        parts = load_run(run).parts
        raise UsageError(
            f"run {run.run_id} has {own.num_trainings} trainings: {name_trainings(parts)}.",
            hint="Say which one is compared: --training N",
        )
    return training


def stored_runs(named: Sequence[NamedRun], *, by_cpu: bool = False) -> list[ComparedRun]:
    """Return other sound runs of the same scripts from the stores of the named runs."""
    found = []
    named_runs = [run for run, _ in named]
    training = next((number for _, number in named if number is not None), None)
    scripts = {script for run in named_runs if (script := _script_at(run)) is not None}
    folders = {run.folder for run in named_runs}
    for store in dict.fromkeys(r.store for r in named_runs if r.folder.parent.name == "runs"):
        with suppress(StoreError):
            rows = [row for row in list_runs(store) if script_of(row.command) in scripts]
            runs = [Run(run_id=r.run_id, folder=store / "runs" / r.run_id) for r in rows]
            others = [run for run in runs if run.folder not in folders]
            for run in others[:MAX_STORED]:
                with suppress(SteptimeError):
                    found.append(read_run(run, training=training, by_cpu=by_cpu))
    return found


def _script_at(run: Run) -> str | None:
    try:
        return script_of(read_value(run, "command.json", CommandRecord).argv)
    except (OSError, DamagedRunError):
        return None  # reading the run itself reports this
