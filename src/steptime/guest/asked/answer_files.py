"""Reads the question in a run's folder, and writes the answer of this process.

A question counts if it belongs to the user of this process or to root. An answer goes into a folder
that the asker has made, past no link, whole or not at all: if the folder is gone, nobody waits.
"""

from __future__ import annotations

import os
from json import dumps
from typing import Any

from ...record.live.questions import (
    ANSWERS,
    MAX_ANSWER_BYTES,
    MAX_QUESTION_BYTES,
    QUESTION,
    Question,
    answer_file,
    parse_question,
)
from ...record.regular_file import read_regular

Mark = tuple[int, int, int]
"""What changes when a file is written again: its node, size and time."""


def mark_of(run: str) -> Mark | None:
    """Return the mark of the question of a run; None if there is none for this user."""
    try:
        found = os.lstat(f"{run}/{QUESTION}")
    except (OSError, ValueError):
        return None
    if found.st_uid not in (0, os.geteuid()):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_question(run: str) -> Question | None:
    """Return the question of a run; None if there is none, or it is not whole."""
    try:
        return parse_question(read_regular(f"{run}/{QUESTION}", max_bytes=MAX_QUESTION_BYTES))
    except OSError:
        return None


def write_answer(run: str, question_id: str, stream: str, answer: dict[str, Any]) -> None:
    """Write an answer; one above the limit is replaced by a reason.

    Raises:
        OSError: it cannot be written. Where the asker's folder is gone, nobody waits for it.
    """
    data = dumps(answer).encode()
    if len(data) > MAX_ANSWER_BYTES:
        data = dumps(answer | {"missing": "too_large", "facts": None}).encode()
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(f"{run}/{ANSWERS}/{question_id}", flags)
    except FileNotFoundError:
        return
    try:
        _write(folder, answer_file(stream), data)
    finally:
        os.close(folder)


def _write(folder: int, name: str, data: bytes) -> None:
    part = f".{name}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(part, flags, 0o644, dir_fd=folder)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)
    os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
