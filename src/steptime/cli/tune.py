"""`steptime tune`: find what makes the command faster, prove it, write a recipe."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from steptime.cli.command import take_command
from steptime.cli.options import add_json, add_store, check_json, store_folder
from steptime.cli.output import check_target
from steptime.errors import UsageError

SUMMARY = "make a training command faster, and prove it"
DESCRIPTION = "Try levers in trials; keep what is faster and trains as well; write a recipe."
USAGE = "steptime tune [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
examples:
  steptime tune -- python train.py
  steptime tune --budget 1h --exclude compile -- torchrun train.py
  steptime run --recipe tuned.toml -- python train.py
"""

_TIME = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """What the command line of `tune` says; `given` are its words, for the advice at the end."""

    command: tuple[str, ...]
    given: tuple[str, ...]
    store: Path
    budget_s: float
    levers: tuple[str, ...] | None
    exclude: tuple[str, ...]
    run_steps: int | None
    output: Path
    report: str | None
    json: str | None
    require_speedup: float | None
    allow_unsafe: bool
    share_network: bool
    is_fresh: bool


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `tune`."""
    search = parser.add_argument_group("search")
    search.add_argument("--budget", metavar="TIME", default="10m", help="30s, 10m (default), 1h")
    search.add_argument("--levers", metavar="A,B", help="try these alone")
    search.add_argument("--exclude", metavar="A,B", help="leave these out")
    search.add_argument("--run-steps", metavar="N", type=int, help="length of the real run")
    search.add_argument("--fresh", action="store_true", help="do not resume what was cut short")
    trials = parser.add_argument_group("trials")
    trials.add_argument("--share-network", action="store_true", help="let them use the network")
    trials.add_argument("--unsafe-trials", action="store_true", help="even where they can do harm")
    output = parser.add_argument_group("output")
    output.add_argument("--output", metavar="FILE", default="tuned.toml", help="of the recipe")
    output.add_argument("--report", metavar="FILE", help="put the report there, as plain text")
    add_json(output, what="of the study")
    output.add_argument(
        "--require-speedup", metavar="X", type=float, help="exit 5 unless proven to be at least X"
    )
    add_store(output)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def execute(options: argparse.Namespace) -> int:
    """Run the study and report it."""
    settings = _settings(options)
    from steptime.cli.tuning import tune

    return tune(settings)


def _settings(options: argparse.Namespace) -> TuneOptions:
    command = take_command(options, verb="tune", usage=USAGE)
    for flag, value in (("--report", options.report), ("--output", options.output)):
        check_target(flag, value)
    check_json(options)
    if options.run_steps is not None and options.run_steps < 1:
        raise UsageError(f"--run-steps must be 1 or more, got {options.run_steps}.")
    required = options.require_speedup
    if required is not None and not 0 < required < float("inf"):
        raise UsageError(f"--require-speedup must be above 0, got {required}.")
    return TuneOptions(
        command=command,
        given=tuple(options.given[1:]),
        store=Path(store_folder(options)),
        budget_s=parse_time(options.budget),
        levers=None if options.levers is None else _names(options.levers),
        exclude=_names(options.exclude or ""),
        run_steps=options.run_steps,
        output=Path(options.output),
        report=options.report,
        json=options.json,
        require_speedup=required,
        allow_unsafe=options.unsafe_trials,
        share_network=options.share_network,
        is_fresh=options.fresh,
    )


def parse_time(text: str) -> float:
    """Seconds in `30s`, `10m`, `1h`."""
    found = _TIME.fullmatch(text)
    value_s = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    if value_s <= 0:
        raise UsageError(f"--budget must be a time such as 30s, 10m or 1h, got `{text}`.")
    return value_s


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
