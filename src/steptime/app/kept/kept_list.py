"""Lists what a store keeps, for `steptime list`.

In: a store. Out: its document.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from steptime.app.kept.kept import Stored, list_kept
from steptime.app.stored.current_runs import list_current_runs
from steptime.app.study.study_listing import list_studies
from steptime.report.document.listings import KeptSummary, ListDocument, summarize

_WITH_TABLES = ("runs", "studies")


def gather(store: Path, kinds: Sequence[str], *, is_fresh: bool = False) -> ListDocument:
    """Return what a store holds of some kinds (keys of `kept.KINDS`), the newest first.

    Raises:
        StoreError: the store cannot be read.
    """
    has_runs = "runs" in kinds and (store / "runs").is_dir()
    studies = list_studies(store) if "studies" in kinds else ()
    others = list_kept(store, [kind for kind in kinds if kind not in _WITH_TABLES])
    return ListDocument(
        store=str(store),
        runs=list_current_runs(store, is_fresh=is_fresh) if has_runs else (),
        studies=tuple(map(summarize, studies)),
        others=tuple(summary_of(one) for one in reversed(others)),
    )


def summary_of(one: Stored) -> KeptSummary:
    """Return one folder of a store as a row."""
    page = next(iter(sorted(one.folder.glob("*.html"))), None)
    return KeptSummary(
        id=one.id,
        kind=one.kind,
        changed_unix_s=round(one.folder.stat().st_mtime, 3),
        bytes=_size_of(one.folder),
        page=None if page is None else str(page),
    )


def _size_of(folder: Path) -> int:
    sizes = (
        os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(folder)
        for name in names
    )
    return sum(sizes)
