"""Reads the events of a trace that torch's profiler wrote, one by one, plain or compressed.

In: a path. Out: dictionaries, as they are in the file. Only a piece of the file is in memory at a
time: traces of large models have hundreds of MB. `measure.profile.profile_trace` interprets the
events.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from steptime.record.regular_file import open_regular

CHUNK = 1 << 20
"""Characters that are read at once."""

MAX_BYTES = 16 << 30
"""A trace of many steps of a large model has a few of them."""

MAX_EVENT = 1 << 23
"""Most characters of one event; torch's events are far shorter, so a longer one is damage."""

_BEGIN = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")


class DamagedTraceError(Exception):
    """The file is cut, or is not a trace; the text says where."""


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace, in the order of the file.

    Raises:
        DamagedTraceError: the file is cut, is not a trace, or cannot be read; the events before
            that point are valid.
    """
    try:
        with open_regular(path, max_bytes=MAX_BYTES) as plain:
            packed = gzip.GzipFile(fileobj=plain) if path.suffix == ".gz" else plain
            with io.TextIOWrapper(packed, encoding="utf-8", errors="replace") as file:
                yield from _read(file)
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedTraceError(f"{path.name}: {error}") from error


def _read(file: TextIO) -> Iterator[dict[str, Any]]:
    text, place = _find_begin(file)
    decode = json.JSONDecoder().raw_decode
    while True:
        found = _BETWEEN.match(text, place)
        place = place if found is None else found.end()
        if text[place : place + 1] == "]":
            return
        try:
            event, place = decode(text, place)
        except (ValueError, RecursionError):
            more = file.read(CHUNK)
            if not more or len(text) - place > MAX_EVENT:
                raise DamagedTraceError("the trace is cut, or holds something else") from None
            text, place = text[place:] + more, 0
            continue
        if isinstance(event, dict):
            yield event


def _find_begin(file: TextIO) -> tuple[str, int]:
    """Return the text that was read so far, and where in it the events begin."""
    text = ""
    while (found := _BEGIN.search(text)) is None:
        more = file.read(CHUNK)
        if not more or len(text) > MAX_EVENT:
            raise DamagedTraceError("no list of events is in it")
        text += more
    return text, found.end()


def compress(path: Path) -> Path:
    """Return the compressed trace that replaces the plain one; its readers take both."""
    packed = path.with_name(f"{path.name}.gz")
    temporary = path.with_name(f".{packed.name}")
    with (
        open_regular(path, max_bytes=MAX_BYTES) as source,
        gzip.GzipFile(temporary, "wb", 6, mtime=0) as target,
    ):
        shutil.copyfileobj(source, target, CHUNK)
    temporary.replace(packed)
    path.unlink()
    return packed
