"""`steptime verify power`: how many runs a margin needs, and what a number of runs decides."""

from __future__ import annotations

import argparse

from steptime.cli.options import JSON
from steptime.cli.output import put
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
OPTIONS = (
    """\
  --sd X  standard deviation of the metric from seed to seed (required)
  --pilots N  the SD is of N runs: plan with what it may be at most
  --margin X  the loss that does not matter, in its unit
  --runs N  runs of each arm that you can make
"""
    + JSON
)


def execute(options: argparse.Namespace) -> int:
    """Print what runs can decide."""
    from steptime.report.blocks.verify.verdict_report import power_blocks
    from steptime.report.document.envelope import enclose
    from steptime.verify.convergence.power_plan import plan_power

    try:
        plan = plan_power(
            options.sd, margin=options.margin, num_runs=options.runs, pilots=options.pilots
        )
    except ValueError as error:
        raise UsageError(f"--{error}.".replace("--num_runs", "--runs")) from error
    put(options, enclose("verify power", plan), lambda: power_blocks(plan))
    return 0
