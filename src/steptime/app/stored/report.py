"""Writes the page of a run: from its folder to one HTML file."""

from __future__ import annotations

from contextlib import suppress
from itertools import dropwhile, islice
from pathlib import Path

from steptime.app.run.observed_run import ObservedRun, numbered_name
from steptime.app.stored.compare import compare_runs
from steptime.app.stored.kept_ceilings import record_of
from steptime.app.stored.page_file import write_page_file
from steptime.app.stored.run_listing import list_runs
from steptime.compare.values import Comparison
from steptime.core.store import Run, store_to_name
from steptime.core.version import installed_version
from steptime.diagnose.ailments.ranks.stalled import relevant_stalls
from steptime.errors import SteptimeError
from steptime.measure.series.run_series import read_series
from steptime.report.blocks.run.run_report import PageFacts
from steptime.report.html.run_page import render_page

NAME = "report.html"

_MAX_LOOKED_AT = 200
"""Older runs that are looked through for one of the same command."""


def write_page(observed: ObservedRun, target: Path | None = None) -> Path:
    """Write the page into the run's folder or to another file; return its path.

    Raises:
        StoreError: the file cannot be written.
    """
    page = render_page(gather_facts(observed))
    return write_page_file(page, observed.folder / _page_name(observed), target)


def _page_name(observed: ObservedRun) -> str:
    """Return the name of the page; of several trainings, each has its own but the longest."""
    own = observed.measurement.training
    known = [part.measurement.training for part in observed.parts]
    longest = max((one for one in known if one), key=lambda one: one.lasted_s, default=own)
    return numbered_name(NAME, None if own is None or own == longest else own.number)


def gather_facts(observed: ObservedRun) -> PageFacts:
    """Return what the page of a run shows."""
    return PageFacts(
        document=observed.document,
        record=record_of(observed.run),
        series=observed.series or read_series(observed.folder, observed.measurement),
        stalls=relevant_stalls(observed.measurement),
        shifts=observed.diagnosis.shifts,
        version=installed_version(),
        store=store_to_name(observed.run.store),
        previous=_beside_previous(observed),
    )


def _beside_previous(observed: ObservedRun) -> Comparison | None:
    """Compare with the run before it of the same command; None where there is none to compare."""
    run, command = observed.run, observed.measurement.command
    with suppress(SteptimeError, OSError):
        rows = iter(list_runs(run.store))
        older = dropwhile(lambda row: row.run_id != run.run_id, rows)
        for row in islice(older, 1, _MAX_LOOKED_AT):
            if row.command == command and row.step_time_s is not None:
                before = Run(run_id=row.run_id, folder=run.folder.parent / row.run_id)
                found = compare_runs([(before, None)], [(run, None)], limit=None)
                return None if found.step is None else found
    return None
