"""`steptime verify training`: does a changed training end as good, over seeds?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_time
from steptime.cli.options import CONTAINED, JSON_BESIDE, STORE, store_to_write
from steptime.cli.output import VERDICT_CODES, check_target, put, tell
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.verify.verify_training import SeedRuns
    from steptime.verify.values.seed_runs import (
        TrainingQuestion,
        TrainingRun,
    )

SUMMARY = "judge over seeds whether a changed training is as good"
DESCRIPTION = """\
Judge whether the candidate ends as good as the reference: not worse than by a
margin, which you must name. The runs are recorded ones, from a table, or are
made here, in turns, in children of which nothing stays but the metric.

The exit code is 0 for PASS, 5 for FAIL, 4 for INCONCLUSIVE: more runs are needed.
"""
USAGE = """steptime verify training --margin M --table FILE [options]
       steptime verify training --margin M --reference CMD --candidate CMD [options]"""
EXAMPLES = """\
examples:
  steptime verify training --table runs.csv --metric loss --margin 0.01
  steptime verify training --margin 1%-of-training --seeds 5 \\
      --reference "python train.py" --seed-flag=--seed \\
      --candidate "steptime run --recipe tuned.toml -- python train.py" \\
      --metric 'val loss ([0-9.]+)'
  steptime verify training --margin 0.5 --better up --metric json:result.json:accuracy ...
"""
OPTIONS = (
    """\
  --margin M  the loss that does not matter: 0.01, 1%, or 1%-of-training (required)
  --metric NAME  column of the table; of a command: a pattern, csv:FILE:COLUMN, json:FILE:KEY,
      tb:TAG (default: loss)
  --better {down,up}  as of a loss (default: down)
  --target X  time its first crossing
  --interim N  judge N times: 1, or 3 (after 3, 5 and 10 runs of each) (default: 1)
  --paired  runs with the same seed belong together
  --search-time TIME  what it took to find the candidate, added to its time once
runs:
  --table FILE  recorded runs, as comma-separated values
  --reference CMD  the training as it is
  --candidate CMD  the training as it shall be
  --cut CMD  the reference with as many percent fewer steps as --margin says: measures the margin
  --seeds N  runs of each (default: 5)
  --seed-flag FLAG  option of the script that takes the seed; else {seed} in the commands; without
      either, random, numpy and torch are seeded
  --run-timeout TIME  how long one run may take (default: 24h)
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
    """Judge the runs, and print the verdict."""
    check_target("--output", options.output)
    question = _question(options)
    from steptime.report.blocks.verify.verdict_report import verdict_report
    from steptime.report.document.envelope import enclose
    from steptime.verify.convergence.judge_training import judge_training
    from steptime.verify.convergence.power_plan import power_of_verdict

    found = judge_training(_runs(options), question)
    code = VERDICT_CODES[found.outcome.value]
    document = enclose("verify training", found, exit_code=code)
    put(options, document, lambda: verdict_report(found), is_beside=True)
    if options.output is not None:
        from steptime.app.stored.page_file import write_page_file

        title = options.table or f"{options.reference} → {options.candidate}"
        report = verdict_report(found, title=title, power=power_of_verdict(found))
        target = Path(options.output)
        tell(f"the page of this verdict: {write_page_file(report, target, target)}")
    return code


def _question(options: argparse.Namespace) -> TrainingQuestion:
    if options.interim not in (1, 3):
        raise UsageError(f"--interim must be 1 or 3, got {options.interim}.")
    from steptime.app.stored.margin_text import parse_margin
    from steptime.verify.values.seed_runs import TrainingQuestion

    return TrainingQuestion(
        margin=parse_margin(options.margin),
        is_better_down=options.better == "down",
        target=options.target,
        num_looks=options.interim,
        are_paired=options.paired,
        price_s=0.0
        if options.search_time is None
        else parse_time(options.search_time, flag="--search-time"),
    )


def _runs(options: argparse.Namespace) -> tuple[TrainingRun, ...]:
    """Return recorded runs, or make them."""
    commands = (options.reference, options.candidate)
    if options.cut is not None and not options.margin.endswith("%-of-training"):
        raise UsageError("--cut needs a margin in percent of training, as 5%-of-training.")
    if options.table is not None:
        if any(commands):
            raise UsageError("--table and commands were given.", hint="Name one of them.")
        from steptime.app.stored.run_tables import read_table

        return read_table(Path(options.table), options.metric)
    if not all(commands):
        raise UsageError(
            "there are no runs to judge.", hint="Name --table, or --reference and --candidate."
        )
    if options.seeds < 2:
        raise UsageError(f"--seeds must be 2 or more, got {options.seeds}.")
    from steptime.app.verify.verify_training import make_runs

    return make_runs(_asked(options), tell=tell)


def _asked(options: argparse.Namespace) -> SeedRuns:
    from steptime.app.verify.verify_training import SeedRuns

    return SeedRuns(
        reference=options.reference,
        candidate=options.candidate,
        num_seeds=options.seeds,
        metric=options.metric,
        store=store_to_write(options),
        seed_flag=options.seed_flag,
        cut=options.cut,
        limit_s=parse_time(options.run_timeout, flag="--run-timeout"),
        is_fresh=options.fresh,
        share_network=options.share_network,
        allow_unsafe=options.unsafe_trials,
    )
