"""`steptime compare`: what was changed between two sets of runs, and what effect that had."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_percent
from steptime.cli.options import JSON_BESIDE, STORE, store_folder, was_given
from steptime.cli.output import STDOUT, check_target, open_store, put
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.stored.compare import NamedRun
    from steptime.compare.values import Comparison, FirstDifference

SUMMARY = "compare two sets of runs, by hand or in CI"
DESCRIPTION = """\
Compare two sets of runs, A and B: say what was changed between them, and what
that did to the step time. Name at least three runs of each.
"""
USAGE = "steptime compare RUN [RUN ...] -- RUN [RUN ...] [options]"
EXAMPLES = """\
A run is named by its id, by the beginning of its id, as `last` or `last~1` (the
one before the last), or by the path of its folder.

Exit codes with --fail-if-slower:
  0  B is not slower than A by more than P%
  5  B is slower than A by more than P%
  4  the runs differ too much among themselves to say
  2  the runs cannot be compared
  3  one of the commands failed

examples:
  steptime compare last~5 last~3 last~1 -- last~4 last~2 last
  steptime compare base/runs/* -- new/runs/* --fail-if-slower 5% --json
  steptime compare last~1 -- last --training 2
  steptime compare --first-difference last~1 last
"""
OPTIONS = (
    """\
  [RUN...]  the runs of A, then `--`, then the runs of B
  --training N  compare training N of a command that started several
judging:
  --fail-if-slower P%  exit with code 5 if B is slower than A by more than P%
  --pairs  the n-th runs of A and B were made side by side: compare within pairs
  --cpu  compare the CPU time of a step, which other programs lengthen least
  --first-difference  name the first step and module at which two runs with checksums part
  --force  judge the runs even if they are unlike: from two machines, for example
output:
  --hourly-price X/h  what an hour of the machine costs; the report then shows what a run costs
"""
    + JSON_BESIDE
    + STORE
)

_LIKE_A_RUN = re.compile(r"last(~\d+)?$|\d{8}-\d")


def execute(options: argparse.Namespace) -> int:
    """Compare and report; return the exit code."""
    a, b = _sides(options)
    limit, price = options.fail_if_slower, options.hourly_price
    limit = None if limit is None else parse_percent(limit, flag="--fail-if-slower")
    from steptime.app.stored.compare import compare_runs
    from steptime.core.devices.given_price import parse_price
    from steptime.report.blocks.compare.comparison_report import (
        ComparisonRequest,
        comparison_report,
    )
    from steptime.report.document.comparison_document import comparison_envelope

    runs = _find(options, [*a, *b])
    found = compare_runs(
        runs[: len(a)],
        runs[len(a) :],
        limit=limit,
        in_pairs=options.pairs,
        by_cpu=options.cpu,
    )
    code = 0 if options.first_difference else exit_code_of(found, is_forced=options.force)
    asked = ComparisonRequest(
        price=parse_price(price),
        is_forced=options.force,
        stores=_other_stores(runs),
        first_difference=_first_difference(options, runs),
    )
    document = comparison_envelope(found, asked=asked, exit_code=code)
    put(options, document, lambda: comparison_report(found, asked=asked), is_beside=True)
    return code


def _first_difference(options: argparse.Namespace, runs: list[NamedRun]) -> FirstDifference | None:
    if not options.first_difference:
        return None
    from steptime.app.stored.first_difference import find_first_difference

    if len(runs) != 2 or options.fail_if_slower is not None:
        raise UsageError(
            f"--first-difference takes two runs and no gate, got {len(runs)} runs.",
            hint="steptime compare --first-difference last~1 last",
        )
    return find_first_difference(runs[0][0], runs[1][0])


def exit_code_of(found: Comparison, *, is_forced: bool) -> int:
    """Return what the process ends with; the gate gives 0 only if it was judged and passed."""
    from steptime.compare.values import CompareOutcome, GateOutcome

    is_final = found.outcome is CompareOutcome.NOT_COMPARABLE
    if found.gate is None:
        return 2 if is_final else 4 if found.outcome is CompareOutcome.TOO_NOISY else 0
    if any(obstacle.code == "failed" for obstacle in found.obstacles):
        return 3
    if is_final or (found.obstacles and not is_forced):
        return 2
    return {GateOutcome.PASSED: 0, GateOutcome.FAILED: 5}.get(found.gate.outcome, 4)


def _find(options: argparse.Namespace, names: list[str]) -> list[NamedRun]:
    """Return the runs; the store is opened only if one of the names is not a path."""
    from steptime.app.stored.load import find_all, is_path

    folder = store_folder(options)
    store = Path(folder or ".") if all(map(is_path, names)) else open_store(folder)
    return [(run, options.training) for run in find_all(names, store=store)]


def _other_stores(runs: list[NamedRun]) -> dict[str, str]:
    """Return what `--store` must name for the runs that are not in the store of this folder."""
    from steptime.core.store import store_to_name

    found = {run.run_id: store_to_name(run.store) for run, _ in runs}
    return {run_id: store for run_id, store in found.items() if store is not None}


def _sides(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the names of the runs of A and of B; options behind `--` are put with the others."""
    if options.command is None and options.first_difference and len(options.run) == 2:
        return options.run[:1], options.run[1:]
    if options.command is None:
        raise UsageError(
            "`--` must stand between the runs of A and the runs of B.",
            hint=f"usage: {USAGE}",
        )
    behind = options.parser.parse_args(options.command)
    for name, value in vars(behind).items():
        if name != "run" and was_given(behind, name):
            setattr(options, name, value)
    if options.json is not None and _LIKE_A_RUN.match(options.json):
        message = f"--json would write to `{options.json}`, which looks like a run."
        raise UsageError(message, hint="Put --json at the end, or name a file behind it.")
    check_target("--json", None if options.json == STDOUT else options.json)
    for side, runs in (("A", options.run), ("B", behind.run)):
        if not runs:
            raise UsageError(f"no run of {side} was named.", hint=f"usage: {USAGE}")
    return list(options.run), list(behind.run)
