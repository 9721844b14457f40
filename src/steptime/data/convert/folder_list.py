"""The list of a folder's files beside what was made of it: whose copy each sample is.

A lever that serves a training from the copy must know that a file is still the one that was
converted, and where its sample lies. One JSON line a file, in the order of the samples: its name
relative to the folder, its bytes, and when it was changed last [ns].
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from steptime.data.source import SampleSource

FILES = "files.jsonl"
FOLDER = "folder of files"
"""The name of the source whose places are files."""


def write_files(source: SampleSource, root: Path, path: Path) -> bool:
    """Write the list, if each sample of the source is a file below a folder of this machine."""
    if source.name != FOLDER or not (root.is_absolute() and root.is_dir()):
        return False
    with open(path, "w", encoding="ascii") as file:
        file.writelines(_lines(source, os.fspath(root)))
        file.flush()
        os.fsync(file.fileno())
    return True


def _lines(source: SampleSource, root: str) -> Iterator[str]:
    for index in range(len(source)):
        where = source.place_of(index)
        status = os.stat(where)
        row = [os.path.relpath(where, root), status.st_size, status.st_mtime_ns]
        yield json.dumps(row) + "\n"
