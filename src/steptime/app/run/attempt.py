"""Tries acts that must not affect the user's command, whatever happens in them.

If an act fails, only that act is lost, and one sentence says so. The details of Steptime's own
failures are kept in a file, which the sentence names.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from steptime.core.store import NAME
from steptime.errors import SteptimeError, UsageError

MAX_FILES = 10
"""The latest failures of Steptime's own; older files go."""


@contextmanager
def attempt(tell: Callable[[str], None]) -> Iterator[None]:
    """Leave the block if it fails; `tell` gets a sentence that says why.

    A variable that is set in the block needs a value before it, in case the block fails.
    """
    try:
        yield
    except SteptimeError as error:
        tell(str(error) if error.hint is None else f"{error} {error.hint}")
    except OSError as error:
        tell(f"this failed: {error}")
    except Exception as error:
        tell(describe_failure(error))


@contextmanager
def blamed(path: Path) -> Iterator[None]:
    """Say of the user's file what is raised while the block runs it, and where.

    Raises:
        UsageError: something but an error of Steptime's was raised; the message names the line.
    """
    try:
        yield
    except SteptimeError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [one.lineno for one in frames if Path(one.filename).resolve() == path.resolve()]
        if isinstance(error, SyntaxError):
            lines.append(error.lineno)
        where = f"`{path}`, line {lines[-1]}," if lines else f"`{path}`"
        raise UsageError(
            f"{where} raised {type(error).__name__}: {error}",
            hint="The error is in that file, or in what it calls; run it with Python alone.",
        ) from error


def describe_failure(error: Exception) -> str:
    """Return a sentence about a failure of Steptime; its details are saved in a file."""
    kind = f"{type(error).__name__}: {error}"
    try:
        descriptor, path = tempfile.mkstemp(
            prefix="steptime-error-", suffix=".txt", dir=_errors_folder()
        )
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return f"a failure of Steptime itself: {kind}."
    return f"a failure of Steptime itself: {kind}. The details are in {path}."


def _errors_folder() -> str | None:
    """Return the folder in this folder's store, with room for one file; None for the system's."""
    if not os.path.isdir(NAME):
        return None
    folder = os.path.join(NAME, "errors")
    os.makedirs(folder, exist_ok=True)
    names = [os.path.join(folder, name) for name in os.listdir(folder)]
    for old in sorted(names, key=os.path.getmtime)[: max(0, len(names) - MAX_FILES + 1)]:
        os.unlink(old)
    return os.path.abspath(folder)
