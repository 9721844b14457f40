"""Run folders that are kept with the tests: one of each planted ailment, from true runs.

`scripts/gen_run_folders.py` writes them, and nobody else does. Each is an archive of what the
guest and the sampler wrote, with made-up names of places and machines.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent / "ailing_runs"
KEPT = ("command.json", "host.jsonl", "processes.jsonl", "rank-", "worker-", "source.json")
PLACE = "/home/ada/training"


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


def unpack(name: str, store: Path) -> Path:
    """Put the run of an ailment into a store, below `.steptime/runs`; return its folder."""
    with tarfile.open(path_of(name)) as archive:
        command = archive.extractfile("command.json")
        assert command is not None
        folder = store / ".steptime" / "runs" / json.load(command)["run_id"]
        folder.mkdir(parents=True)
        for member in archive.getmembers():
            found = archive.extractfile(member)
            assert found is not None
            (folder / member.name).write_bytes(found.read())
    return folder
