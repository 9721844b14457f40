"""What a proof holds for: the files that a command names, and the machine it ran on.

In: an argv and the folder it is given in. Out: a Script and a Fingerprint. What the script
imports is not looked for: that would mean running it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from steptime.core.recipe import Fingerprint, Script
from steptime.measure.origin import read_machine

_MAX_BYTES = 1 << 20
"""A larger file is data or a checkpoint: neither says what is trained, and both may change."""


def describe_script(command: tuple[str, ...], *, folder: Path) -> Script:
    """The command, with one hash over the text files it names: scripts, modules, settings."""
    found: dict[str, bytes] = {}
    for name in _named_files(command):
        content = _text_of(folder / name)
        if content is not None:
            found[name] = content
    if not found:
        return Script(command=command)
    digest = hashlib.sha256()
    for content in found.values():
        digest.update(hashlib.sha256(content).digest())
    return Script(command=command, files=tuple(found), hash=f"sha256:{digest.hexdigest()}")


def _named_files(command: tuple[str, ...]) -> Iterator[str]:
    """The words that may be files, also those of `--config=x.yaml` and `-m package.module`."""
    for before, word in pairwise(("", *command)):
        if before == "-m":
            stem = word.replace(".", "/")
            yield from (f"{stem}.py", f"{stem}/__main__.py")
        elif word.startswith("-"):
            yield word.partition("=")[2]
        else:
            yield word


def _text_of(path: Path) -> bytes | None:
    """The content of a small file of text; None for anything else."""
    with suppress(OSError, ValueError):  # a word may be no path at all
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            content = path.read_bytes()
            return None if b"\0" in content else content
    return None


def describe_machine(*, device: str | None = None, torch_version: str | None = None) -> Fingerprint:
    """This machine; device and torch as the training itself saw them."""
    machine = read_machine()
    return Fingerprint(
        cpu=machine.cpu,
        num_cores=machine.num_cores,
        memory_bytes=machine.memory_bytes,
        device=device,
        torch_version=torch_version,
    )
