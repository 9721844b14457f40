"""The list of a store's runs, brought up to date.

In: a store. Out: its runs, newest first. A run whose report was interrupted is measured now, and of
a training that outlived its command everything is folded that came since.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from steptime.app.stored.run_listing import is_settled, list_runs, opening_of, reindex
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run
from steptime.errors import SteptimeError
from steptime.measure.values.run_summary import RunSummary


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
