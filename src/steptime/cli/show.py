"""`steptime show`: the report of one run again."""

from __future__ import annotations

import argparse
import sys
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
from steptime.cli.output import console_for, open_store, write_json
from steptime.cli.profilers import add_counter_options, write_counters
from steptime.errors import NotFoundError, SteptimeError, UsageError

if TYPE_CHECKING:
    from steptime.core.store import Run

SUMMARY = "print the report of a run again"
DESCRIPTION = """\
Print the report of a run again. If the command is still running, or a training
that it left in the background, the report covers what has happened so far.
"""
USAGE = "steptime show ID [options]"
EXAMPLES = """\
examples:
  steptime show last --waterfall
  steptime show 20261120-1015 --json
  steptime show last --training 2
  steptime show last --perf
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `show`."""
    add_run_id(parser)
    add_training(parser, what="show")
    add_counter_options(parser.add_argument_group("counters, for a run that was profiled"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--waterfall",
        action="store_true",
        help="show where the time of a step goes, compared with what this machine can reach",
    )
    add_json(output)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Print what is known about the run."""
    check_json(options)
    if options.json is not None and (options.ncu is not None or options.perf):
        raise UsageError(
            "--json cannot be combined with --ncu or --perf: those print a command.",
            hint="Leave --json out.",
        )
    if options.json is not None and options.waterfall:
        raise UsageError(
            "--waterfall has no effect with --json: the document always holds the waterfall.",
            hint="Leave --waterfall out.",
        )
    from steptime.app.stored.load import load_run
    from steptime.core.store import store_to_name
    from steptime.report.blocks.run.run_report import picture_report
    from steptime.report.document.run_document import run_envelope
    from steptime.report.text.paint_text import print_report
    from steptime.report.text.print_run import render

    run = _find(open_store(store_folder(options)), options)
    document = load_run(run, training=options.training).document
    console = console_for(sys.stdout)
    if options.json is not None:
        write_json(options.json, run_envelope(document, command="show", exit_code=0))
    elif options.waterfall:
        print_report(picture_report(document), console=console)
    else:
        render(document, console=console, store=store_to_name(run.store))
    if options.json is None:
        write_counters(document.measurement, console, kernel=options.ncu, perf=options.perf)
    return 0


def _find(store: Path, options: argparse.Namespace) -> Run:
    """Return the run.

    Raises:
        NotFoundError: there is none; of the id of a study, it names the command that shows it.
    """
    from steptime.app.stored.run_listing import find_run
    from steptime.app.study.study_listing import find_study

    try:
        return find_run(store, options.run)
    except NotFoundError as error:
        try:
            study = find_study(store, options.run)
        except SteptimeError:
            raise error from None
        hint = f"It is a study: steptime study show {study.study_id}"
        raise NotFoundError(str(error), hint=hint) from error
