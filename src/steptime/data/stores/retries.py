"""Tries again what a store could not answer, with growing pauses and a limit."""

from __future__ import annotations

import asyncio
import errno
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

# Of libraries that raise what is no OSError, where they are loaded: (module, class).
_FOREIGN = (
    ("aiohttp", "ClientError"),
    ("azure.core.exceptions", "AzureError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("requests", "RequestException"),
)
_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_LASTING_NUMBERS = {errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENAMETOOLONG, errno.ENOENT,
                    errno.EACCES}  # fmt: skip
_LASTING_NAMES = {"NoCredentialsError", "PartialCredentialsError", "ParamValidationError",
                  "UnknownServiceError", "ProfileNotFound"}  # fmt: skip


class ShortAnswerError(OSError):
    """A store ended its answer before the end."""


@dataclass(frozen=True)
class Retries:
    """How often a store is asked, and how long we wait between."""

    attempts: int = 8
    first_pause_s: float = 0.1
    longest_pause_s: float = 10.0
    limit_s: float = 120.0
    """Of all attempts and pauses; what goes on then is ended by the store's own time limits."""
    sleep: Callable[[float], None] | None = None
    """What waits; None waits as long as Python goes on."""
    clock: Callable[[], float] = time.monotonic

    def pause_s(self, attempt: int) -> float:
        """Return how long to wait after an attempt, counted from 0 [s].

        Half of it is chance, so that many processes that were refused together do not
        come back together.
        """
        whole = min(self.longest_pause_s, self.first_pause_s * 2.0**attempt)
        return whole * random.uniform(0.5, 1.0)

    def call(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, which is tried again where it fails for a while only.

        Raises:
            OSError: it failed for good, or too often; or an error of the store's library.
        """
        began = self.clock()
        for attempt in range(self.attempts):
            try:
                return work()
            except store_errors() as error:
                pause_s = self.pause_s(attempt)
                is_late = self.clock() - began + pause_s > self.limit_s
                if attempt == self.attempts - 1 or is_late or not is_passing(error):
                    raise
            (self.sleep or _wait)(pause_s)
        raise AssertionError("`attempts >= 1` must hold")


def store_errors() -> tuple[type[BaseException], ...]:
    """Return the errors of stores and of the libraries that are loaded."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in _FOREIGN)
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, Exception)]
    return (OSError, EOFError, asyncio.TimeoutError, *kinds)


def is_passing(error: BaseException) -> bool:
    """Whether another attempt may succeed: the store is busy, slow, or broke off."""
    if isinstance(error, _LASTING) or type(error).__name__ in _LASTING_NAMES:
        return False
    status = _status_of(error)
    if status is not None:
        return status in (408, 429) or status >= 500
    return not (isinstance(error, OSError) and error.errno in _LASTING_NUMBERS)


def _status_of(error: BaseException) -> int | None:
    """Return the number of an HTTP answer, where the error has one."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "status", None) or getattr(error, "code", None)
    return status if isinstance(status, int) and status >= 100 else None


def _wait(seconds: float) -> None:
    """Wait, but no longer than the main thread lives: Ctrl-C does not wait for a busy store."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and threading.main_thread().is_alive():
        time.sleep(min(left, 0.1))
