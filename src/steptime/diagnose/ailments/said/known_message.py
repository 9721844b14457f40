"""Reads what is known of messages of libraries: `messages.toml` beside this file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from steptime.core.codec import from_json
from steptime.record.regular_file import read_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMessage:
    """A message and what it means.

    Attributes:
        pattern: a regular expression that is searched for in the text; its named groups are words
            of the sentence.
        means: what it means for the training, as a sentence that follows a colon.
        remedy: what to do.
        thread: the address of a public question about it.
        cause: machine word of the finding.
        library: who says it.
        serious: it changes what is learned, or costs time in each step: a warning.
        same_as: causes of other findings that say the same with numbers; they win.
        quoted: the library and version whose source has the text, where it is not installed with
            the tests, or needs a device or several ranks.
    """

    pattern: str
    means: str
    remedy: str
    thread: str
    cause: str = ""
    library: str = ""
    serious: bool = False
    same_as: tuple[str, ...] = ()
    quoted: str = ""


@cache
def read_messages() -> tuple[KnownMessage, ...]:
    """Return all messages, those of one library together."""
    table = tomllib.loads(read_regular(Path(__file__).with_name("messages.toml")).decode())
    return tuple(
        from_json(KnownMessage, {**row, "cause": cause, "library": library})
        for library, rows in table.items()
        for cause, row in rows.items()
    )
