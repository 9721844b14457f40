"""`steptime doctor`: what about this machine holds a training back, and the remedy."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.options import (
    JSON,
    MACHINE,
    STORE,
    data_folder,
    refuse_windows,
    store_folder,
)
from steptime.cli.output import put, say
from steptime.errors import NotFoundError

if TYPE_CHECKING:
    from steptime.machine.values.check_values import MachineCheck

SUMMARY = "find what about this machine holds a training back"
DESCRIPTION = """\
Check this machine for what holds a training back, and print the remedy:
commands that are right on this machine, with who may run them and what they
disrupt, or advice. Nothing is measured, and none of the commands is run.
"""
USAGE = "steptime doctor [options]"
EXAMPLES = """\
examples:
  steptime doctor
  steptime doctor --all
  steptime doctor --python /opt/env/bin/python --data /data/imagenet
  steptime doctor --fail-on critical
"""
OPTIONS = (
    MACHINE
    + """\
  --all  also show the checks that found nothing or do not apply
  --nccl-log FILE  also read FILE, a log written with NCCL_DEBUG=INFO
  --fail-on {warning,critical}  exit with code 5 if something is `critical`, or at least a
      `warning`
output:
"""
    + JSON
    + STORE
)

_GATE_EXIT_CODE = 5


def execute(options: argparse.Namespace) -> int:
    """Judge the machine and print what fires; return the exit code."""
    refuse_windows("doctor")
    log = None if options.nccl_log is None else Path(options.nccl_log)
    if log is not None and not os.path.isfile(log):
        raise NotFoundError(f"--nccl-log: there is no file `{log}`.", hint="Name an existing one.")
    from steptime.app.machine.check_machine import gather_facts
    from steptime.machine.checks.run_checks import judge
    from steptime.report.blocks.machine.check_report import check_blocks
    from steptime.report.document.machine_documents import check_envelope

    folder = store_folder(options)
    store = None if folder is None else Path(folder)
    data = data_folder(options)
    facts = gather_facts(python=options.python, data=data, store=store, nccl_log=log)
    checks = judge(facts)
    failed = _failed(checks, level=options.fail_on)
    exit_code = _GATE_EXIT_CODE if failed else 0
    envelope = check_envelope(checks, basis=facts.basis, exit_code=exit_code, gate=failed)
    put(options, envelope, lambda: check_blocks(checks, facts.basis, is_all=options.all))
    if failed and options.json is None:
        say(f"error: {failed}")
    return exit_code


def _failed(checks: tuple[MachineCheck, ...], *, level: str | None) -> str | None:
    """Return the words of the gate that was not met; None if there is no gate, or it was met."""
    if level is None:
        return None
    severities = ("critical",) if level == "critical" else ("critical", "warning")
    codes = [check.code for check in checks if check.severity in severities]
    return f"--fail-on {level}: {', '.join(codes)}" if codes else None
