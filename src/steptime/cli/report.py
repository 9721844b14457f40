"""`steptime report`: one page about one run, to read and to share."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from steptime.cli.options import (
    add_json,
    add_run_id,
    add_store,
    add_training,
    check_json,
    store_folder,
)
from steptime.cli.output import check_target, open_store, write_json

SUMMARY = "write an HTML page about a run, with its course over time"
DESCRIPTION = "Write one HTML page about a run: a single file that needs no network."
USAGE = "steptime report ID [options]"
EXAMPLES = """\
The path of the page is printed, and the page is opened if there is a screen.
Its plots need an extra: pip install 'steptime[report]'

examples:
  steptime report last
  steptime report last -o monday.html --open-never
  steptime report last --training 2
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `report`."""
    add_run_id(parser)
    add_training(parser, what="draw")
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the page to FILE (default: report.html in the folder of the run)",
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
    from steptime.app.load import load_run
    from steptime.app.report import write_page
    from steptime.app.run_listing import find_run
    from steptime.report.document.envelope import enclose
    from steptime.report.document.listings import PageDocument

    run = find_run(open_store(store_folder(options)), options.run)
    target = None if options.output is None else Path(options.output).absolute()
    path = write_page(load_run(run, training=options.training), target)
    if options.json is None:
        from steptime.core.printable import printable

        print(printable(str(path)))
        if not options.open_never and _has_screen():
            import webbrowser

            webbrowser.open(path.as_uri())
    else:
        document = PageDocument(run_id=run.run_id, page=str(path))
        write_json(options.json, enclose("report", document))
    return 0


def _has_screen() -> bool:
    """Return whether there is a screen: a browser that runs in a terminal would take it over."""
    if not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
