"""Turns a release file with its tables, its experiments and its ledger into a question."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from steptime.app.verify.release.effect_tables import read_experiments
from steptime.app.verify.release.erosion_ledger import read_ledger
from steptime.app.verify.release.release_file import read_release
from steptime.app.verify.release.release_tables import read_tables
from steptime.errors import MissingExtraError
from steptime.verify.release.release_question import ReleaseQuestion

_LIBRARIES = ("pyarrow", "scipy", "statsmodels", "ville")


def read_question(path: Path) -> ReleaseQuestion:
    """Return the question that a file asks with its tables.

    Raises:
        SteptimeError: of the file, its tables, its experiments or its ledger.
        MissingExtraError: the extra `verify-model` is not installed.
    """
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        what = f"Judging a release needs {missing[0]}, which is not installed."
        raise MissingExtraError(what, needs="steptime[verify-model]")
    file = read_release(path)
    ledger = () if file.erosion is None else read_ledger(path.parent / file.erosion.ledger)
    read = read_tables(file, path.parent)
    return ReleaseQuestion(
        file=file,
        measured=read.measured,
        missing=read.missing,
        experiments=read_experiments(file, path.parent),
        checks=tuple(read.checks),
        ledger=tuple(one for one in ledger if one.release != file.release),
    )
