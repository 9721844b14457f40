"""Which of many tests alike the fast check takes: a fifth of them, another one with each commit.

A test marked `rotates` is one of many that would find the same fault in other specimens. The fast
check (`--fast`) takes those whose turn it is by the hash of the commit; it takes all of them
where the change touches what they watch, and where nothing is known of the change. `--all` takes
them all.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PARTS = 5
WATCHED = ("guest", "inject", "record", "launch", "levers")
"""The rooms of the package that act in a user's process, or hold what it wrote."""
FAST = "TESTS_OF_THE_FAST_CHECK"
"""The variable that says so, in the processes of the fast check."""
RECENT = 10
"""Commits that a change is taken to have, where CHECK_SINCE does not name the one before it."""


def in_turn(values: Iterable[Any], *, rooms: tuple[str, ...] = ()) -> list[Any]:
    """Parameters that rotate by the first of each, the name of a specimen say."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=rotates(row[0], rooms=rooms)) for row in rows]


def rotates(key: str | None = None, *, rooms: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """The mark of one of many alike, known by a key; by its own name where there is none.

    `rooms` of the package are watched beside those that are always watched.
    """
    return pytest.mark.rotates(key, rooms=rooms)


def takes(key: str, rooms: tuple[str, ...] = ()) -> bool:
    """Whether it is the turn of this one, a specimen say."""
    now = turn(rooms)
    return now is None or _part(key) == now


def _part(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % PARTS


@cache
def turn(rooms: tuple[str, ...] = ()) -> int | None:
    """The part whose turn it is; None where all of them run."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None  # an archive: nobody knows what changed in it
    watched = [f"src/steptime/{room}" for room in (*WATCHED, *rooms)]
    since = os.environ.get("CHECK_SINCE") or f"HEAD~{RECENT}"
    committed = _git("diff", "--name-only", since, "--", *watched)
    untracked = _git("ls-files", "--others", "--exclude-standard", "--", *watched)
    if committed is None or committed or untracked:
        return None
    return _part(commit)


def _git(*words: str) -> str | None:
    """What git answers; None where it does not."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
