"""The page of a run: from its folder to one HTML file.

The plots need the extra `steptime[report]`; whoever asks for a page without it is told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import steptime
from steptime.cli.main import attempt
from steptime.cli.output import say
from steptime.cli.results import Result
from steptime.core.store import Run, read_value, write_text
from steptime.diagnose.ailments.stalled import relevant_stalls
from steptime.errors import DamagedRunError, MissingExtraError, StoreError
from steptime.launch.values import CommandRecord
from steptime.measure.series.run_series import read_series
from steptime.report.html.html_page import PageFacts, render_page

NAME = "report.html"
_INSTALL = "pip install 'steptime[report]'"


def write_page(run: Run, result: Result, target: Path | None = None) -> Path:
    """Write the page into the run's folder or to another file; where it is now.

    Raises:
        MissingExtraError: the plotting library is not there, or broken.
        StoreError: the file cannot be written.
    """
    plotting = _plotting()
    facts = _gather(run, result)
    roofline = result.picture.roofline
    plots = plotting.draw(facts.measurement, facts.series, facts.stalls, facts.shifts, roofline)
    page, path = render_page(facts, plots), target or run.folder / NAME
    try:
        if target is None:
            write_text(path, page)
        else:
            path.write_text(page, encoding="utf-8")  # as it stands: it may be no plain file
    except OSError as error:
        raise StoreError(
            f"the page cannot be written: {path}: {error.strerror or error}.",
            hint="Name another file with -o FILE.",
        ) from error
    return path


def offer_page(run: Run, result: Result, *, told: Sequence[str] = ()) -> None:
    """At the end of a run: the page and its place, or how to get it, in one line on stderr.

    `told` is what went wrong and was said: a full disk is not said again.
    """
    again = f"steptime report {run.run_id}"
    if find_spec("bokeh") is None:
        say(f"steptime: for a page of this run: {_INSTALL}, then: {again}")
        return

    def tell(note: str) -> None:
        reason = note.rpartition(": ")[2].rstrip(".")
        is_known = any(reason in one for one in told)
        say("not written, for the same reason" if is_known else f"not written: {note}")

    # The place follows when it is written: in a second or two, longer on a busy machine.
    say("steptime: the page of this run: ", end="")
    try:
        path = attempt(lambda: write_page(run, result), tell=tell)
    except KeyboardInterrupt:
        say(f"interrupted. Write it: {again}")
        return
    if path is not None:
        say(str(path))


def _plotting() -> ModuleType:
    try:
        from steptime.report.html import html_plots
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            f"the page is drawn with Bokeh, which cannot be used here: {error}.",
            hint=f"Install it beside Steptime: {_INSTALL}",
        ) from error
    return html_plots


def _gather(run: Run, result: Result) -> PageFacts:
    return PageFacts(
        measurement=result.measurement,
        diagnosis=result.diagnosis,
        record=_read_record(run),
        series=result.series or read_series(run.folder, result.measurement),
        stalls=relevant_stalls(result.measurement),
        shifts=result.diagnosis.shifts,
        version=steptime.__version__,
        picture=result.picture,
    )


def _read_record(run: Run) -> CommandRecord | None:
    try:
        return read_value(run, "command.json", CommandRecord)
    except (OSError, DamagedRunError):
        return None
