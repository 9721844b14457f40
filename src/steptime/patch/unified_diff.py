"""A unified diff that `git apply` takes, in bytes: of any encoding and any line ends.

In: a file's name, its bytes before and after. Out: the diff. There is no line `diff --git`, so that
`git apply` takes the names as seen from the folder in which it is called.
"""

from __future__ import annotations

import difflib
import os
import re
from itertools import chain

_CONTEXT = 3
_PLAIN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


def diff_file(name: str, before: bytes, after: bytes) -> bytes:
    """The diff of one file; empty where nothing changed."""
    lines = difflib.unified_diff(
        _lines(before),
        _lines(after),
        fromfile=_quote(f"a/{name}"),
        tofile=_quote(f"b/{name}"),
        n=_CONTEXT,
        lineterm="\n",
    )
    return b"".join(_ended(line) for line in lines)


def _lines(data: bytes) -> list[str]:
    """The lines as git sees them: a lone carriage return ends none."""
    parts = data.decode("latin-1").split("\n")
    return [*(f"{line}\n" for line in parts[:-1]), *([parts[-1]] if parts[-1] else [])]


def _ended(line: str) -> bytes:
    data = line.encode("latin-1")
    return data if data.endswith(b"\n") else data + _NO_NEWLINE


def _quote(name: str) -> str:
    """A name as git writes it: with a tab behind spaces, and in quotes where it has odd bytes."""
    if _PLAIN.fullmatch(name):
        return name
    data = os.fsencode(name)
    if all(byte == 0x20 or _PLAIN.fullmatch(chr(byte)) for byte in data):
        return f"{name}\t"
    return f'"{"".join(chain.from_iterable(map(_escape, data)))}"'


def _escape(byte: int) -> str:
    is_plain = 0x20 <= byte < 0x7F and byte not in (0x22, 0x5C)
    return chr(byte) if is_plain else f"\\{byte:03o}"
