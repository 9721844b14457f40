"""The user's command behind `--`, for the commands that start it."""

from __future__ import annotations

import argparse
import shlex
import sys

from steptime.errors import UsageError


def take_command(options: argparse.Namespace, *, verb: str, usage: str) -> tuple[str, ...]:
    """What stands behind `--`.

    Raises:
        UsageError: there is none, it stands elsewhere, or this is Windows.
    """
    if sys.platform == "win32":
        raise UsageError(
            f"`steptime {verb}` does not work on Windows.", hint="Use it in WSL 2, a Linux."
        )
    if options.words:
        raise UsageError(
            "the command must stand behind `--`.", hint=f"Write: {_corrected(options)}"
        )
    if not options.command:
        raise UsageError("no command was given.", hint=f"usage: {usage}")
    return tuple(options.command)


def _corrected(options: argparse.Namespace) -> str:
    """The command line with a `--` where it belongs; a later one is the command's own."""
    ours = options.given[: len(options.given) - len(options.words)]
    rest = [] if options.command is None else ["--", *options.command]
    return shlex.join(["steptime", *ours, "--", *options.words, *rest])
