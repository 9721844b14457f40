"""Finds what earlier studies of the same script on the same machine found.

In: a study's folder. Out: an `Experience`. It is kept in the folder, so that a study that resumes
goes the same way though others have ended meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from steptime.core.codec import from_json, parse_document, to_json
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.schema import SCHEMA
from steptime.core.store import read_document, write_text
from steptime.errors import DamagedRunError
from steptime.record.regular_file import read_regular
from steptime.tune.search.earlier_results import Experience, experience_of
from steptime.tune.study.study_folder import StudyFolder
from steptime.tune.values.study_values import Study

MAX_STUDIES = 5
"""How many earlier ones are read, newest first."""

_FILE = "experience.json"
_BROKEN = (OSError, ValueError, LookupError, TypeError, RecursionError, DamagedRunError)


def make_family(command: tuple[str, ...], *, cwd: Path, machine: MachineIdentity) -> str:
    """The hash of what makes studies akin: script and machine, whatever options it is given.

    Args:
        command: of the study.
        cwd: where it runs.
        machine: as a recipe keeps it.
    """
    words = [word for word in command[1:] if word.endswith(".py")]
    if "-m" in command[:-1]:
        words = [command[command.index("-m") + 1]]
    script = str(cwd / words[0]) if words else " ".join((str(cwd), *command))
    parts = {"script": script, "machine": asdict(machine)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def find_experience(folder: StudyFolder) -> Experience:
    """What earlier studies of the family found; what this study knew at its start."""
    path = folder.folder / _FILE
    try:
        return from_json(Experience, parse_document(read_regular(path)), where=_FILE)
    except _BROKEN:
        pass  # it is new, or it is from before there was such a file
    found = Experience() if folder.is_resumed else experience_of(list(_studies(folder)))
    write_text(path, json.dumps({"schema": SCHEMA, **to_json(found)}) + "\n")
    return found


def _studies(folder: StudyFolder) -> Iterator[Study]:
    """The newest studies of the family that have an outcome."""
    num = 0
    for other in sorted(folder.folder.parent.iterdir(), reverse=True):
        document = read_document(other / "study.json")
        is_akin = folder.family and document.get("family") == folder.family
        if other == folder.folder or not is_akin or document.get("outcome") is None:
            continue
        try:
            yield from_json(Study, document, where=str(other))
        except _BROKEN:
            continue
        num += 1
        if num == MAX_STUDIES:
            return
