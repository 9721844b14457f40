"""Private memory of the processes of a command: what each has for itself and can write to.

In: /proc. Out: the most that one process had. This is what RLIMIT_DATA limits (`ulimit -d`):
tensors, Python's objects, the C allocator, stacks of threads. Code and data of files are not in it,
which processes share and the kernel can drop; nor is shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steptime.record.live.process_identity import descendants

_PROC = Path("/proc")
_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateBytes:
    """One process's private memory [bytes].

    Attributes:
        peak: the most that it had so far: exactly as far as pages were touched, and what is
            untouched as it is now.
        now: what it has now.
    """

    peak: int
    now: int


class PrivateMemory:
    """Remembers the most that one process below a first one had.

    Args:
        root_pid: the first process, which is not counted itself.
    """

    def __init__(self, root_pid: int, *, proc: Path = _PROC) -> None:
        self._root_pid = root_pid
        self._proc = proc
        self.peak_bytes = 0

    def read(self) -> int:
        """Read all processes; return the most that one had so far [bytes], 0 where none said."""
        for pid in descendants(self._root_pid):
            found = read_private(pid, proc=self._proc)
            if found is not None:
                self.peak_bytes = max(self.peak_bytes, found.peak)
        return self.peak_bytes


def read_private(pid: int, *, proc: Path = _PROC) -> PrivateBytes | None:
    """Return the private memory of a process; None where the system does not say."""
    try:
        text = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    wanted = ("VmHWM", "VmData", "RssAnon", "RssFile", "RssShmem")
    try:
        most, data, own, mapped, shared = (int(rows[name].split()[0]) * _KIB for name in wanted)
    except (KeyError, ValueError, IndexError):
        return None  # a kernel thread, or a process that is ending
    untouched = max(0, data - own)
    touched = max(own, most - mapped - shared)
    return PrivateBytes(peak=touched + untouched, now=data)
