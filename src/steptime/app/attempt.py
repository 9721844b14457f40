"""Tries an action that must not touch the user's command, whatever happens in it.

In: an action. Out: its result, or None and one sentence. A failure of ours is kept in a file, which
the sentence names.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable
from typing import TypeVar

from steptime.errors import SteptimeError

T = TypeVar("T")


def attempt(action: Callable[[], T], *, tell: Callable[[str], None]) -> T | None:
    """The action's result; None where it failed, and then `tell` gets a sentence that says why."""
    try:
        return action()
    except SteptimeError as error:
        tell(str(error))
    except OSError as error:
        tell(f"this failed: {error}")
    except Exception as error:
        tell(describe_failure(error))
    return None


def describe_failure(error: Exception) -> str:
    """A sentence about a failure of ours; its details are saved in a file."""
    kind = f"{type(error).__name__}: {error}"
    try:
        descriptor, path = tempfile.mkstemp(prefix="steptime-error-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return f"a failure of Steptime itself: {kind}."
    return f"a failure of Steptime itself: {kind}. The details are in {path}."
