"""What a child tried to write outside its folder, as a list of the user's paths.

Other programs write at the same time, and so do we: a path is on the list only if what was there
when the child began says that it was the child. Where that is not known, the path is left out.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.record.regular_file import read_regular

if TYPE_CHECKING:
    from steptime.isolate.overlay.layers import Layer

FILE = "writes.json"
LOG = "tried-writes"  # as in guest/redirect
OWN_LOG = "own-writes"  # the same: what the redirection itself writes for a moment
MAX_PATHS = 200
_MAX_SEEN = 20_000  # entries of a layer that are read: a script may unpack a data set
_MAX_IN_NEW_FOLDER = 8  # a new folder with more than this is one line
_PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
_CLOCK_NS = 20_000_000  # the times of files come from a clock that may be two ticks behind


def tried_writes(folder: Path) -> tuple[str, ...]:
    """Return the user's paths that this child tried to create, change or remove, sorted.

    A folder that is new, or holds compiled Python, represents everything in it and ends with a `/`.
    There are at most 200 paths.
    """
    try:
        return tuple(map(str, json.loads(read_regular(folder / FILE))["paths"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def tried_connections(folder: Path) -> tuple[str, ...]:
    """Return what this child wanted to connect to and could not, at most 50 places."""
    try:
        return tuple(map(str, json.loads(read_regular(folder / FILE))["refused"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def write_list(folder: str, paths: Iterable[str], refused: Iterable[str] = (), *, but: str) -> None:
    """Write the list into the child's folder, without paths in our own folders.

    The first trial compiles the guest, which is nothing that the script did.
    """
    ours = (os.path.join(but, ""), os.path.join(_PACKAGE, ""))
    own = set(_lines(os.path.join(folder, OWN_LOG)))
    found = sorted({path for path in paths if path not in own and not f"{path}/".startswith(ours)})
    document = {
        "schema": 1,
        "num": len(found),
        "paths": found[:MAX_PATHS],
        "refused": list(refused),
    }
    path = os.path.join(folder, FILE)
    with open(f"{path}.new", "w") as file:
        json.dump(document, file)
    os.replace(f"{path}.new", path)


def list_log(folder: str) -> Iterator[str]:
    """Yield what the guest in a guarded child noted: one path a line, from all its processes."""
    for path in _lines(os.path.join(folder, LOG)):
        head, cache, _ = path.partition("/__pycache__/")
        yield head + cache if cache else path


def _lines(path: str) -> list[str]:
    """Return the lines of a log that the redirection wrote; none if there is no log."""
    try:
        with open(path, errors="surrogateescape") as file:
            return [line for line in file.read().split("\n") if line]
    except OSError:
        return []


def list_layers(layers: Iterable[Layer]) -> Iterator[str]:
    """Yield what was written over each of the user's folders."""
    left = [_MAX_SEEN]
    for layer in layers:
        if layer.is_rebuilt:
            yield from _changes_beside_mounts(layer, left)
        else:
            yield from _changes(layer, "", left)


def has_socket(layers: Iterable[Layer], path: str) -> bool:
    """Return whether a child made a socket file at a path, over one of the user's folders."""
    for layer in layers:
        inside = os.path.relpath(path, layer.place)
        if not inside.startswith(".."):
            facts = _facts(layer.upper, inside)
            if facts is not None and stat.S_ISSOCK(facts.st_mode):
                return True
    return False


def _entries(layer: Layer, inside: str) -> list[tuple[str, str, bool]]:
    """Return name, path and whether it is a folder, for each entry of a folder of the layer.

    It uses descriptors, because the launcher no longer sees itself in the child's /proc.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(inside or ".", flags, dir_fd=layer.upper)
    except OSError:
        return []
    try:
        with os.scandir(descriptor) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(descriptor)
    return [(name, os.path.join(inside, name), is_folder) for name, is_folder in sorted(found)]


def _changes(layer: Layer, inside: str, left: list[int]) -> Iterator[str]:
    """Yield the changed paths in a folder of the layer; `left` is how many more may be read."""
    for name, path, is_folder in _entries(layer, inside):
        left[0] -= 1
        if left[0] < 0:
            return
        place = os.path.join(layer.place, path)
        if not is_folder:
            yield place
        elif name == "__pycache__":
            if _entries(layer, path):  # `layers` may have put an empty one there
                yield place + "/"
        else:
            yield from _changes_of_folder(layer, path, left)


def _changes_of_folder(layer: Layer, path: str, left: list[int]) -> Iterator[str]:
    """Yield what changed in a folder, and the folder with a `/` if it is new or has other rights.

    The kernel copies each folder into the layer before it writes in it: that is no change.
    """
    before, now = _facts(layer.lower, path), _facts(layer.upper, path)
    is_new = _is_new(layer, path, before)
    found = list(_changes(layer, path, left))
    if is_new and len(found) > _MAX_IN_NEW_FOLDER:
        found = []
    if (is_new and not found) or _has_other_rights(layer, before, now):
        yield os.path.join(layer.place, path) + "/"
    yield from found


def _is_new(layer: Layer, path: str, before: os.stat_result | None) -> bool:
    """Return whether the child made a folder that is in the layer.

    The kernel copies a folder that was there, and somebody else may have removed it since.
    """
    if layer.is_rebuilt:
        return path.partition(os.sep)[0] not in layer.begun
    if before is not None:
        return not stat.S_ISDIR(before.st_mode) and not _changed_since(layer, before)
    parent = _nearest(layer.lower, os.path.dirname(path))
    return parent is not None and not _changed_since(layer, parent)


def _nearest(folder: int, path: str) -> os.stat_result | None:
    """Return the facts of the innermost folder above that is there: what was removed is missed."""
    while (facts := _facts(folder, path or ".")) is None and path:
        path = os.path.dirname(path)
    return facts


def _has_other_rights(
    layer: Layer, before: os.stat_result | None, now: os.stat_result | None
) -> bool:
    """Return whether the child changed the rights of a folder that was there."""
    if before is None or now is None or _changed_since(layer, before):
        return False
    return before.st_mode != now.st_mode


def _changed_since(layer: Layer, facts: os.stat_result) -> bool:
    """Return whether somebody else may have changed what the child saw, since it began."""
    return layer.begun_ns is not None and facts.st_ctime_ns >= layer.begun_ns - _CLOCK_NS


def _changes_beside_mounts(layer: Layer, left: list[int]) -> Iterator[str]:
    """Yield the same for a rebuilt folder; folders that were there have layers of their own."""
    of_layer = os.fstat(layer.upper)
    names = set()
    for name, path, is_folder in _entries(layer, ""):
        names.add(name)
        before, now = layer.begun.get(name), _facts(layer.upper, path)
        if is_folder and before is None:
            yield from _changes_of_folder(layer, path, left)
        elif before is not None and before.st_dev != of_layer.st_dev:
            continue  # the original itself, which the child can read only
        elif not is_folder and (before is None or now is None or not _are_same(before, now)):
            yield os.path.join(layer.place, path)
    for name in sorted(layer.begun.keys() - names):
        yield os.path.join(layer.place, name)


def _are_same(before: os.stat_result, now: os.stat_result) -> bool:
    if stat.S_ISLNK(before.st_mode) and stat.S_ISLNK(now.st_mode):
        return (before.st_size, before.st_ino) == (now.st_size, now.st_ino)
    names = ("st_mode", "st_size", "st_mtime_ns", "st_ino")
    return all(getattr(before, name) == getattr(now, name) for name in names)


def _facts(folder: int, path: str) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
