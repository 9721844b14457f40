"""Finds the allocators that the command could be started with, without starting anything.

In: the environment, and the interpreter that the command names. Out: `Facts.libraries`. Folders
are looked at in the order in which a person would take them: the environment's own (conda keeps
its libraries there), LD_LIBRARY_PATH, then the system's.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from steptime.core.devices.control_groups import lines_of
from steptime.record.regular_file import open_regular

FILES: Mapping[str, tuple[str, ...]] = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "tcmalloc": (
        "libtcmalloc_minimal.so.4",
        "libtcmalloc.so.4",
        "libtcmalloc_minimal.so",
        "libtcmalloc.so",
    ),
}
"""Names by allocator; the versions are those of all releases of the last ten years."""

SYSTEM_FOLDERS = ("usr/local/lib", "usr/local/lib64", "lib", "lib64", "usr/lib", "usr/lib64")
MAX_FILES = 200
"""Of /etc/ld.so.conf.d; a machine has some ten."""


def find_libraries(
    command: Sequence[str], environment: Mapping[str, str], *, root: Path = Path("/")
) -> dict[str, str]:
    """Files of `jemalloc` and `tcmalloc`, and the version of `glibc`, where they are here.

    Args:
        command: what is to be started; its first word may be the interpreter.
        environment: what it is to be started with.
        root: where the system's folders begin.
    """
    folders = tuple(dict.fromkeys(_folders(command, environment, root)))
    mark = _kind_of_machine(Path(sys.executable))
    found = {}
    for name, files in FILES.items():
        places = (folder / file for folder in folders for file in files)
        first = next((path for path in places if _kind_of_machine(path) == mark), None)
        if first is not None and mark is not None:
            found[name] = str(first)
    version = glibc_version()
    return found if version is None else found | {"glibc": version}


def glibc_version() -> str | None:
    """The version of the C library, such as 2.36; None where it is another's (musl, macOS)."""
    try:
        words = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError, AttributeError):
        return None
    return words[1] if len(words) == 2 and words[0] == "glibc" else None


def _folders(command: Sequence[str], environment: Mapping[str, str], root: Path) -> Iterator[Path]:
    """Folders that may hold a library, the nearest first."""
    program = shutil.which(command[0], path=environment.get("PATH")) if command else None
    if program is not None:
        yield Path(program).absolute().parent.parent / "lib"
    for name in ("CONDA_PREFIX", "VIRTUAL_ENV"):
        if environment.get(name):
            yield Path(environment[name]) / "lib"
    yield from (Path(p) for p in environment.get("LD_LIBRARY_PATH", "").split(":") if p)
    yield from _configured(root / "etc/ld.so.conf", root)
    yield from (root / folder for folder in SYSTEM_FOLDERS)


def _configured(path: Path, root: Path) -> Iterator[Path]:
    """Folders that the dynamic linker's configuration names, with those of included files."""
    for line in lines_of(path):
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0] == "include":
            for file in sorted(root.glob(words[1].lstrip("/")))[:MAX_FILES]:
                # What an included one includes is left out: nobody does it, and it may go round.
                named = [name for name in lines_of(file) if name.startswith("/")]
                yield from (root / name.partition("#")[0].strip().lstrip("/") for name in named)
        elif words:
            yield root / words[0].lstrip("/")


def _kind_of_machine(path: Path) -> bytes | None:
    """Word size and processor of an ELF file; None of what is none, or not there.

    A machine may hold 32-bit libraries too: with one of those no program starts.
    """
    with suppress(OSError), open_regular(path, max_bytes=sys.maxsize) as file:
        head = file.read(20)
        if head[:4] == b"\x7fELF" and len(head) == 20:
            return head[4:5] + head[18:20]
    return None
