"""Does something in a forked copy of this process, as a DataLoader's worker does.

Whatever it changes (random states, caches, open files) is gone with the copy.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any


def do_apart(act: Callable[[], dict[str, Any]], *, limit_s: float) -> dict[str, Any]:
    """Return what `act` returns in a forked copy; `error` says why there is nothing.

    Args:
        act: returns what JSON can hold.
        limit_s: the copy is ended after this time [s].
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        answer_and_leave(act, writer)
    os.close(writer)
    try:
        text = read_until(reader, time.monotonic() + limit_s)
    finally:
        os.close(reader)
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if text is None:
        return {"error": "time_limit"}
    return dict(json.loads(text)) if text else {"error": "ended"}


def answer_and_leave(act: Callable[[], dict[str, Any]], writer: int) -> None:
    """Write the answer and leave at once, so that nothing of the script's runs."""
    try:
        try:
            answer = act()
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def read_until(reader: int, due_s: float) -> bytes | None:
    """Return all that comes until the other end closes; None where that is too late."""
    chunks: list[bytes] = []
    while (left_s := due_s - time.monotonic()) > 0:
        if select.select([reader], [], [], left_s)[0]:
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
    return None
