"""The options of `run` that see more: profilers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.measure.values.model.profiled import ProfileWish

_PROFILED_FROM = 30  # `measure.values.profiled.DEFAULT_STEP`: the help does not import it


def profile_wish(options: argparse.Namespace) -> ProfileWish | None:
    """Return the profiler that the options ask for, or None.

    Raises:
        UsageError: the options contradict each other.
    """
    if options.nsys is not None and options.profile is not None:
        raise UsageError(
            "--nsys cannot be combined with --profile: only one profiler can run at a time.",
            hint="Make two runs.",
        )
    first_step = options.profile if options.nsys is None else options.nsys
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
