"""`steptime sweep`: which parameters reach a quality in the least time?"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_time
from steptime.cli.options import (
    CONTAINED,
    JSON_BESIDE,
    STORE,
    store_to_write,
    take_command,
)
from steptime.cli.output import check_target, put, tell
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
USAGE = """steptime sweep --param P --metric M --target X --budget TIME [options]
                      -- COMMAND with {name} for each parameter"""
EXAMPLES = """\
examples:
  steptime sweep --param lr=1e-4..1e-2:log --param bs=16,32,64 --budget 2h \\
      --metric 'val ([0-9.]+)' --target 1.55 \\
      -- python train.py --lr {lr} --batch {bs} --seed {seed}
  steptime sweep --param lr=1e-4..1e-1:log --default lr=1e-3 --better up \\
      --metric csv:log.csv:accuracy --target 0.98 --budget 30m \\
      --recipe tuned.toml -- python train.py --lr {lr} --seed {seed}
"""
OPTIONS = (
    """\
  [WORDS...]
  --param P  lr=1e-4..1e-2:log, layers=2..8 or bs=16,32,64; for each {name} one (repeatable)
  --metric M  a pattern for what a run prints, csv:FILE:COLUMN, json:FILE:KEY, tb:TAG (required)
  --target X  the quality to reach (required)
  --better {down,up}  as of a loss (default: down)
  --budget TIME  for the whole sweep, as 30m or 2h (required)
  --default P  your values now, as lr=1e-3,bs=32: the winner has to beat them
runs:
  --seed-flag FLAG  option of the script that takes the seed; else {seed}, or we seed
  --recipe FILE  a recipe of `tune` that each run has on
  --ray ADDRESS  make runs on a Ray cluster, one a machine (or: local)
  --fresh  do not use what an earlier call has found
"""
    + CONTAINED
    + """\
output:
  -o, --output FILE  also write a page to FILE (HTML)
"""
    + JSON_BESIDE
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Search, and print what was found."""
    command = take_command(options, verb="sweep", usage=USAGE)
    check_target("--output", options.output)
    asked = _asked(options, command)
    from steptime.app.search.search import search
    from steptime.report.document.envelope import enclose

    found = search(asked, heard=_teller(asked))
    code = 0 if found.holds else 4
    document = enclose("sweep", found, exit_code=code)
    put(options, document, lambda: _report(asked, found), is_beside=True)
    if options.output is not None:
        from steptime.app.stored.page_file import write_page_file

        target = Path(options.output)
        written = write_page_file(_report(asked, found), target, target)
        tell(f"the page of this search: {written}")
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
    from steptime.report.words.study.search_words import describe_progress

    def heard(run: SeekRun, runs: Sequence[SeekRun], num_machines: int) -> None:
        budget_s = asked.question.budget_s
        tell(describe_progress(run, runs, budget_s=budget_s, num_machines=num_machines))

    return heard


def _next(asked: SearchAsked, found: SeekAnswer) -> str:
    """Return the command to run next: the training with what was found, or a longer search."""
    from steptime.seek.sought_parameters import filled

    if found.best is None:
        return "steptime sweep ... --budget, longer, or --target, nearer"
    words = filled(asked.command, found.best, seed=1, seed_flag=asked.seed_flag)
    recipe = () if asked.recipe is None else ("--recipe", str(asked.recipe))
    return shlex.join(("steptime", "run", *recipe, "--", *words))


def _report(asked: SearchAsked, found: SeekAnswer) -> Sheet:
    from steptime.report.blocks.study.sweep_report import sweep_report

    return sweep_report(found, command=asked.command, next_command=_next(asked, found))
