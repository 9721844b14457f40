"""`steptime machine`: what this machine has, what it reaches, and what holds it back."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.options import (
    add_json,
    add_store,
    check_json,
    parse_time,
    refuse_windows,
    store_folder,
    store_to_write,
)
from steptime.cli.output import console_for, say, tell, write_json
from steptime.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from steptime.app.machine.machine import MachineFacts
    from steptime.machine.ceilings import Told
    from steptime.machine.values.check_values import Basis, MachineCheck

SUMMARY = "show what this machine has, and what it can reach"
DESCRIPTION = """\
Show what this machine has, and measure what it can reach: matrix products,
memory, copies to the GPU, the disk and collectives. The figures are kept until
the machine or its torch changes. No other file stays, and no cache is dropped.
Provisional figures (others were busy, or a run reached more) feed no verdict;
this command and `steptime run` take them again once the machine is quiet.

With --check, Steptime measures nothing: it checks the machine for what holds a
training back, and prints the remedy: commands that are right on this machine,
with who may run them and what they disrupt, or advice. It runs none of them.
"""
USAGE = "steptime machine [options]"
EXAMPLES = """\
examples:
  steptime machine
  steptime machine --python /opt/env/bin/python --data /data/imagenet
  steptime machine --again                    # also what is not provisional
  torchrun --nproc-per-node 8 -m steptime machine
  steptime machine --check --fail-on critical
"""

_BUDGET = "50s"
_MIN_BUDGET_S = 5.0
_LEVELS = ("warning", "critical")
_GATE_EXIT_CODE = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `machine`."""
    parser.add_argument(
        "--python",
        metavar="FILE",
        help="the Python whose torch is measured (default: the first on the PATH)",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=".",
        help="the folder with the training data (default: the current folder)",
    )
    parser.add_argument("--inventory", action="store_true", help="only show what the machine has")
    parser.add_argument(
        "--again", action="store_true", help="measure again, even if the figures are known"
    )
    parser.add_argument(
        "--budget",
        metavar="TIME",
        help="how long all measurements may take together, such as 3m (default: 50s)",
    )
    _add_check_options(parser)
    output = parser.add_argument_group("output")
    add_json(output)
    add_store(output)


def _add_check_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that belong to `--check`."""
    group = parser.add_argument_group("checks")
    group.add_argument(
        "--check",
        action="store_true",
        help="check for what holds a training back, and print the remedy",
    )
    group.add_argument(
        "--all",
        action="store_true",
        help="with --check: also show the checks that found nothing or do not apply",
    )
    group.add_argument(
        "--nccl-log",
        metavar="FILE",
        help="with --check: also read FILE, a log written with NCCL_DEBUG=INFO",
    )
    group.add_argument(
        "--fail-on",
        metavar="LEVEL",
        choices=_LEVELS,
        help="with --check: exit with code 5 if something is `critical`, or at least a `warning`",
    )


def execute(options: argparse.Namespace) -> int:
    """Read the machine, measure or judge it, and print what was found."""
    check_json(options)
    refuse_windows("machine")
    _refuse_alone(options)
    budget_s = _budget_s(_BUDGET if options.budget is None else options.budget)
    if not os.path.isdir(options.data):
        raise UsageError(
            f"--data: there is no folder `{options.data}`.", hint="Name an existing one."
        )
    return _check(options) if options.check else _examine(options, budget_s)


def _examine(options: argparse.Namespace, budget_s: float) -> int:
    from steptime.app.machine.machine import MachineOptions, examine
    from steptime.cli.progress import OverwrittenLine
    from steptime.report.blocks.machine.machine_report import describe_told, live_told

    asked = MachineOptions(
        python=options.python,
        data=Path(options.data),
        store=store_to_write(options),
        budget_s=budget_s,
        is_again=options.again,
        only_inventory=options.inventory,
    )
    line = OverwrittenLine(sys.stderr)

    def show(told: Told) -> None:
        line.show(live_told(told.device, told.name, left_s=told.left_s))
        if told.ceiling is not None:
            line.say_plain(f"steptime: {describe_told(told.ceiling)}")

    try:
        found = examine(asked, tell=tell, progress=show)
    finally:
        line.close()
    return 0 if found is None else _report(options, found)


def _report(options: argparse.Namespace, found: MachineFacts) -> int:
    from steptime.report.blocks.machine.machine_report import machine_blocks
    from steptime.report.document.machine_document import machine_envelope
    from steptime.report.text.paint_text import print_blocks

    document = machine_envelope(found.inventory, found.ceilings)
    if options.json is not None:
        write_json(options.json, document)
        return document.exit_code
    blocks = machine_blocks(found.inventory, found.ceilings, age_s=found.age_s)
    print_blocks(blocks, console=console_for(sys.stdout))
    return document.exit_code


def _budget_s(text: str) -> float:
    budget_s = parse_time(text)
    if budget_s < _MIN_BUDGET_S:
        raise UsageError(
            f"--budget must be 5s or more, got `{text}`.",
            hint="Starting torch alone takes some seconds; --inventory measures nothing.",
        )
    return budget_s


def _refuse_alone(options: argparse.Namespace) -> None:
    """Refuse options that would have no effect.

    Raises:
        UsageError: one of them was given without `--check`, or one that `--check` cannot use.
    """
    given = (
        ("--all", options.all),
        ("--nccl-log", options.nccl_log),
        ("--fail-on", options.fail_on),
    )
    for flag, value in given:
        if value and not options.check:
            raise UsageError(f"{flag} works only with --check.", hint="Add --check.")
    of_measuring = (
        ("--inventory", options.inventory),
        ("--again", options.again),
        ("--budget", options.budget),
    )
    for flag, value in of_measuring:
        if value and options.check:
            raise UsageError(f"{flag} has no effect with --check.", hint=f"Leave {flag} out.")


def _check(options: argparse.Namespace) -> int:
    """Judge the machine and print what fires; return the exit code."""
    log = None if options.nccl_log is None else Path(options.nccl_log)
    if log is not None and not os.path.isfile(log):
        raise NotFoundError(f"--nccl-log: there is no file `{log}`.", hint="Name an existing one.")
    from steptime.app.machine.check_machine import gather_facts
    from steptime.machine.checks.run_checks import judge
    from steptime.report.document.check_document import check_envelope

    folder = store_folder(options)
    store = None if folder is None else Path(folder)
    facts = gather_facts(python=options.python, data=Path(options.data), store=store, nccl_log=log)
    checks = judge(facts)
    failed = _failed(checks, level=options.fail_on)
    exit_code = _GATE_EXIT_CODE if failed else 0
    if options.json is not None:
        envelope = check_envelope(checks, basis=facts.basis, exit_code=exit_code, gate=failed)
        write_json(options.json, envelope)
        return exit_code
    _print_checks(checks, facts.basis, is_all=options.all)
    if failed:
        say(f"error: {failed}")
    return exit_code


def _failed(checks: tuple[MachineCheck, ...], *, level: str | None) -> str | None:
    """Return the words of the gate that was not met; None if there is no gate, or it was met."""
    if level is None:
        return None
    severities = ("critical",) if level == "critical" else ("critical", "warning")
    codes = [check.code for check in checks if check.severity in severities]
    return f"--fail-on {level}: {', '.join(codes)}" if codes else None


def _print_checks(checks: tuple[MachineCheck, ...], basis: Basis, *, is_all: bool) -> None:
    from steptime.report.blocks.machine.check_report import check_blocks
    from steptime.report.text.paint_text import print_blocks

    print_blocks(check_blocks(checks, basis, is_all=is_all), console=console_for(sys.stdout))
