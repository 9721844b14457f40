"""`steptime search`: which parameters reach a quality in the least time?"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.options import (
    BESIDE,
    add_json,
    add_store,
    check_json,
    parse_time,
    store_to_write,
    take_command,
)
from steptime.cli.output import STDOUT, check_target, console_for, tell, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.app.search.search import Heard, SearchAsked
    from steptime.report.blocks.values import Sheet
    from steptime.seek.values.seek_values import SeekAnswer, SeekRun

SUMMARY = "search the parameters that reach a quality in the least time"
DESCRIPTION = """\
Search the parameters with which a training reaches a target in the least time.
Runs are contained, and are ended as soon as they have reached the target or
cannot win. Where noise decides, candidates are run again; the winner has to
hold with seeds that took no part in the choice. A search goes on where it was
ended. The exit code is 4 where it cannot be told whether the winner holds.
"""
USAGE = """steptime search --param P --metric M --target X --budget TIME [options]
                       -- COMMAND with {name} for each parameter"""
EXAMPLES = """\
examples:
  steptime search --param lr=1e-4..1e-2:log --param bs=16,32,64 --budget 2h \\
      --metric 'val ([0-9.]+)' --target 1.55 \\
      -- python train.py --lr {lr} --batch {bs} --seed {seed}
  steptime search --param lr=1e-4..1e-1:log --default lr=1e-3 --better up \\
      --metric csv:log.csv:accuracy --target 0.98 --budget 30m \\
      --recipe tuned.toml -- python train.py --lr {lr} --seed {seed}
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `search`."""
    parser.add_argument(
        "--param",
        metavar="P",
        action="append",
        default=[],
        help="lr=1e-4..1e-2:log, layers=2..8 or bs=16,32,64; once for each {name}",
    )
    parser.add_argument(
        "--metric",
        metavar="M",
        required=True,
        help="a pattern for what a run prints, csv:FILE:COLUMN, json:FILE:KEY, tb:TAG",
    )
    parser.add_argument(
        "--target", metavar="X", type=float, required=True, help="the quality to reach"
    )
    parser.add_argument(
        "--better", choices=("down", "up"), default="down", help="as of a loss (default: down)"
    )
    parser.add_argument(
        "--budget", metavar="TIME", required=True, help="for the whole search, as 30m or 2h"
    )
    parser.add_argument(
        "--default",
        metavar="P",
        help="your values now, as lr=1e-3,bs=32: the winner has to beat them",
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    runs = parser.add_argument_group("runs")
    runs.add_argument(
        "--seed-flag",
        metavar="FLAG",
        help="option of the script that takes the seed; else {seed}, or we seed",
    )
    runs.add_argument("--recipe", metavar="FILE", help="a recipe of `tune` that each run has on")
    runs.add_argument(
        "--ray", metavar="ADDRESS", help="make runs on a Ray cluster, one a machine (or: local)"
    )
    runs.add_argument("--fresh", action="store_true", help="do not use earlier runs of the same")
    runs.add_argument(
        "--share-network", action="store_true", help="let runs use the network of this machine"
    )
    runs.add_argument(
        "--unsafe-trials", action="store_true", help="make runs even if nothing contains them"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--page", metavar="FILE", help="also write a page to FILE (HTML)")
    add_json(output, what=BESIDE)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Search, and print what was found."""
    command = take_command(options, verb="search", usage=USAGE)
    check_json(options)
    check_target("--page", options.page)
    asked = _asked(options, command)
    from steptime.app.search.search import search

    found = search(asked, heard=_teller(asked))
    code = 0 if found.holds else 4
    if options.json is not None:
        from steptime.report.document.envelope import enclose

        write_json(options.json, enclose("search", found, exit_code=code))
    if options.json != STDOUT:
        from steptime.report.text.paint_text import print_report

        print_report(_report(asked, found), console=console_for(sys.stdout))
    if options.page is not None:
        _write_page(options.page, _report(asked, found))
    return code


def _asked(options: argparse.Namespace, command: tuple[str, ...]) -> SearchAsked:
    from steptime.app.search.search import SearchAsked
    from steptime.seek.sought_parameters import parse_default, parse_parameters
    from steptime.seek.values.seek_values import SeekQuestion

    parameters = parse_parameters(options.param)
    default = options.default and parse_default(options.default, parameters)
    if not abs(options.target) < float("inf"):
        raise UsageError(f"--target must be a number, got `{options.target}`.")
    recipe = None if options.recipe is None else Path(options.recipe)
    if recipe is not None and not recipe.is_file():
        raise UsageError(
            f"--recipe: there is no file `{recipe}`.", hint="Make one with `steptime tune`."
        )
    return SearchAsked(
        question=SeekQuestion(
            parameters=parameters,
            target=options.target,
            budget_s=parse_time(options.budget),
            is_better_down=options.better == "down",
            default=default or None,
        ),
        command=command,
        metric=options.metric,
        store=store_to_write(options),
        seed_flag=options.seed_flag,
        recipe=recipe,
        ray=options.ray,
        is_fresh=options.fresh,
        share_network=options.share_network,
        allow_unsafe=options.unsafe_trials,
    )


def _teller(asked: SearchAsked) -> Heard:
    """Return what says how each run ended."""
    from steptime.report.words.search_words import describe_progress

    def heard(run: SeekRun, runs: Sequence[SeekRun], num_machines: int) -> None:
        budget_s = asked.question.budget_s
        tell(describe_progress(run, runs, budget_s=budget_s, num_machines=num_machines))

    return heard


def _next(asked: SearchAsked, found: SeekAnswer) -> str:
    """Return the command to run next: the training with what was found, or a longer search."""
    from steptime.seek.sought_parameters import filled

    if found.best is None:
        return "steptime search ... --budget, longer, or --target, nearer"
    words = filled(asked.command, found.best, seed=1, seed_flag=asked.seed_flag)
    recipe = () if asked.recipe is None else ("--recipe", str(asked.recipe))
    return shlex.join(("steptime", "run", *recipe, "--", *words))


def _report(asked: SearchAsked, found: SeekAnswer) -> Sheet:
    from steptime.report.blocks.study.sweep_report import sweep_report

    return sweep_report(found, command=asked.command, next_command=_next(asked, found))


def _write_page(target: str, report: Sheet) -> None:
    from steptime.app.stored.page_file import write_page_file
    from steptime.core.version import installed_version
    from steptime.report.html.paint_html import paint_page

    page = paint_page(report, version=installed_version())
    tell(f"the page of this search: {write_page_file(page, Path(target), Path(target))}")
