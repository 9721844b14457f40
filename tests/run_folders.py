"""Run folders that are kept with the tests: one of each planted ailment, from true runs; a study.

`scripts/gen_run_folders.py` writes them, and nobody else does. Each is an archive of what the
guest and the sampler wrote, with made-up names of places and machines; that of the study holds the
answers of its trials.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from end_to_end.ailments import AILMENTS
from steptime.app.stored.load import load_run
from steptime.app.stored.run_listing import run_at

FOLDER = Path(__file__).parent / "ailing_runs"
KEPT = ("command.json", "host.jsonl", "processes.jsonl", "rank-", "worker-", "source.json")
KEPT_AILMENTS = [name for name, ailment in AILMENTS.items() if not ailment.needs_gpu]
ARCHIVE_OF_STUDY = FOLDER / "study.tar.xz"
AGAIN = "make it again: python scripts/gen_run_folders.py"
PLACE = "/home/ada/training"
STUDY = "study.json"
"""In the archive of a study: how it ended. The other files are its answers."""


def path_of(name: str) -> Path:
    """The archive of an ailment."""
    return FOLDER / f"{name.lower().replace(' ', '_').replace('-', '_')}.tar.xz"


def pack(path: Path, files: dict[str, bytes]) -> int:
    """Write an archive, the same for the same files; return its size [bytes]."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as archive:
        for name in sorted(files):
            about = tarfile.TarInfo(name)
            about.size = len(files[name])
            archive.addfile(about, io.BytesIO(files[name]))
    return path.stat().st_size


def unpack(path: Path, folder: Path) -> dict[str, bytes]:
    """Put the files of an archive into a folder, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
            if member.name != STUDY:
                (folder / member.name).write_bytes(found[member.name])
    return found


def unpack_run(name: str, store: Path) -> Path:
    """Put the run of an ailment into a store, below `.steptime/runs`; return its folder."""
    found = unpack(path_of(name), store / "unpacked")
    folder = store / ".steptime" / "runs" / json.loads(found["command.json"])["run_id"]
    folder.parent.mkdir(parents=True)
    return (store / "unpacked").rename(folder)


def diagnosis_of(folder: Path) -> Mapping[str, Any]:
    """What is found in a run's folder, as the document has it."""
    load_run(run_at(folder))  # it writes what it concludes
    diagnosis: dict[str, Any] = json.loads((folder / "diagnosis.json").read_bytes())
    return diagnosis
