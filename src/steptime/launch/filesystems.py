"""What kind of file system a run's folder and files are on, as far as the machine says.

In: an argv and its folder. Out: a `Place` for the folder and for each existing path that the argv
names. Nothing is opened: a data set on a slow network disk must not delay the command.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from steptime.launch.script_files import named_files
from steptime.launch.values import Place

MOUNTS = Path("/proc/self/mountinfo")
_MAX_PLACES = 20  # an argv of a thousand files names one data set


def find_places(
    command: tuple[str, ...], *, folder: Path, mounts: Path = MOUNTS
) -> tuple[Place, ...]:
    """Return the folder and the command's paths in it with their file systems; empty if unknown."""
    kinds = _read_mounts(mounts)
    if not kinds:
        return ()
    named = [folder / word for word in named_files(command) if word and "\0" not in word]
    found: dict[str, str] = {}
    for path in (folder, *named):
        if len(found) < _MAX_PLACES and os.path.lexists(path):
            real = os.path.realpath(path)
            found[str(path)] = kinds[_mount_of(real, kinds)]
    return tuple(Place(path=path, filesystem=kind) for path, kind in found.items())


def _read_mounts(path: Path) -> dict[str, str]:
    """Return the file system of each mount point; the last one mounted there hides the others."""
    found = {}
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            # Fields as in proc(5): the mount point is the fifth, the kind is the first after ` - `.
            mounted, _, rest = line.partition(" - ")
            words, kind = mounted.split(), rest.split()
            if len(words) > 4 and kind:
                found[_unescaped(words[4])] = kind[0]
    return found if "/" in found else {}


def _unescaped(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def _mount_of(path: str, kinds: dict[str, str]) -> str:
    while path not in kinds:
        path = os.path.dirname(path)
    return path
