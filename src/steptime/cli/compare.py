"""`steptime compare`: what was changed between two sets of runs, and what it did."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from steptime.cli.options import (
    add_json,
    add_store,
    check_json,
    parse_percent,
    parse_price,
    store_folder,
)
from steptime.errors import UsageError

SUMMARY = "compare two sets of runs, in CI too"
DESCRIPTION = "Say what was changed between two sets of runs (3 each or more), and what it did."
USAGE = "steptime compare RUN [RUN ...] -- RUN [RUN ...] [options]"
EXAMPLES = """\
A run: an id, its beginning, `last`, `last~1`, or the path of its folder.
Codes of P: 0 within, 5 slower, 4 too noisy, 2 not comparable, 3 a run failed.
examples:
  steptime compare last~5 last~3 last~1 -- last~4 last~2 last
  steptime compare base/runs/* -- new/runs/* --fail-if-slower 5% --json
"""

_LIKE_A_RUN = re.compile(r"last(~\d+)?$|\d{8}-\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """What the command line of `compare` says; `limit` is a fraction, `price` is an hour's."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    store: str
    json: str | None
    limit: float | None
    price: float | None
    is_forced: bool


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `compare`; all have None for "not given", as they may stand on both sides."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="runs of A, then `--`, those of B")
    gate = parser.add_argument_group("judging")
    gate.add_argument("--fail-if-slower", metavar="P%", help="exit 5 if B is, by more than P%%")
    gate.add_argument("--anyway", action="store_true", default=None, help="judge unlike runs, too")
    output = parser.add_argument_group("output")
    output.add_argument("--price", metavar="X/h", help="of an hour, to show costs")
    add_json(output)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Compare, report, and give the exit code."""
    settings = _settings(options)
    from steptime.cli.compared import report_comparison

    return report_comparison(settings)


def _settings(options: argparse.Namespace) -> CompareOptions:
    if options.command is None:
        raise UsageError(
            "which runs are A and which are B? `--` must stand between them.",
            hint=f"usage: {USAGE}",
        )
    a, behind = tuple(options.runs), _parse_behind(options.command)
    b = tuple(behind.runs)
    for name, value in vars(behind).items():
        if name != "runs" and value is not None:
            setattr(options, name, value)
    if options.json is not None and _LIKE_A_RUN.match(options.json):
        message = f"--json took `{options.json}` for its file, which looks like a run."
        raise UsageError(message, hint="Put --json at the end, or give it a file.")
    check_json(options)
    for side, runs in (("A", a), ("B", b)):
        if not runs:
            raise UsageError(f"no run of {side} was named.", hint=f"usage: {USAGE}")
    limit, price = options.fail_if_slower, options.price
    return CompareOptions(
        a=a,
        b=b,
        store=store_folder(options),
        json=options.json,
        limit=None if limit is None else parse_percent(limit, flag="--fail-if-slower"),
        price=None if price is None else parse_price(price, flag="--price"),
        is_forced=bool(options.anyway),
    )


def _parse_behind(words: list[str]) -> argparse.Namespace:
    """What stands behind `--`: the runs of B, and options just as in front of it."""
    from steptime.cli.main import Parser

    parser = Parser(prog="steptime compare", usage=USAGE, allow_abbrev=False)
    add_options(parser)
    return parser.parse_args(words)
