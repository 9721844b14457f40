"""Lists what a store keeps, for `steptime list`.

In: a store. Out: its document.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from steptime.app.kept.kept import Stored, list_kept
from steptime.app.stored.run_listing import is_settled, list_runs, opening_of, reindex
from steptime.app.study.study_listing import list_studies
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run
from steptime.errors import SteptimeError
from steptime.measure.values.run_summary import RunSummary
from steptime.report.document.listings import KeptSummary, ListDocument, summarize


def list_current_runs(store: Path, *, is_fresh: bool = False) -> tuple[RunSummary, ...]:
    """Return all runs of a store, newest first; `is_fresh` builds its index again."""
    rows = reindex(store) if is_fresh else list_runs(store)
    return tuple(_bring_up_to_date(row, store) if _is_behind(row) else row for row in rows)


def _is_behind(row: RunSummary) -> bool:
    is_over = ProcessEnd(state=row.state).is_over
    return row.state is RunState.STILL_TRAINING or (is_over and not is_settled(row))


def _bring_up_to_date(row: RunSummary, store: Path) -> RunSummary:
    """Return the row with what the record says now; as it is if the record cannot be read."""
    from steptime.app.stored.load import load_run  # few lists need it

    run = Run(run_id=row.run_id, folder=store / "runs" / row.run_id)
    try:
        observed = load_run(run)
    except (SteptimeError, OSError):
        return row
    measured = observed.measurement
    time = None if measured.steady is None else measured.steady.step_time_s
    return replace(
        row,
        state=measured.end.state,
        exit_code=measured.end.exit_code,
        signal=measured.end.signal,
        num_steps=measured.num_steps,
        step_time_s=None if time is None else time.estimate,
        kind=observed.diagnosis.kind.value,
        opens_with=opening_of(observed.diagnosis),
    )


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
