"""`steptime machine`: what this machine has."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.options import add_json, check_json
from steptime.cli.output import console_for, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.core.machine import Inventory

SUMMARY = "show what this machine has"
DESCRIPTION = """\
Show what this machine has: processors, caches, memory and its nodes, GPUs and
how they are linked, network, disks, the file system of the data, and what a
container or the shell lets a process have. Nothing is changed.
"""
USAGE = "steptime machine [options]"
EXAMPLES = """\
examples:
  steptime machine
  steptime machine --data /data/imagenet --json
"""

NEXT = "steptime run -- python train.py"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `machine`."""
    parser.add_argument(
        "--data", metavar="DIR", default=".", help="where the data is (default: this folder)"
    )
    output = parser.add_argument_group("output")
    add_json(output)


def execute(options: argparse.Namespace) -> int:
    """Look, and print what was found."""
    check_json(options)
    data = Path(options.data)
    if not data.is_dir():
        raise UsageError(f"--data: there is no folder `{data}`.", hint="Name an existing one.")
    from steptime.machine.inventory import read_inventory
    from steptime.measure.devices import load_nvml
    from steptime.report.envelope import Envelope

    found = read_inventory(data, load_nvml=load_nvml, environment=os.environ)
    if options.json is None:
        _print(found)
        return 0
    write_json(
        options.json, Envelope(command="machine", exit_code=0, data={"inventory": asdict(found)})
    )
    return 0


def _print(found: Inventory) -> None:
    from rich.text import Text

    from steptime.report.machine_text import inventory_lines
    from steptime.report.page import page_of

    page = page_of(console_for(sys.stdout))
    page.write([*inventory_lines(found, page=page), Text(), Text(f"  {NEXT}", style="bold")])
