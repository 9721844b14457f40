"""`steptime report`: one page about one run, or about one study, to read and to share."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.options import (
    add_json,
    add_run_id,
    add_store,
    add_training,
    check_json,
    store_folder,
)
from steptime.cli.output import check_target, open_store, write_json
from steptime.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from steptime.report.document.listings import PageDocument

SUMMARY = "write an HTML page about a run or a study, to read and to share"
DESCRIPTION = "Write one HTML page about a run or a study: a single file that needs no network."
USAGE = "steptime report ID [options]"
EXAMPLES = """\
The path of the page is printed, and the page is opened if there is a screen.
The plots of a run need an extra: pip install 'steptime[report]'

examples:
  steptime report last
  steptime report last -o monday.html --open-never
  steptime report last --training 2
  steptime report last --study
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `report`."""
    add_run_id(parser)
    add_training(parser, what="draw")
    parser.add_argument(
        "--study",
        action="store_true",
        help="ID is that of a study, and `last` the newest one (default: a run, or a study if no "
        "run has this ID)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the page to FILE (default: report.html in the folder of the run or study)",
    )
    output.add_argument(
        "--open-never", action="store_true", help="do not open the page in a browser"
    )
    add_json(output, what="write one JSON document with the path of the page, to FILE or to stdout")
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    check_target("--output", options.output)
    check_json(options)
    if options.study and options.training is not None:
        raise UsageError(
            "--training has no effect with --study: a study is of one training.",
            hint="Leave --training out.",
        )
    from steptime.report.document.envelope import enclose

    target = None if options.output is None else Path(options.output).absolute()
    document = _write(options, target)
    if options.json is None:
        from steptime.core.printable import printable

        print(printable(document.page))
        if not options.open_never and _has_screen():
            import webbrowser

            webbrowser.open(Path(document.page).as_uri())
    else:
        write_json(options.json, enclose("report", document))
    return 0


def _write(options: argparse.Namespace, target: Path | None) -> PageDocument:
    """Write the page of a run, or of a study if that is meant."""
    if options.study:
        return _write_study(options, target)
    try:
        return _write_run(options, target)
    except NotFoundError:
        if options.training is None:
            with suppress(NotFoundError):  # the sentence about runs is the one that helps
                return _write_study(options, target)
        raise


def _write_run(options: argparse.Namespace, target: Path | None) -> PageDocument:
    from steptime.app.stored.load import load_run
    from steptime.app.stored.report import write_page
    from steptime.app.stored.run_listing import find_run
    from steptime.report.document.listings import PageDocument

    run = find_run(open_store(store_folder(options)), options.run)
    path = write_page(load_run(run, training=options.training), target)
    return PageDocument(run_id=run.run_id, page=str(path))


def _write_study(options: argparse.Namespace, target: Path | None) -> PageDocument:
    from steptime.app.study.study_listing import find_study
    from steptime.app.study.study_page import write_study_page
    from steptime.report.document.listings import PageDocument

    store = open_store(store_folder(options), kind="studies")
    study = find_study(store, options.run)
    path = write_study_page(study, store / "studies" / study.study_id, target=target)
    return PageDocument(run_id=None, study_id=study.study_id, page=str(path))


def _has_screen() -> bool:
    """Return whether there is a screen: a browser that runs in a terminal would take it over."""
    if not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
