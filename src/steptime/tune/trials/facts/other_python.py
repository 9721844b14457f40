"""Checks an interpreter that the user names as an arm of a study.

In: its path, and the command. Out: an `OtherPython`, or one error that says what to do. Besides
`isolate`, this is a place where a study starts a process: the interpreter itself, for its versions.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.errors import UsageError

OLDEST_PYTHON, OLDEST_TORCH = (3, 10), (2, 4)
"""What the guest can be loaded in; `guest.bootstrap` says the same of torch."""

_LIMIT_S = 120.0
"""An import of torch from a cold disk takes a minute."""

_ASK = """\
import json, sys
found = {"python": list(sys.version_info[:3]), "torch": None}
try:
    import torch
    found["torch"] = str(torch.__version__)
except Exception as error:
    found["error"] = "%s: %s" % (type(error).__name__, error)
print("\\n" + json.dumps(found))
"""
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "env")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPython:
    """An interpreter with its versions; `path` is absolute, with its links kept."""

    path: str
    python_version: str
    torch_version: str


def check_other_python(
    given: str, command: tuple[str, ...], environment: Mapping[str, str]
) -> OtherPython:
    """Return an interpreter that can take the place of the command's.

    Args:
        given: as the user named it.
        command: what is tuned.
        environment: of the command.

    Raises:
        UsageError: it is not there, cannot be run, has no torch, is too old, or cannot take the
            place of what the command starts.
    """
    # Links stay as they are: a venv's interpreter is a link, and its place says which venv.
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.exists(path):
        raise UsageError(f"--python: there is no file {given}.", hint=_HINT)
    if os.path.isdir(path):
        raise UsageError(f"--python: {given} is a folder.", hint=_HINT)
    if not os.access(path, os.X_OK):
        raise UsageError(f"--python: {given} is not executable.", hint=_HINT)
    _check_place(path, given, command)
    return _ask(path, given, environment)


_HINT = "Name the interpreter of an environment with torch: --python OTHER/bin/python"


def _check_place(path: str, given: str, command: tuple[str, ...]) -> None:
    """Check that the command finds it when its folder comes first on PATH."""
    first = command[0]
    if os.sep in first:
        raise UsageError(
            f"--python: the command names {first} by its path, so no other interpreter can take "
            "its place.",
            hint="Write its name alone: steptime tune --python ... -- python train.py",
        )
    wanted = "python" if first in _SHELLS else first
    folder = Path(path).parent
    if not os.access(folder / wanted, os.X_OK):
        raise UsageError(
            f"--python: there is no `{wanted}` beside {given}, which the command starts.",
            hint=f"Install it there, or start the command by {Path(path).name}.",
        )


def _ask(path: str, given: str, environment: Mapping[str, str]) -> OtherPython:
    """Return the versions that it says it has."""
    try:
        done = subprocess.run(
            [path, "-c", _ASK],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--python: {given} does not run: {error}.", hint=_HINT) from error
    found = _answer(done.stdout)
    if found is None:
        words = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        raise UsageError(f"--python: {given} is no Python that runs: {words[0]}.", hint=_HINT)
    version = ".".join(str(part) for part in found["python"])
    if tuple(found["python"][:2]) < OLDEST_PYTHON:
        raise UsageError(
            f"--python: {given} is Python {version}, and Steptime's guest needs 3.10 or newer.",
            hint=_HINT,
        )
    torch = found.get("torch")
    if torch is None:
        why = f" ({found['error']})" if found.get("error") else ""
        raise UsageError(f"--python: {given} has no torch{why}.", hint=_HINT)
    if _numbers(torch) < OLDEST_TORCH:
        raise UsageError(
            f"--python: {given} has torch {torch}, and Steptime's guest needs 2.4 or newer.",
            hint=_HINT,
        )
    return OtherPython(path=path, python_version=version, torch_version=str(torch))


def _answer(text: str) -> dict[str, Any] | None:
    """Return its last line, if that is an answer."""
    last = text.strip().rpartition("\n")[2]
    try:
        found = json.loads(last)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("python"), list) else None


def _numbers(version: str) -> tuple[int, int]:
    """Return major and minor; zeros where it says neither."""
    parts = [part for part in version.split(".")[:2] if part.isdigit()]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 else (0, 0)
