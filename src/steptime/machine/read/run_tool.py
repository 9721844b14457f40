"""Runs a tool of the system that only reads, bounded in time and in what it may say.

In: the words of a command. Out: its text, or why there is none, a machine word. The tool runs in
the C locale, without our standard input, in a process group of its own that is ended with it. No
shell is involved.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

LIMIT_S = 10.0
"""A tool that asks a driver which hangs would wait for ever."""

MAX_BYTES = 8 << 20
"""The journal of a node with many messages fits into this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a tool said.

    Attributes:
        text: its output; empty where it did not run.
        missing: why that is not all: `no_tool`, `no_answer_in_time`, `tool_failed`, `too_long`.
    """

    text: str = ""
    missing: str | None = None


RunTool = Callable[[Sequence[str]], Said]
"""Runs the words of a command; tests have one that answers from files."""


def run_tool(words: Sequence[str], *, limit_s: float = LIMIT_S, max_bytes: int = MAX_BYTES) -> Said:
    """Return what the tool said, at most `max_bytes` of it, within `limit_s` seconds."""
    path = shutil.which(words[0])
    if path is None:
        return Said(missing="no_tool")
    try:
        child = subprocess.Popen(
            [path, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "LANG": "C"},
            start_new_session=True,
        )
    except OSError:
        return Said(missing="no_tool")
    timer = threading.Timer(limit_s, _end, (child,))
    timer.daemon = True
    timer.start()
    assert child.stdout is not None
    try:
        with child.stdout:
            text = child.stdout.read(max_bytes + 1)
        is_long = len(text) > max_bytes
        if is_long:
            _end(child)
        exit_code = child.wait()
    finally:
        is_late = timer.finished.is_set()
        timer.cancel()
        _end(child)
    said = text[:max_bytes].decode(errors="replace")
    if is_late:
        return Said(text=said, missing="no_answer_in_time")
    if is_long:
        return Said(text=said, missing="too_long")
    return Said(text=said, missing="tool_failed" if exit_code else None)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the tool and what it started, unless its end was collected: then its number is free."""
    if child.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
