"""What a child tried to write outside its folder, as a list of the user's paths."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .layers import Layer

FILE = "writes.json"
LOG = "tried-writes"  # as in guest/redirect
MAX_PATHS = 200
_MAX_SEEN = 20_000  # entries of a layer that are read: a script may unpack a data set
_MAX_IN_NEW_FOLDER = 8  # a new folder with more than this is one line
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def tried_writes(folder: Path) -> tuple[str, ...]:
    """Return the user's paths that this child tried to create, change or remove, sorted.

    A folder that is new, or holds compiled Python, represents everything in it and ends with a `/`.
    There are at most 200 paths.
    """
    try:
        return tuple(map(str, json.loads((folder / FILE).read_bytes())["paths"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def write_list(folder: str, paths: Iterable[str], *, but: str) -> None:
    """Write the list into the child's folder, without paths in our own folders.

    The first trial compiles the guest, which is nothing that the script did.
    """
    found = sorted({path for path in paths if not path.startswith((but, _PACKAGE))})
    document = {"schema": 1, "num": len(found), "paths": found[:MAX_PATHS]}
    path = os.path.join(folder, FILE)
    with open(f"{path}.new", "w") as file:
        json.dump(document, file)
    os.replace(f"{path}.new", path)


def list_log(folder: str) -> Iterator[str]:
    """Yield what the guest in a guarded child noted: one path a line, from all its processes."""
    try:
        with open(os.path.join(folder, LOG), errors="surrogateescape") as file:
            lines = file.read().split("\n")
    except OSError:
        return
    for path in lines:
        head, cache, _ = path.partition("/__pycache__/")
        if path:
            yield head + cache if cache else path


def list_layers(layers: Iterable[Layer]) -> Iterator[str]:
    """Yield what was written over each of the user's folders."""
    left = [_MAX_SEEN]
    for layer in layers:
        if layer.is_rebuilt:
            yield from _changes_beside_mounts(layer, left)
        else:
            yield from _changes(layer, "", left)


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
    is_new = before is None or not stat.S_ISDIR(before.st_mode)
    found = list(_changes(layer, path, left))
    if is_new and len(found) > _MAX_IN_NEW_FOLDER:
        found = []
    is_changed = before is not None and now is not None and before.st_mode != now.st_mode
    if is_changed or (is_new and not found):
        yield os.path.join(layer.place, path) + "/"
    yield from found


def _changes_beside_mounts(layer: Layer, left: list[int]) -> Iterator[str]:
    """Yield the same for a rebuilt folder; folders that were there have layers of their own."""
    for _, path, is_folder in _entries(layer, ""):
        before, now = _facts(layer.lower, path), _facts(layer.upper, path)
        if is_folder and before is None:
            yield from _changes_of_folder(layer, path, left)
        elif not is_folder and (before is None or now is None or not _are_same(before, now)):
            yield os.path.join(layer.place, path)
    for name in os.listdir(layer.lower):
        if _facts(layer.upper, name) is None and _facts(layer.lower, name) is not None:
            yield os.path.join(layer.place, name)


def _are_same(before: os.stat_result, now: os.stat_result) -> bool:
    if stat.S_ISLNK(before.st_mode) and stat.S_ISLNK(now.st_mode):
        return before.st_size == now.st_size
    names = ("st_mode", "st_size", "st_mtime_ns")
    return all(getattr(before, name) == getattr(now, name) for name in names)


def _facts(folder: int, path: str) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
