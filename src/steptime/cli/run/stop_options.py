"""The options of `run` that end a run, tell of findings, and keep checksums."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.run.stop_wish import StopWish

LEVELS = (1, 2, 3)


def stop_wish(options: argparse.Namespace) -> StopWish:
    """Return what ends the run, and the command that gets its findings.

    Raises:
        UsageError: a word is unknown, or an option has no effect without another.
    """
    from steptime.app.run.stop_wish import STOPS, StopWish

    words = [word.strip() for one in options.stop_on or () for word in one.split(",")]
    unknown = next((word for word in words if word not in STOPS), None)
    if unknown is not None:
        raise UsageError(
            f"--stop-on does not know {unknown!r}.", hint=f"It knows {', '.join(STOPS)}."
        )
    if options.after is not None and not words:
        raise UsageError("--after has no effect without --stop-on.", hint="Name a reason to end.")
    if options.after is not None and options.after < 0:
        raise UsageError(f"--after takes a number of steps, got {options.after}.")
    return StopWish(
        on=tuple(dict.fromkeys(words)), after_steps=options.after or 0, tell=_teller(options)
    )


def _teller(options: argparse.Namespace) -> tuple[str, ...]:
    if options.on_finding is None:
        return ()
    try:
        words = tuple(shlex.split(options.on_finding))
    except ValueError as error:
        raise UsageError(f"--on-finding cannot be read: {error}.") from error
    if not words:
        raise UsageError("--on-finding names no command.", hint="Name one: --on-finding 'cat'")
    return words


def checksum_level(options: argparse.Namespace) -> int:
    """Return the level of checksums that is wanted; 0 for none.

    Raises:
        UsageError: there is no such level.
    """
    level: int | None = options.checksums
    if level is not None and level not in LEVELS:
        raise UsageError(
            f"--checksums takes 1, 2 or 3, got {level}.",
            hint="1 keeps one checksum of all weights, 2 one of each module, 3 that in each step.",
        )
    return level or 0
