"""Puts things back whatever happens: an error, an interrupt, or an interrupt meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def undoing() -> Iterator[ExitStack]:
    """Yield a stack of calls that put things back; all of them run, the last one first."""
    undo = ExitStack()
    try:
        yield undo
    finally:
        with _interrupts_held():
            undo.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait until this is left; Python delivers it to the main thread alone."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    arrived: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if arrived:
            signal.raise_signal(signal.SIGINT)
