"""Tries acts that must not affect the user's command, whatever happens in them.

If an act fails, only that act is lost, and one sentence says so. The details of Steptime's own
failures are kept in a file, which the sentence names.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from steptime.errors import SteptimeError


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


def describe_failure(error: Exception) -> str:
    """Return a sentence about a failure of Steptime; its details are saved in a file."""
    kind = f"{type(error).__name__}: {error}"
    try:
        descriptor, path = tempfile.mkstemp(prefix="steptime-error-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return f"a failure of Steptime itself: {kind}."
    return f"a failure of Steptime itself: {kind}. The details are in {path}."
