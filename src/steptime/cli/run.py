"""`steptime run`: start the command, wait for it, say what was seen."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.command import take_command
from steptime.cli.options import add_store, store_folder
from steptime.cli.output import check_target
from steptime.cli.profiling import add_profile_options, take_profile_wish

if TYPE_CHECKING:
    from steptime.measure.values.profiled import ProfileWish

SUMMARY = "measure a training command, unmodified"
DESCRIPTION = "Run a training command as it is, measure its steps, and say what holds it back."
USAGE = "steptime run [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
The command keeps its input, output, signals and exit code. When it has ended,
the report goes to stderr.

examples:
  steptime run -- python train.py --lr 3e-4
  steptime run --json result.json -- torchrun --nproc-per-node 2 train.py
  steptime run --count -- python train_compiled.py
  steptime run --profile -- python train.py
  steptime run --live -- python train.py > train.log 2>&1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line of `run` says."""

    command: tuple[str, ...]
    store: Path
    report: str | None
    json: str | None
    recipe: Path | None = None
    counts: bool = False
    profile: ProfileWish | None = None
    ncu: str | None = None
    perf: bool = False
    is_live: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    training = parser.add_argument_group("training")
    training.add_argument("--recipe", metavar="FILE", help="train with what `tune` has proven")
    training.add_argument(
        "--count",
        action="store_true",
        help="count the work of a step in a short extra run where the script compiles",
    )
    add_profile_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--report", metavar="FILE", help="write the report there, as plain text")
    output.add_argument("--json", metavar="FILE", help="write the result as one JSON document")
    output.add_argument(
        "--live",
        action="store_true",
        help="show one line while it runs, if its output goes elsewhere",
    )
    add_store(output)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def execute(options: argparse.Namespace) -> int:
    """Run the command; the exit code is its own."""
    settings = _settings(options)
    from steptime.cli.supervise import supervise

    return supervise(settings)


def _settings(options: argparse.Namespace) -> RunOptions:
    command = take_command(options, verb="run", usage=USAGE)
    check_target("--report", options.report)
    check_target("--json", options.json)
    return RunOptions(
        command=command,
        store=Path(store_folder(options)),
        report=options.report,
        json=options.json,
        counts=options.count,
        profile=take_profile_wish(options),
        ncu=options.ncu,
        perf=options.perf,
        recipe=None if options.recipe is None else Path(options.recipe),
        is_live=options.live,
    )
