"""Turns a release file with its tables into a question, and writes an answer to the ledger."""

from __future__ import annotations

from pathlib import Path

from steptime.app.verify.release.erosion_ledger import append_release, read_ledger
from steptime.app.verify.release.experiment_tables import read_experiments
from steptime.app.verify.release.release_file import ReleaseFile, read_release
from steptime.app.verify.release.release_tables import read_tables
from steptime.errors import UsageError
from steptime.verify.release.data_needs import EXPERIMENTS
from steptime.verify.release.release_question import ReleaseQuestion
from steptime.verify.values.release_verdict import ReleaseVerdict


def read_question(path: Path) -> tuple[ReleaseFile, ReleaseQuestion]:
    """Return what a file says, and the question that it asks with its tables.

    Raises:
        SteptimeError: of the file, its tables, its experiments or its ledger.
    """
    file = read_release(path)
    prices = {one.name: one.price for one in file.tables if one.price is not None}
    if file.experiments is not None and file.experiments.price is not None:
        prices[EXPERIMENTS] = file.experiments.price
    ledger = () if file.erosion is None else read_ledger(path.parent / file.erosion.ledger)
    read = read_tables(file, path.parent)
    experiments = read_experiments(file.experiments, file.metrics, path.parent)
    known = {name for team in file.teams for name in team.components}
    strange = {one.component for one in experiments if one.component is not None} - known
    if strange:
        raise UsageError(
            f"the experiments degrade `{min(strange)}`, which is a component of no team.",
            hint="Name it in `components` of the team that builds it.",
        )
    question = ReleaseQuestion(
        release=file.release,
        team=file.team,
        teams=file.teams,
        metrics=file.metrics,
        measured=read.measured,
        missing=read.missing,
        experiments=experiments,
        checks=tuple(read.checks),
        ledger=tuple(one for one in ledger if one.release != file.release),
        prices=prices,
        currency=file.currency,
        threshold=0.5 if file.experiments is None else file.experiments.threshold,
    )
    return file, question


def record_release(path: Path, file: ReleaseFile, found: ReleaseVerdict) -> None:
    """Append a release that ships to the ledger.

    Raises:
        UsageError: the file names no ledger, or the release is in it already.
        DataError: the ledger was changed.
        StoreError: it cannot be written.
    """
    if file.erosion is None:
        raise UsageError(
            f"--record: `{path}` names no ledger.",
            hint='Name one:  [erosion] ledger = "erosion.jsonl", reference = "NAME"',
        )
    ledger = path.parent / file.erosion.ledger
    wanted = {one.name for one in file.metrics if one.erosion is not None}
    gains = {one.metric: one.gain.estimate for one in found.metrics if one.metric in wanted}
    append_release(
        ledger,
        read_ledger(ledger),
        release=file.release,
        reference=file.erosion.reference,
        gains=gains,
    )
