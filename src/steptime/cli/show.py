"""`steptime show`: the report of one run again."""

from __future__ import annotations

import argparse
import sys

from steptime.cli.options import add_json, add_store, check_json, store_folder
from steptime.cli.output import console_for, open_store, write_json

SUMMARY = "print the report of a run again"
DESCRIPTION = "Print the report of a run; of one that still runs, as far as it got."
USAGE = "steptime show ID [options]"
EXAMPLES = """\
examples:
  steptime show last
  steptime show 20261120-1015 --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `show`."""
    parser.add_argument("run", metavar="ID", help="run id, its beginning, or `last`")
    output = parser.add_argument_group("output")
    add_json(output)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Print what is known about the run."""
    check_json(options)
    from steptime.cli.results import load
    from steptime.core.listing import find_run
    from steptime.report.envelope import run_envelope
    from steptime.report.text import render

    result = load(find_run(open_store(store_folder(options)), options.run))
    if options.json is None:
        render(result.measurement, result.diagnosis, console=console_for(sys.stdout))
    else:
        document = run_envelope(result.measurement, result.diagnosis, command="show", exit_code=0)
        write_json(options.json, document)
    return 0
