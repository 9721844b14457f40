"""The files that a command names: scripts, modules, settings, and one hash over them.

In: an argv and the folder in which it is given. Out: their names and the hash. What the script
imports is not included: finding that would mean running the script.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from steptime.record.regular_file import read_regular

_MAX_BYTES = 1 << 20
"""A larger file is data or a checkpoint: neither says what is trained, and both may change."""


def hash_script(command: tuple[str, ...], *, folder: Path) -> tuple[tuple[str, ...], str | None]:
    """Return the text files that the command names, and one hash over their contents.

    The hash is None if it names none.
    """
    found: dict[str, bytes] = {}
    for name in named_files(command):
        content = _text_of(folder / name)
        if content is not None:
            found[name] = content
    if not found:
        return (), None
    digest = hashlib.sha256()
    for content in found.values():
        digest.update(hashlib.sha256(content).digest())
    return tuple(found), f"sha256:{digest.hexdigest()}"


def named_files(command: tuple[str, ...]) -> Iterator[str]:
    """Yield the words that may be files, also in `--config=x.yaml` and `-m package.module`."""
    for before, word in pairwise(("", *command)):
        if before == "-m":
            stem = word.replace(".", "/")
            yield from (f"{stem}.py", f"{stem}/__main__.py")
        elif word.startswith("-"):
            yield word.partition("=")[2]
        else:
            yield word


def _text_of(path: Path) -> bytes | None:
    """Return the content of a small text file; None for anything else."""
    with suppress(OSError, ValueError):  # a word may not be a path at all
        content = read_regular(path, max_bytes=_MAX_BYTES)
        return None if b"\0" in content else content
    return None
