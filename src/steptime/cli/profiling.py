"""The options of `run` that look deeper: a profiler around a few steps."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.measure.values.profiled import ProfileWish

DEFAULT_STEP = 30
"""Behind the updates in which the guest looks closer, and warm by then."""


def add_profile_options(parser: argparse.ArgumentParser) -> None:
    """Options by which the user agrees to a profiler in the training."""
    deeper = parser.add_argument_group("deeper looks (slower, and torch may print, for 4 steps)")
    for name, tool in (("--profile", "torch.profiler"), ("--nsys", "Nsight Systems")):
        deeper.add_argument(
            name,
            metavar="STEP",
            nargs="?",
            type=int,
            const=DEFAULT_STEP,
            help=f"{tool} around 3 steady steps from STEP on (default: {DEFAULT_STEP})",
        )
    deeper.add_argument(
        "--profile-stacks",
        action="store_true",
        help="with --profile: the functions of the script that led there; slower again",
    )
    add_counter_options(deeper)


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


def take_profile_wish(options: argparse.Namespace) -> ProfileWish | None:
    """What the options ask for; None if nothing.

    Raises:
        UsageError: they contradict each other.
    """
    wants_counters = options.ncu is not None or options.perf
    if options.nsys is not None and (options.profile is not None or wants_counters):
        raise UsageError(
            "--nsys goes with neither --profile nor --ncu nor --perf: one profiler at a time.",
            hint="Make two runs.",
        )
    if options.profile is None and wants_counters:
        options.profile = DEFAULT_STEP  # its counts of kernels and its times are needed
    first_step = options.profile if options.nsys is None else options.nsys
    if options.profile_stacks and options.profile is None:
        raise UsageError(
            "--profile-stacks needs --profile.", hint="Add it: --profile --profile-stacks"
        )
    if first_step is None:
        return None
    if first_step < 1:
        name = "--profile" if options.nsys is None else "--nsys"
        raise UsageError(
            f"{name} takes the number of a step from 1 on, got {first_step}.",
            hint=f"Without a number it is {DEFAULT_STEP}.",
        )
    from steptime.measure.values import profiled

    tool = profiled.TORCH if options.nsys is None else profiled.NSYS
    return profiled.ProfileWish(
        tool=tool, first_step=first_step, with_stacks=options.profile_stacks
    )


def check_tool(wish: ProfileWish | None, environment: Mapping[str, str]) -> None:
    """Make sure, before anything starts, that the tool that is wanted is there.

    Raises:
        UsageError: it is not installed.
    """
    from steptime.core.executable import NotStarted, find_executable
    from steptime.measure.values.profiled import NSYS
    from steptime.report.text.counter_text import PACKAGES

    if wish is None or wish.tool != NSYS:
        return
    if isinstance(find_executable(NSYS, environment), NotStarted):
        raise UsageError("--nsys needs `nsys`, which is not on PATH.", hint=PACKAGES[NSYS])


def wrapped(command: tuple[str, ...], wish: ProfileWish | None, folder: Path) -> tuple[str, ...]:
    """The command as it is started: inside the tool, if one of the system's is wanted."""
    from steptime.measure.values.profiled import NSYS

    if wish is None or wish.tool != NSYS:
        return command
    return (
        *("nsys", "profile", f"--output={folder / NSYS}", "--force-overwrite=true"),
        # The guest starts and stops the collection; the command runs on to its end.
        *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--kill=none"),
        *("--trace=cuda,nvtx,cudnn,cublas,osrt", "--sample=none", "--cpuctxsw=none"),
        *command,
    )
