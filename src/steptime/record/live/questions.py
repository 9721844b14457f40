"""A question to the processes of a run that goes on, and their answers: names, fields, limits.

`steptime attach` writes one question into the run's folder. Each process that it names finds it
when it writes its record anyway, and answers into a folder that is named like the question. There
is one question at a time: whoever makes the file asks, and takes it away when there is an end of
it. docs/internals/run-folder.md has the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..files import SCHEMA

QUESTION = "question.json"
ANSWERS = "answers"
"""The folder with a folder for each question, and in it a file for each process that answers."""

MEMORY, COUNT, PROFILE, HEALTH = "memory", "count", "profile", "health"
ANSWERED = (MEMORY, COUNT, PROFILE, HEALTH)
"""What a process can be asked."""

MAX_STEPS: Mapping[str, int] = {PROFILE: 50, HEALTH: 1000}
"""Steps that are examined at most: a trace of more of them takes minutes to read, and to probe
every layer for longer is what `run --health` is for."""

MAX_QUESTION_BYTES = 64 << 10
"""It names a process in some ten bytes."""

MAX_ANSWER_BYTES = 4 << 20
"""The work of an update of a large model has some hundred kilobytes."""

_ID = re.compile(r"[0-9a-f]{16}")
_FIELDS: Mapping[str, type] = {
    "id": str,
    "what": str,
    "num_steps": int,
    "begin_at": int,
    "until_unix_s": float,
    "streams": list,
}


class Question(NamedTuple):
    """What is asked.

    `streams` are the names of the rank files whose processes answer, without their ending. They
    begin once they have made `begin_at` updates, so that all ranks examine the same step, and do
    not begin after `until_unix_s`.
    """

    id: str
    what: str
    num_steps: int
    begin_at: int
    until_unix_s: float
    streams: tuple[str, ...]

    @property
    def text(self) -> str:
        """The question as it is written."""
        return json.dumps({"schema": SCHEMA, **self._asdict()}) + "\n"


def parse_question(text: bytes) -> Question | None:
    """Return the question in a file; None if it is anything else, or not wholly written."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    values = {name: found.get(name) for name in _FIELDS}
    if any(type(values[name]) is not kind for name, kind in _FIELDS.items()):
        return None
    streams: list[Any] = found["streams"]
    is_sound = (
        _ID.fullmatch(found["id"]) is not None
        and found["what"] in ANSWERED
        and 1 <= found["num_steps"] <= MAX_STEPS.get(found["what"], 1)
        and all(type(name) is str for name in streams)
    )
    return Question(**(values | {"streams": tuple(streams)})) if is_sound else None


def is_question_id(name: str) -> bool:
    """Return whether a folder of answers may have this name."""
    return _ID.fullmatch(name) is not None


def answer_file(stream: str) -> str:
    """Return the file with the answer of the process that writes this stream."""
    return f"{stream}.json"


def stream_of(rank_path: str) -> str:
    """Return the name of a rank's file, without its ending."""
    return rank_path.rpartition("/")[2].removesuffix(".jsonl")
