"""Turns a lever on and off within a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def switching(lever: Any, session: Any) -> Iterator[Callable[[], Callable[[], None]]]:
    """Yield what puts the lever on and returns what takes it off; what is left on goes off at last.

    Args:
        lever: the module's `LEVER`.
        session: what the lever acts on.
    """
    undos: list[Callable[[], None]] = []

    def put_on() -> Callable[[], None]:
        undos.append(lever.apply({}, session))
        return take_off

    def take_off() -> None:
        undos.pop()()

    yield put_on
    for undo in undos:
        undo()
