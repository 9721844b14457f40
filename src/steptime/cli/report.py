"""`steptime report`: one page about one run, study or fit, to read and to share."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.options import ID, JSON, STORE, find_named
from steptime.cli.output import check_target, write_json

if TYPE_CHECKING:
    from steptime.app.kept.kept import Stored

SUMMARY = "write an HTML page about a run, a study or a fit"
DESCRIPTION = "Write one HTML page about a run, a study or a fit: a single file."
USAGE = "steptime report [ID] [options]"
EXAMPLES = """\
The path of the page is printed, and the page is opened if there is a screen.

examples:
  steptime report last
  steptime report last -o monday.html --no-open
  steptime report last --training 2
  steptime report study
"""
OPTIONS = (
    ID
    + """\
  --training N  draw training N of a command that started several
output:
  -o, --output FILE  write the page to FILE; without it, it lies beside what it shows
  --no-open  do not open the page in a browser
"""
    + JSON
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    check_target("--output", options.output)
    from steptime.report.document.envelope import enclose
    from steptime.report.document.listings import PageDocument

    kept = find_named(options, of_run=["--training"])
    target = None if options.output is None else Path(options.output).absolute()
    page = str(_write(options, kept, target))
    if options.json is not None:
        document = PageDocument(id=kept.id, kind=kept.kind, page=page)
        write_json(options.json, enclose("report", document))
        return 0
    from steptime.core.printable import printable

    print(printable(page))
    if not options.no_open and _has_screen():
        import webbrowser

        webbrowser.open(Path(page).as_uri())
    return 0


def _write(options: argparse.Namespace, kept: Stored, target: Path | None) -> Path:
    """Write the page of a run, of a study or of a fit; return its path."""
    if kept.kind == "runs":
        from steptime.app.stored.load import load_run
        from steptime.app.stored.report import write_page
        from steptime.core.store import Run

        run = Run(run_id=kept.id, folder=kept.folder)
        return write_page(load_run(run, training=options.training), target)
    if kept.kind == "studies":
        from steptime.app.study.study_listing import read_study
        from steptime.app.study.study_page import write_study_page

        return write_study_page(read_study(kept.folder), kept.folder, target=target)
    from steptime.app.fit.fit import read_fit, write_fit_page

    return write_fit_page(read_fit(kept.folder), kept.folder, target=target)


def _has_screen() -> bool:
    """Return whether there is a screen: a browser that runs in a terminal would take it over."""
    if not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
