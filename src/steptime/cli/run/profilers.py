"""The options of `run` and `show` that see more: profilers and hardware counters.

For counters, only the commands that read them are printed; none of those commands is run.
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING

from steptime.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from steptime.measure.values.measurement import Measurement
    from steptime.measure.values.model.profiled import ProfileWish
    from steptime.report.text.counter_text import CounterCommand


_PROFILED_FROM = 30  # `measure.values.profiled.DEFAULT_STEP`: the help does not import it


def profile_wish(options: argparse.Namespace) -> ProfileWish | None:
    """Return the profiler that the options ask for, or None.

    Raises:
        UsageError: the options contradict each other.
    """
    wants_counters = options.ncu is not None or options.perf
    if options.nsys is not None and (options.profile is not None or wants_counters):
        raise UsageError(
            "--nsys cannot be combined with --profile, --ncu or --perf: only one profiler can run "
            "at a time.",
            hint="Make two runs.",
        )
    first_step = options.profile if options.nsys is None else options.nsys
    if first_step is None and wants_counters:
        first_step = _PROFILED_FROM  # its kernel counts and times are needed
    if options.profile_stacks and (first_step is None or options.nsys is not None):
        raise UsageError(
            "--profile-stacks needs --profile.", hint="Add it: --profile --profile-stacks"
        )
    if first_step is None:
        return None
    if first_step < 1:
        name = "--profile" if options.nsys is None else "--nsys"
        raise UsageError(
            f"{name} takes a step number of 1 or more, got {first_step}.",
            hint=f"Without a number, it starts at step {_PROFILED_FROM}.",
        )
    from steptime.measure.values.model import profiled

    tool = profiled.TORCH if options.nsys is None else profiled.NSYS
    return profiled.ProfileWish(
        tool=tool, first_step=first_step, with_stacks=options.profile_stacks
    )


def write_counters(m: Measurement, console: Console, *, kernel: str | None, perf: bool) -> None:
    """Print the commands that were asked for, each below what it reads."""
    if kernel is None and not perf:
        return
    from rich.text import Text

    from steptime.core.printable import printable
    from steptime.report.text.counter_text import kernel_counters, processor_counters
    from steptime.report.text.page import LABEL_WIDTH, page_of

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
