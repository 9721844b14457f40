"""`steptime fit`: says whether a training fits into memory, and makes it fit."""

from __future__ import annotations

import argparse

from steptime.cli.fit.fit_answer import fit_and_report
from steptime.cli.options import (
    BESIDE,
    add_contained,
    add_json,
    add_store,
    add_training,
    check_json,
    take_command,
)
from steptime.cli.output import check_target
from steptime.errors import UsageError

SUMMARY = "say whether a training fits into memory, and make it fit"
DESCRIPTION = """\
Say how much memory a training command needs, and who holds it. If that is more
than the limit, find the cheapest settings with which it runs at the same global
batch, prove them in a run under the limit, and write them to a recipe. Where it
does not run here at all, its peak is forecast without the memory.
"""
USAGE = "steptime fit [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
examples:
  steptime fit -- python train.py                  # what is free here
  steptime fit --limit 8GiB -- python train.py
  steptime fit --on H100-80GB --gpus 8 -- python train.py
  steptime run --recipe fit.toml -- python train.py
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fit`."""
    _add_limit(parser.add_argument_group("limit"))
    trials = parser.add_argument_group("trials")
    trials.add_argument(
        "--budget",
        metavar="TIME",
        default="10m",
        help="all the time that it may take (default: 10m)",
    )
    trials.add_argument("--exclude", metavar="A,B", help="use all levers but these")
    add_contained(trials)
    trials.add_argument(
        "--measure", action="store_true", help="of a forecast: time the operators, each alone"
    )
    add_training(trials, what="fit", default="needed where a command starts several")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        metavar="FILE",
        default="fit.toml",
        help="write the recipe to FILE (default: fit.toml)",
    )
    add_json(output, what=BESIDE)
    output.add_argument(
        "--require-fit",
        action="store_true",
        help="exit with code 5 unless it fits in the end",
    )
    add_store(output)


def _add_limit(limit: argparse._ArgumentGroup) -> None:
    """Add the options that say what it must fit into."""
    limit.add_argument(
        "--limit",
        metavar="SIZE",
        help="private memory a process may have (default: what is free)",
    )
    limit.add_argument(
        "--on", metavar="PART", help="memory of an accelerator, such as H100-80GB or L40S"
    )
    limit.add_argument(
        "--gpus",
        metavar="N",
        type=int,
        help="also say what each of N would hold that share the same global batch",
    )


def execute(options: argparse.Namespace) -> int:
    """Run the fit and report it."""
    command = take_command(options, verb="fit", usage=USAGE)
    check_target("--output", options.output, is_recipe=True)
    check_json(options)
    for name in ("training", "gpus"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise UsageError(f"--{name} must be 1 or more, got {number}.")
    if options.gpus is not None and options.on is None and options.limit is None:
        raise UsageError(
            "--gpus needs the memory of one of them.", hint="Name it: --on H100-80GB --gpus 8"
        )
    return fit_and_report(options, command, verb="fit")
