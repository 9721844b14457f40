"""The options of `run` that look deeper: a profiler around a few steps."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.core.profile import ProfileWish

DEFAULT_STEP = 30
"""Behind the updates in which the guest looks closer, and warm by then."""


def add_profile_options(parser: argparse.ArgumentParser) -> None:
    """Options by which the user agrees to a profiler in the training."""
    deeper = parser.add_argument_group("deeper looks (slower, and torch may print, for 4 steps)")
    deeper.add_argument(
        "--profile",
        metavar="STEP",
        nargs="?",
        type=int,
        const=DEFAULT_STEP,
        help=f"torch.profiler around 3 steady steps from STEP on (default: {DEFAULT_STEP})",
    )
    deeper.add_argument(
        "--profile-stacks",
        action="store_true",
        help="with --profile: the functions of the script that led there; slower again",
    )


def take_profile_wish(options: argparse.Namespace) -> ProfileWish | None:
    """What the options ask for; None if nothing.

    Raises:
        UsageError: they contradict each other.
    """
    if options.profile is None:
        if options.profile_stacks:
            raise UsageError(
                "--profile-stacks needs --profile.", hint="Add it: --profile --profile-stacks"
            )
        return None
    if options.profile < 1:
        raise UsageError(
            f"--profile takes the number of a step from 1 on, got {options.profile}.",
            hint=f"Without a number it is {DEFAULT_STEP}.",
        )
    from steptime.core import profile

    return profile.ProfileWish(first_step=options.profile, with_stacks=options.profile_stacks)
