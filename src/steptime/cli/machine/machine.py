"""`steptime machine`: what this machine has, and what it reaches."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_time
from steptime.cli.options import (
    JSON,
    MACHINE,
    STORE,
    data_folder,
    refuse_windows,
    store_to_write,
)
from steptime.cli.output import put, tell
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.machine.machine import MachineFacts
    from steptime.machine.ceilings import Told

SUMMARY = "show what this machine has, and what it can reach"
DESCRIPTION = """\
Show what this machine has, and measure what it can reach: matmul,
memory, copies to the GPU, the disk and collectives. The figures are kept until
the machine or its torch changes. No other file stays, and no cache is dropped.
Provisional figures (others were busy, or a run reached more) feed no verdict.
"""
USAGE = "steptime machine [options]"
EXAMPLES = """\
examples:
  steptime machine
  steptime machine --python /opt/env/bin/python --data /data/imagenet
  steptime machine --fresh                    # once the machine is quiet
  torchrun --nproc-per-node 8 -m steptime machine
"""
OPTIONS = (
    MACHINE
    + """\
  --inventory  only show what the machine has
  --fresh  measure again, even if the figures are known
  --budget TIME  how long all measurements may take together (default: 50s)
output:
"""
    + JSON
    + STORE
)

_MIN_BUDGET_S = 5.0


def execute(options: argparse.Namespace) -> int:
    """Read the machine, measure it, and print what was found."""
    refuse_windows("machine")
    budget_s = _budget_s(options.budget)
    return _examine(options, budget_s)


def _examine(options: argparse.Namespace, budget_s: float) -> int:
    from steptime.app.machine.machine import MachineOptions, examine
    from steptime.cli.progress import OverwrittenLine
    from steptime.report.blocks.machine.machine_report import describe_told, live_told

    asked = MachineOptions(
        python=options.python,
        data=data_folder(options),
        store=store_to_write(options),
        budget_s=budget_s,
        is_again=options.fresh,
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
    from steptime.report.document.machine_documents import machine_envelope

    document, seen = machine_envelope(found.inventory, found.ceilings), found.inventory
    put(options, document, lambda: machine_blocks(seen, found.ceilings, age_s=found.age_s))
    return document.exit_code


def _budget_s(text: str) -> float:
    budget_s = parse_time(text)
    if budget_s < _MIN_BUDGET_S:
        raise UsageError(
            f"--budget must be 5s or more, got `{text}`.",
            hint="Starting torch alone takes some seconds; --inventory measures nothing.",
        )
    return budget_s
