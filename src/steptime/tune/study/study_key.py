"""What must be equal to resume a study, as one hash.

In: the options, and where they were given. Out: a text. Times, loads and the findings of trials are
not part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from steptime.core.version import installed_version
from steptime.launch.origin import read_git_revision, read_machine
from steptime.levers import file_of
from steptime.record.regular_file import read_regular
from steptime.tune.study_options import StudyOptions

_MAX_FILE_BYTES = 1 << 20
_MAX_FILES = 500
_MAX_DEPTH = 3
_MAX_ENTRIES = 20_000  # of folders looked through: a data set may lie beside the script
# Variables of the terminal and the session: another one must find the study, too.
_FLEETING = ("SSH_", "XDG_", "DBUS_", "TMUX", "STY", "WINDOWID", "TERM", "COLUMNS", "LINES", "GPG_")
_FLEETING_NAMES = {"_", "SHLVL", "PWD", "OLDPWD", "DISPLAY", "PYTEST_CURRENT_TEST"}


def make_key(
    options: StudyOptions, environment: Mapping[str, str], *, cwd: Path, stdin: bytes | None
) -> str:
    """The hash of everything that decides what the trials of a study would find.

    Args:
        options: of the study; where it is kept, and how much time it is granted, are no part of
            the key: the same study continues with more time.
        environment: of the command; the values are hashed, not kept.
        cwd: where the command runs.
        stdin: what the command reads.
    """
    variables = {
        name: value
        for name, value in environment.items()
        if name not in _FLEETING_NAMES and not name.startswith(_FLEETING)
    }
    parts: dict[str, Any] = {
        "command": options.command,
        "cwd": str(cwd),
        "environment": sorted(variables.items()),
        "stdin": None if stdin is None else hashlib.sha256(stdin).hexdigest(),
        "files": {str(path): _hash(path) for path in _find_files(options.command, cwd)},
        "revision": read_git_revision(cwd),
        "levers": [(lever.name, _hash(Path(file_of(lever)))) for lever in options.levers],
        "excluded": options.excluded,
        "run_steps": options.run_steps,
        "containment": (options.allow_unsafe, options.share_network),
        "machine": asdict(read_machine()),
        "versions": (installed_version(), platform.python_version()),
    }
    if options.training is not None:
        parts["training"] = options.training
    if options.allows_changes:
        parts["allows_changes"] = True
    if options.other_python is not None:
        parts["other_python"] = asdict(options.other_python)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_regular(path)).hexdigest()
    except OSError:
        return None


def _find_files(command: tuple[str, ...], cwd: Path) -> list[Path]:
    """The files that the command names, and the Python files beside and below them."""
    named = [path for word in command[1:] if (path := _as_file(word, cwd)) is not None]
    folders = {path.parent for path in named if path.suffix == ".py"} or {cwd}
    beside = {path for folder in folders for path in _python_files(folder)}
    return [*named, *sorted(beside - set(named))[:_MAX_FILES]]


def _as_file(word: str, cwd: Path) -> Path | None:
    """The file that a word of the command names, `--config=x.yaml` too; not one of data."""
    name = word.partition("=")[2] if word.startswith("-") else word
    if not name or "\0" in name:
        return None
    path = cwd / name
    try:
        is_small = path.is_file() and path.stat().st_size <= _MAX_FILE_BYTES
    except OSError:
        return None  # too long for a path, say
    return path if is_small else None


def _python_files(folder: Path) -> Iterator[Path]:
    num_entries = 0
    for place, names, files in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        # Environments and caches are not the user's code.
        names[:] = [
            name
            for name in sorted(names)
            if depth < _MAX_DEPTH and not name.startswith((".", "__")) and name != "site-packages"
        ]
        num_entries += len(names) + len(files)
        if num_entries > _MAX_ENTRIES:
            return
        yield from (Path(place) / name for name in files if name.endswith(".py"))
