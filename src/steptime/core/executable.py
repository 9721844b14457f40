"""Finds the file that a command's first word means, as a shell would."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from steptime.errors import NotStartedError


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted:
    """Why there is no child, and a shell's exit code: 127 is not found, 126 cannot be run."""

    exit_code: int
    reason: str


def find_executable(name: str, environment: Mapping[str, str]) -> str | NotStarted:
    """Return the file a shell would run for `name`, or why there is none."""
    if os.sep in name:
        candidates = [name]
    else:
        search = os.get_exec_path(environment) if name else []
        candidates = [os.path.join(folder, name) for folder in search]
    found = [path for path in candidates if os.path.exists(path)]
    for path in found:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    if found:
        kind = "is a folder" if os.path.isdir(found[0]) else "is not executable"
        return NotStarted(exit_code=126, reason=kind)
    return NotStarted(exit_code=127, reason="was not found")


def need_executable(command: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Return the file that a shell would run for a command.

    Raises:
        NotStartedError: there is no such file.
    """
    found = find_executable(command[0], environment)
    if isinstance(found, NotStarted):
        raise not_started(command, found)
    return found


def why_not_started(error: OSError) -> NotStarted:
    """Return why the kernel did not run a file that exists."""
    missing = error.errno == errno.ENOENT  # the interpreter in its first line
    reason = "names an interpreter that was not found" if missing else f"failed: {error}"
    return NotStarted(exit_code=127 if missing else 126, reason=reason)


def not_started(command: tuple[str, ...], found: NotStarted) -> NotStartedError:
    """Return the error that says why nothing was started."""
    hint = "Check the name, and PATH."
    if command[0].endswith(".py"):
        hint = f"Name its interpreter: {shlex.join(['python', *command])}"
    return NotStartedError(
        f"the command `{command[0]}` {found.reason}.", hint=hint, exit_code=found.exit_code
    )
