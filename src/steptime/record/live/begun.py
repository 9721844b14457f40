"""Recognizes a process by how it was started, in a later run of the same command.

In: the processes of a run, in the order of start. Out: for each the words that it was started with,
and its number among those with the same words. The guest asks for itself, the parent for others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..kinds import START
from ..lines import kind_of, read_lines

SPAWNED = "--multiprocessing-fork"
"""A word of each child that Python's multiprocessing spawned; the words beside it change."""

Alike = tuple[tuple[str, ...], int]
"""The words of a process, and its number among those with the same words, from 0."""


class Begun(NamedTuple):
    """A Python process that began, with its parent and its words."""

    pid: int
    ppid: int
    argv: tuple[str, ...]


def read_begun(path: str | os.PathLike[str]) -> list[Begun]:
    """Return the processes that a file of a run says have begun, in the order of start.

    Raises:
        OSError: the file cannot be read.
    """
    return list(_begun(path))


def _begun(path: str | os.PathLike[str]) -> Iterator[Begun]:
    for line in read_lines(path):
        pid, ppid, argv = line.get("pid"), line.get("ppid"), line.get("argv")
        if kind_of(line) == START and type(pid) is int and isinstance(argv, list):
            yield Begun(pid, ppid if type(ppid) is int else 0, tuple(map(str, argv)))


def number_alike(processes: Sequence[Begun]) -> dict[int, Alike]:
    """Return what recognizes each process; of a process id that was used again, the last one."""
    words_of: dict[int, tuple[str, ...]] = {}
    counts: dict[tuple[str, ...], int] = {}
    found: dict[int, Alike] = {}
    for one in processes:
        words = one.argv
        if SPAWNED in words:
            words = (SPAWNED, *words_of.get(one.ppid, ()))
        words_of[one.pid] = words
        number = counts.get(words, 0)
        counts[words] = number + 1
        found[one.pid] = (words, number)
    return found
