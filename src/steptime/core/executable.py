"""Which file a command's first word means, as a shell would find it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted:
    """Why there is no child, with the exit code a shell gives: 127 not found, 126 not to be run."""

    exit_code: int
    reason: str


def find_executable(name: str, environment: Mapping[str, str]) -> str | NotStarted:
    """The file a shell would run for `name`, or why there is none."""
    if os.sep in name:
        candidates = [name]
    else:
        search = os.get_exec_path(environment) if name else []
        candidates = [os.path.join(folder, name) for folder in search]
    found = [path for path in candidates if os.path.exists(path)]
    for path in found:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    if found:
        kind = "is a folder" if os.path.isdir(found[0]) else "is not executable"
        return NotStarted(exit_code=126, reason=kind)
    return NotStarted(exit_code=127, reason="was not found")
