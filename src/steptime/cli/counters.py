"""Prints the commands for counters of the hardware, below a report; runs none."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from rich.text import Text

from steptime.core.executable import NotStarted, find_executable
from steptime.measure.values.measurement import Measurement
from steptime.report.text.counter_text import (
    PACKAGES,
    CounterCommand,
    kernel_counters,
    processor_counters,
)
from steptime.report.text.page import LABEL_WIDTH, page_of, printable

if TYPE_CHECKING:
    from rich.console import Console


def write_counters(m: Measurement, console: Console, *, kernel: str | None, perf: bool) -> None:
    """The commands that were asked for, each below what it looks at."""
    found = [] if kernel is None else [kernel_counters(m, kernel)]
    if perf:
        found.append(processor_counters(m))
    page = page_of(console)
    for one in found:
        page.write([Text(), *page.block(one.tool, printable(_describe(one)))])
        if one.argv:
            page.write([Text(" " * LABEL_WIDTH + printable(shlex.join(one.argv)), style="bold")])


def _describe(one: CounterCommand) -> str:
    if one.missing is not None:
        return f"no command: {one.missing}."
    text = f"{one.about}."
    if isinstance(find_executable(one.tool, os.environ), NotStarted):
        text += f" It is not on PATH. {PACKAGES[one.tool]}"
    return text
