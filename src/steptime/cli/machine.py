"""`steptime machine`: what this machine has, what it reaches, and what holds it back."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from steptime.cli.checking import add_check_options, refuse_alone, show_checks
from steptime.cli.options import add_json, add_store, check_json, store_folder
from steptime.errors import UsageError

SUMMARY = "show what this machine has and reaches"
DESCRIPTION = """\
Show what this machine has, and measure what it reaches: matrix products,
memory, GPU copies, the disk, collectives. The figures are kept until the
machine or its torch changes; no other file stays, and no cache is dropped.
--check looks instead for what holds a training back, and prints what mends it.
"""
USAGE = "steptime machine [options]"
EXAMPLES = """\
examples:
  steptime machine
  steptime machine --python /opt/env/bin/python --data /data/imagenet
  torchrun --nproc-per-node 8 -m steptime machine
  steptime machine --check --fail-on critical
"""

_BUDGET = "50s"
_MIN_BUDGET_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOptions:
    """What the command line of `machine` says."""

    python: str | None
    data: Path
    store: Path
    budget_s: float
    is_again: bool
    only_inventory: bool
    json: str | None


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `machine`."""
    parser.add_argument(
        "--python", metavar="FILE", help="interpreter with the torch (default: on the PATH)"
    )
    parser.add_argument(
        "--data", metavar="DIR", default=".", help="where the data is (default: this folder)"
    )
    parser.add_argument("--inventory", action="store_true", help="measure nothing")
    parser.add_argument("--again", action="store_true", help="measure anew")
    parser.add_argument("--budget", metavar="TIME", help="for all of it: 50s (default), 3m")
    add_check_options(parser)
    output = parser.add_argument_group("output")
    add_json(output)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Look, measure, and print what was found."""
    check_json(options)
    if sys.platform == "win32":
        raise UsageError(
            "`steptime machine` does not work on Windows.", hint="Use it in WSL 2, a Linux."
        )
    refuse_alone(options)
    asked = MachineOptions(
        python=options.python,
        data=Path(options.data),
        store=Path(store_folder(options)),
        budget_s=_budget_s(options.budget or _BUDGET),
        is_again=options.again,
        only_inventory=options.inventory,
        json=options.json,
    )
    if not asked.data.is_dir():
        raise UsageError(
            f"--data: there is no folder `{asked.data}`.", hint="Name an existing one."
        )
    if options.check:
        return show_checks(options)
    from steptime.cli.machinery import show_machine

    return show_machine(asked)


def _budget_s(text: str) -> float:
    from steptime.cli.tune import parse_time

    budget_s = parse_time(text)
    if budget_s < _MIN_BUDGET_S:
        raise UsageError(
            f"--budget must be 5s or more, got `{text}`.",
            hint="Starting torch alone takes some seconds; --inventory measures nothing.",
        )
    return budget_s
