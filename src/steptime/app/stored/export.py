"""Writes a run in the format of another tool: a Chrome trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from steptime.core.store import Run, store_to_name
from steptime.errors import StoreError, UsageError
from steptime.export.chrome_trace import chrome_trace
from steptime.measure.series.run_series import read_series, read_slices
from steptime.report.document.listings import ExportDocument
from steptime.report.words.run.show_words import show_command

_MAX_STEPS = 100_000
"""Above this, neighboring steps are drawn as their mean: a trace of 40 MB is slow to open."""


def write_trace(run: Run, path: Path, *, training: int | None = None) -> tuple[ExportDocument, int]:
    """Write the trace of a run, compressed if the name ends in `.gz`; return its number of steps.

    Without a step, it holds the load of the machine alone.

    Raises:
        NotFoundError: the run has no training with this number.
        UsageError: there is nothing to draw.
        StoreError: the file cannot be written.
    """
    series = read_series(run.folder, None, max_steps=_MAX_STEPS, training=training)
    if not (series.steps or series.host):
        show = show_command(run.run_id, store=store_to_name(run.store))
        raise UsageError(
            f"there is nothing to draw for run {run.run_id}: neither a step nor the load of the "
            "machine was recorded.",
            hint=f"See what is known about it: {show}",
        )
    document = chrome_trace(series, read_slices(run.folder, training), run_id=run.run_id)
    data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    try:
        path.write_bytes(gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
        size = path.stat().st_size
    except OSError as error:
        raise StoreError(f"--output: {error}") from error
    written = ExportDocument(
        run_id=run.run_id,
        format="chrome",
        path=str(path),
        bytes=size,
        num_events=len(document["traceEvents"]),
    )
    return written, len(series.steps)
