"""What the script tried to write, over all trials of a study: its own doing, not the levers'.

In: the folders of trials, each with the list of its launcher and the levers that were on in it.
Out: paths. Compilers, workers and levers of other packages write files of their own, so a path
counts only where it was also written while the others' levers, or none, were on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from steptime.core.schema import SCHEMA
from steptime.core.store import write_text
from steptime.isolate.left.writes import tried_writes
from steptime.record.regular_file import read_regular

LEVERS = "levers.json"
MAX_PATHS = 200


def write_levers(folder: Path, names: Iterable[str]) -> None:
    """Write down which levers may have acted in a trial; before its end the script could read it.

    Raises:
        OSError: the folder cannot be written.
    """
    document = {"schema": SCHEMA, "levers": sorted(names)}
    write_text(folder / LEVERS, json.dumps(document) + "\n")


def read_levers(folder: Path) -> frozenset[str] | None:
    """Return the levers that may have acted in a trial; None where nobody knows."""
    try:
        names = json.loads(read_regular(folder / LEVERS))["levers"]
        return frozenset(map(str, names))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def scripts_own_writes(folders: Iterable[Path]) -> tuple[str, ...]:
    """Return what the script itself tried to write in these trials, sorted; at most 200 paths.

    A trial whose levers are not known says nothing.
    """
    shared: dict[str, frozenset[str]] = {}
    for folder in folders:
        levers = read_levers(folder)
        if levers is None:
            continue
        for path in tried_writes(folder):
            shared[path] = shared.get(path, levers) & levers
    return tuple(sorted(path for path, levers in shared.items() if not levers))[:MAX_PATHS]
