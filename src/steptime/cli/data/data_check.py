"""`steptime data check`: are the samples of a training, and their order, what they should be?"""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from shutil import which
from typing import TYPE_CHECKING, Any

from steptime.cli.option_values import parse_names, parse_time
from steptime.cli.options import (
    CONTAINED,
    JSON,
    STORE,
    ask_for_dashes,
    need_at_least,
    refuse_windows,
    store_to_write,
)
from steptime.cli.output import VERDICT_CODES, put, tell
from steptime.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from steptime.data.values.data_check_values import DataCheckReport

SUMMARY = "check the samples of a training, and their order"
DESCRIPTION = """\
Check what the loaders of a training command hand out: a new order each epoch,
nothing twice, nothing lost, ranks apart, the same with any number of workers,
and after a resume what was to come. The command runs in children whose epochs
are cut short and of which nothing stays. Or check what a source of samples
holds, or whether two sources hold the same.

Each check ends as PASS, FAIL or INCONCLUSIVE. The exit code is 0 if all passed,
5 if one failed, 4 if none failed and one could not be decided.
"""
USAGE = "steptime data check [options] [SOURCE [SOURCE] | -- COMMAND [ARG ...]]"
EXAMPLES = """\
examples:
  steptime data check -- python train.py
  steptime data check --resume-command "python train.py --resume ck.pt" -- python train.py
  steptime data check -- torchrun --nproc-per-node 2 train.py
  steptime data check --epochs 5 -- python train.py
  steptime data check data/train
  steptime data check --leakage data/train data/val
  steptime data check images/ shards/
"""
OPTIONS = (
    """\
  [SOURCE...]  where samples are: one to check, two to compare
  --checks A,B  make only these checks; the report has their names
  --budget TIME  how long it may take (default: 5m)
of a command:
  --batches N  batches of an epoch that are read; the order is seen of all (default: 20)
  --epochs N  epochs that are seen; an order may come back after several (default: 2)
  --resume-command COMMAND  how the script resumes from the checkpoint that COMMAND has written
"""
    + CONTAINED
    + """\
of sources:
  --format A[,B]  the format of each source, such as jsonl; without it, told by its contents
  --leakage  of two, the first trains and the second evaluates: they must share no sample
output:
"""
    + JSON
    + STORE
)

_SCRIPT_FAILED = 3


def execute(options: argparse.Namespace) -> int:
    """Check a command or sources, and print what was found."""
    refuse_windows("data check")
    need_at_least(options, 2, "batches", "epochs")
    budget_s = parse_time(options.budget)
    only = None if options.checks is None else parse_names(options.checks)
    if options.command is not None:
        report = _check_command(options, budget_s=budget_s, only=only)
    else:
        report = _check_sources(options, budget_s=budget_s, only=only)
    code = exit_code_of(report)
    from steptime.report.blocks.data.data_check_report import data_check_blocks
    from steptime.report.document.data_documents import data_check_envelope

    document = data_check_envelope(report, exit_code=code)
    put(options, document, lambda: data_check_blocks(report))
    return code


def _check_command(
    options: argparse.Namespace, *, budget_s: float, only: tuple[str, ...] | None
) -> DataCheckReport:
    if options.source or options.leakage:
        raise UsageError(
            "a command and sources were given.", hint="Check one at a time; see --help."
        )
    if not options.command:
        raise UsageError("no command was given.", hint=f"usage: {USAGE}")
    app = _load("data_check")
    app.check_names(only or (), app.CHECKS)
    asked = app.DataCheckOptions(
        command=tuple(options.command),
        store=store_to_write(options),
        epochs=options.epochs,
        batches=options.batches,
        budget_s=budget_s,
        resume=options.resume_command,
        only=only,
        share_network=options.share_network,
        allow_unsafe=options.unsafe_trials,
    )
    report: DataCheckReport = app.check_command(asked, tell=tell)
    return report


def _check_sources(
    options: argparse.Namespace, *, budget_s: float, only: tuple[str, ...] | None
) -> DataCheckReport:
    named = next(iter(options.source), "")
    if not os.path.exists(named) and which(named):
        ask_for_dashes(options)
    if not 1 <= len(options.source) <= 2:
        raise UsageError(
            f"one or two sources are checked, or a command; got {len(options.source)} sources.",
            hint=f"usage: {USAGE}",
        )
    app, names = _load("data_source_check"), _load("data_check")
    names.check_names(only or (), app.SOURCE_CHECKS)
    formats = None if options.format is None else parse_names(options.format)
    if formats is not None and len(formats) != len(options.source):
        raise UsageError("--format names one format for each source: --format csv_with_header,tar")
    report: DataCheckReport = app.check_sources(
        tuple(options.source),
        budget_s=budget_s,
        formats=formats,
        only=only,
        is_leakage=options.leakage,
    )
    return report


def _load(name: str) -> Any:
    """Return a module of `app`, which needs the packages of an extra.

    Raises:
        MissingExtraError: one of them is not there.
    """
    try:
        return import_module(f"steptime.app.data.{name}")
    except ImportError as error:
        raise MissingExtraError(
            f"`steptime data check` needs a package that cannot be imported: {error}.",
            needs="steptime[data]",
        ) from error


def exit_code_of(report: DataCheckReport) -> int:
    """Return what the process ends with."""
    if report.failure is not None:
        return _SCRIPT_FAILED
    return VERDICT_CODES[report.outcome.value]
