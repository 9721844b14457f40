"""`steptime sweep`: which parameters reach a quality in the least time?"""

from __future__ import annotations

import argparse
import os
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
    from steptime.seek.values.seek_values import SeekAnswer

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
    if not abs(options.target) < float("inf"):
        raise UsageError(f"--target must be a number, got `{options.target}`.")
    if options.recipe is not None and not os.path.isfile(options.recipe):
        raise UsageError(
            f"--recipe: there is no file `{options.recipe}`.", hint="Make one with `steptime tune`."
        )
    from steptime.app.surface import sweep
    from steptime.report.blocks.study.sweep_report import sweep_report
    from steptime.report.document.envelope import enclose

    found = sweep(
        command,
        param=options.param,
        metric=options.metric,
        target=options.target,
        budget_s=parse_time(options.budget),
        better=options.better,
        default=options.default or None,
        seed_flag=options.seed_flag,
        recipe=options.recipe,
        ray=options.ray,
        fresh=options.fresh,
        share_network=options.share_network,
        unsafe_trials=options.unsafe_trials,
        store=store_to_write(options),
        tell=tell,
    )
    code = 0 if found.holds else 4
    report = sweep_report(found, command=command, next_command=_next(options, command, found))
    put(options, enclose("sweep", found, exit_code=code), lambda: report, is_beside=True)
    if options.output is not None:
        from steptime.app.stored.page_file import write_page_file

        target = Path(options.output)
        tell(f"the page of this search: {write_page_file(report, target, target)}")
    return code


def _next(options: argparse.Namespace, command: tuple[str, ...], found: SeekAnswer) -> str:
    """Return the command to run next: the training with what was found, or a longer search."""
    from steptime.seek.sought_parameters import filled

    if found.best is None:
        return "steptime sweep ... --budget, longer, or --target, nearer"
    words = filled(command, found.best, seed=1, seed_flag=options.seed_flag)
    recipe = () if options.recipe is None else ("--recipe", options.recipe)
    return shlex.join(("steptime", "run", *recipe, "--", *words))
