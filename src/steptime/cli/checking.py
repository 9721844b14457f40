"""`steptime machine --check`: what about this machine holds a training back."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from steptime.cli.output import console_for, say, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.machine.values.check_values import Basis, MachineCheck

_LEVELS = ("warning", "critical")
_GATE_EXIT_CODE = 5


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """The options that belong to `--check`."""
    group = parser.add_argument_group("checks")
    group.add_argument(
        "--check", action="store_true", help="what here holds a training back, and what mends it"
    )
    group.add_argument("--all", action="store_true", help="with what is clean or does not apply")
    group.add_argument("--nccl-log", metavar="FILE", help="a log of NCCL_DEBUG=INFO to look into")
    group.add_argument(
        "--fail-on", metavar="LEVEL", choices=_LEVELS, help="exit 5 at a warning, or at critical"
    )


def refuse_alone(options: argparse.Namespace) -> None:
    """Refuse options that would be without effect.

    Raises:
        UsageError: one of them was given without `--check`, or one that it has no use for.
    """
    given = (
        ("--all", options.all),
        ("--nccl-log", options.nccl_log),
        ("--fail-on", options.fail_on),
    )
    for flag, value in given:
        if value and not options.check:
            raise UsageError(f"{flag} belongs to --check.", hint="Add --check.")
    of_measuring = (
        ("--inventory", options.inventory),
        ("--again", options.again),
        ("--budget", options.budget),
    )
    for flag, value in of_measuring:
        if value and options.check:
            raise UsageError(f"{flag} has no effect on --check.", hint=f"Leave {flag} out.")


def show_checks(options: argparse.Namespace) -> int:
    """Look, judge, and print what fires; the exit code."""
    from steptime.cli.check_facts import gather_facts
    from steptime.machine.checks.run_checks import judge

    facts = gather_facts(options)
    checks = judge(facts)
    failed = _failed(checks, level=options.fail_on)
    exit_code = _GATE_EXIT_CODE if failed else 0
    if options.json is not None:
        from steptime.report.document.check_document import check_envelope

        envelope = check_envelope(checks, basis=facts.basis, exit_code=exit_code, gate=failed)
        write_json(options.json, envelope)
        return exit_code
    _print(checks, facts.basis, is_all=options.all)
    if failed:
        say(f"error: {failed}")
    return exit_code


def _failed(checks: tuple[MachineCheck, ...], *, level: str | None) -> str | None:
    """The words of the gate that was not met; None where there is none, or it was."""
    if level is None:
        return None
    severities = ("critical",) if level == "critical" else ("critical", "warning")
    codes = [check.code for check in checks if check.severity in severities]
    return f"--fail-on {level}: {', '.join(codes)}" if codes else None


def _print(checks: tuple[MachineCheck, ...], basis: Basis, *, is_all: bool) -> None:
    from rich.text import Text

    from steptime.report.text.check_text import check_lines
    from steptime.report.text.page import page_of

    page = page_of(console_for(sys.stdout))
    following = "steptime run -- python train.py" if is_all else "steptime machine --check --all"
    lines = check_lines(checks, basis, is_all=is_all, page=page)
    page.write([*lines, Text(), Text(f"  {following}", style="bold")])
