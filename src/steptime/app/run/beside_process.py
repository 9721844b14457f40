"""Samples the machine beside a process that cannot do it itself: the kernel of a notebook.

In: the folder of a run, and a process. Out: what `app.beside` writes there, from a process of its
own, which ends when its standard input does: even if the kernel is killed, nothing is left behind.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from steptime.app.run.beside import start_beside

_PATIENCE_S = 5.0
"""It answers at once; on a machine that is full, the last sample may take a while."""

_MAX_WAIT_S = 3600.0  # select refuses more than some machines' C can count


class BesideProcess:
    """The process that samples. `notes` say what failed in it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.notes: list[str] = []

    def stop(self) -> int | None:
        """End it; return how many samples of the machine failed, None if none was taken."""
        try:
            told, _ = self._process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return None
        with suppress(ValueError, LookupError, TypeError):
            found = json.loads(told)
            self.notes += [str(note) for note in found["notes"]]
            num = found["num_failures"]
            return num if isinstance(num, int) else None
        return None


def start_beside_process(folder: Path, *, child_pid: int) -> BesideProcess:
    """Start to sample the machine for a run in which the process `child_pid` trains.

    Raises:
        OSError: no process can be started.
    """
    # Modules are looked for where this process finds them, but not in its working folder.
    places = [place for place in sys.path if place]
    code = f"import sys; sys.path[:] = {places!r}; from {__name__} import main; "
    words = (sys.executable, "-c", f"{code}main({str(folder)!r}, {child_pid})")
    # A session of its own: an interrupt of the kernel's group is meant for the cell.
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return BesideProcess(process)


def main(folder: str, child_pid: int) -> None:
    """Sample until the standard input ends; then say how it went."""
    cwd = None
    with suppress(OSError):
        cwd = os.getcwd()
    beside = start_beside(Path(folder), child_pid=child_pid, cwd=cwd)
    wait_s = beside.tick()
    while not select.select([0], [], [], min(wait_s, _MAX_WAIT_S))[0]:
        wait_s = beside.tick()
    num_failures = beside.finish()
    told = json.dumps({"num_failures": num_failures, "notes": beside.notes})
    os.write(1, told.encode())
