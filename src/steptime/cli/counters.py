"""The counters of the hardware, for `run` and `show`: prints the commands that read them.

None of them is run.
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from steptime.measure.values.measurement import Measurement
    from steptime.report.text.counter_text import CounterCommand


def add_counter_options(group: argparse._ArgumentGroup) -> None:
    """Options that print a command for counters of the hardware."""
    group.add_argument(
        "--ncu",
        metavar="KERNEL",
        nargs="?",
        const="",
        help="print ncu's command for a kernel's counters (default: the busiest)",
    )
    group.add_argument(
        "--perf", action="store_true", help="print perf's command for the CPU's counters"
    )


def write_counters(m: Measurement, console: Console, *, kernel: str | None, perf: bool) -> None:
    """The commands that were asked for, each below what it reads."""
    if kernel is None and not perf:
        return
    from rich.text import Text

    from steptime.report.text.counter_text import kernel_counters, processor_counters
    from steptime.report.text.page import LABEL_WIDTH, page_of, printable

    found = [] if kernel is None else [kernel_counters(m, kernel)]
    if perf:
        found.append(processor_counters(m))
    page = page_of(console)
    for one in found:
        page.write([Text(), *page.block(one.tool, printable(_describe(one)))])
        if one.argv:
            page.write([Text(" " * LABEL_WIDTH + printable(shlex.join(one.argv)), style="bold")])


def _describe(one: CounterCommand) -> str:
    from steptime.core.executable import NotStarted, find_executable
    from steptime.report.text.counter_text import PACKAGES

    if one.missing is not None:
        return f"no command: {one.missing}."
    text = f"{one.about}."
    if isinstance(find_executable(one.tool, os.environ), NotStarted):
        text += f" It is not on PATH. {PACKAGES[one.tool]}"
    return text
