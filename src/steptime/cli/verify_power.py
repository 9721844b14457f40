"""`steptime verify power`: how many runs a margin needs, and what a number of runs decides."""

from __future__ import annotations

import argparse
import sys

from steptime.cli.options import add_json, check_json
from steptime.cli.output import console_for, write_json
from steptime.errors import UsageError

SUMMARY = "say how many runs a margin needs"
DESCRIPTION = """\
Say how many runs of each arm decide a margin in 8 or 9 of 10 cases where there
is no true difference, and which margins usual numbers of runs decide.
"""
USAGE = "steptime verify power --sd SD [--margin M | --runs N] [options]"
EXAMPLES = """\
examples:
  steptime verify power --sd 0.006 --margin 0.01
  steptime verify power --sd 0.006 --pilots 3 --margin 0.01   # SD of 3 runs
  steptime verify power --sd 0.006 --runs 5
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `verify power`."""
    parser.add_argument(
        "--sd",
        metavar="SD",
        type=float,
        required=True,
        help="standard deviation of the metric from seed to seed",
    )
    parser.add_argument(
        "--pilots",
        metavar="N",
        type=int,
        help="the SD is of N runs: plan with what it may be at most",
    )
    parser.add_argument(
        "--margin", metavar="M", type=float, help="the loss that does not matter, in its unit"
    )
    parser.add_argument("--runs", metavar="N", type=int, help="runs of each arm that you can make")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Print what runs can decide."""
    check_json(options)
    from steptime.verify.convergence.power_plan import plan_power

    try:
        plan = plan_power(
            options.sd, margin=options.margin, num_runs=options.runs, pilots=options.pilots
        )
    except ValueError as error:
        raise UsageError(f"--{error}.".replace("--num_runs", "--runs")) from error
    if options.json is not None:
        from steptime.report.document.envelope import enclose

        write_json(options.json, enclose("verify power", plan))
    else:
        from steptime.report.blocks.verify.verdict_report import power_blocks
        from steptime.report.text.paint_text import print_blocks

        print_blocks(power_blocks(plan), console=console_for(sys.stdout))
    return 0
