"""Python stacks of running processes, taken from outside, and what the kernel says about them.

In: a process id. Out: a `ProcessProbe`. py-spy reads the process's memory and never stops it, so no
system call of the training is interrupted. Where reading is not permitted, the probe holds the
reason and what the kernel says about the main thread. `watch.stack_summary` knows what the frames
mean.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from steptime.errors import install_command
from steptime.measure.values.stall import StackFrame, ThreadStack
from steptime.record.live.process_identity import descendants

LIMIT_S = 10.0
"""For one process; py-spy takes about 30 ms, or a second where no core is free."""

_GUEST = Path(__file__).resolve().parents[2] / "guest"
"""Our own frames are left out of a stack."""

MAX_FRAMES = 60
MAX_THREADS = 40
"""The threads of a pool are all alike, and the file stays small."""

NOT_INSTALLED = f"py-spy is not installed here ({install_command('py-spy')})"
_TRACING_LIMITED = (
    "kernel.yama.ptrace_scope is {scope}: only an ancestor or root may read its memory"
)
_PROC = Path("/proc")

# The system calls that show what a thread waits for, by their numbers (asm/unistd_64.h and the
# generic table); others are shown by number.
_SYSCALLS: Mapping[str, str] = {
    "x86_64": "read 0 write 1 poll 7 pread64 17 pwrite64 18 select 23 nanosleep 35 recvfrom 45 "
    "recvmsg 47 wait4 61 fsync 74 fdatasync 75 futex 202 clock_nanosleep 230 epoll_wait 232 "
    "waitid 247 openat 257 pselect6 270 ppoll 271 epoll_pwait 281",
    "aarch64": "epoll_pwait 22 openat 56 read 63 write 64 pread64 67 pwrite64 68 pselect6 72 "
    "ppoll 73 fsync 82 fdatasync 83 waitid 95 futex 98 nanosleep 101 clock_nanosleep 115 "
    "recvfrom 207 recvmsg 212 wait4 260",
}
_STATES = {
    "R": "running",
    "S": "asleep",
    "D": "in uninterruptible sleep",
    "T": "stopped",
    "t": "stopped by a tracer",
    "Z": "ended, but not waited for",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelState:
    """The main thread as the kernel sees it; None for what the kernel does not say.

    `is_file` says that the system call works on a regular file.
    """

    state: str | None = None
    wchan: str | None = None
    syscall: str | None = None
    is_file: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessProbe:
    """One process at one moment; `is_gone` if it has ended.

    `cpu_s` and `io_bytes` are the totals of the process and its children so far.
    """

    pid: int
    threads: tuple[ThreadStack, ...] = ()
    kernel: KernelState = KernelState()
    cpu_s: float = 0.0
    io_bytes: int = 0
    is_gone: bool = False

    @property
    def main(self) -> ThreadStack | None:
        """The main thread's stack, if it was taken."""
        return next((t for t in self.threads if t.is_main and t.frames), None)


def find_py_spy() -> str | None:
    """Return the program that comes with the package, or another one on PATH."""
    with suppress(PackageNotFoundError):
        found = distribution("py-spy")
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            if path.name == "py-spy" and os.access(path, os.X_OK):
                return str(path)
    return shutil.which("py-spy")


def probe_process(
    pid: int, *, run: Callable[[int], Mapping[str, Any] | str] | None = None
) -> ProcessProbe:
    """Return the stacks of a process, and what it has done so far.

    Args:
        pid: of a Python process.
        run: returns py-spy's document, or the reason why there is none; tests pass their own.
    """
    kernel = read_kernel(pid)
    if kernel.state is None or kernel.state == "Z":
        missing = ThreadStack(pid=pid, thread="", is_main=True, missing="the process has ended")
        return ProcessProbe(pid=pid, threads=(missing,), kernel=kernel, is_gone=True)
    cpu_s, io_bytes = _read_work(pid)
    found = (run or _dump)(pid)
    threads = _refusal(pid, found, kernel) if isinstance(found, str) else read_threads(found, pid)
    return ProcessProbe(pid=pid, threads=threads, kernel=kernel, cpu_s=cpu_s, io_bytes=io_bytes)


def _refusal(pid: int, reason: str, kernel: KernelState) -> tuple[ThreadStack, ...]:
    text = f"{reason}; {describe_kernel(kernel)}"
    return (ThreadStack(pid=pid, thread="MainThread", is_main=True, missing=text),)


def describe_kernel(kernel: KernelState) -> str:
    """Return the kernel's words: `the kernel says it is asleep in futex (futex_wait_queue)`."""
    state = _STATES.get(kernel.state or "", kernel.state or "gone")
    call = f" in {kernel.syscall}" if kernel.syscall else ""
    wchan = f" ({kernel.wchan})" if kernel.wchan else ""
    return f"the kernel says it is {state}{call}{wchan}"


def _dump(pid: int) -> Mapping[str, Any] | str:
    """Return what py-spy sees of a process, or why it sees nothing."""
    program = find_py_spy()
    if program is None:
        return NOT_INSTALLED
    words = (program, "dump", "--json", "--full-filenames", "--nonblocking", "--pid", str(pid))
    try:
        # A session of its own: what is typed at the terminal is meant for the command.
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            start_new_session=True,
            check=False,
        )
        if done.returncode == 0:
            return {"threads": json.loads(done.stdout)}
    except subprocess.TimeoutExpired:
        return f"py-spy gave no answer within {LIMIT_S:.0f} s"
    except (OSError, ValueError) as error:
        return f"py-spy cannot be used: {error}"
    return explain_refusal(done.stderr.decode(errors="replace"))


def explain_refusal(text: str) -> str:
    """Return in one sentence why py-spy saw nothing, from what it printed."""
    if "permission" not in text.lower() and "not permitted" not in text.lower():
        first = next(
            (line.strip() for line in text.splitlines() if line.strip()), "no reason given"
        )
        return f"py-spy: {first[:200]}"
    scope = _read_text(Path("/proc/sys/kernel/yama/ptrace_scope"))
    if scope not in (None, "0"):
        return f"tracing is not permitted ({_TRACING_LIMITED.format(scope=scope)})"
    return "tracing is not permitted (another user's process, or a container without SYS_PTRACE)"


# -- what py-spy wrote


def read_threads(document: Mapping[str, Any], pid: int) -> tuple[ThreadStack, ...]:
    """Return the threads in py-spy's document without our frames, the main thread first."""
    threads: Sequence[Any] = document["threads"]
    found = [_thread(one, pid) for one in threads if isinstance(one, dict)]
    found = [one for one in found if one.frames]
    if not found:
        return (ThreadStack(pid=pid, thread="", missing="no thread runs Python just now"),)
    return tuple(sorted(found, key=lambda one: not one.is_main)[:MAX_THREADS])


def _thread(one: Mapping[str, Any], pid: int) -> ThreadStack:
    frames = [_frame(frame) for frame in one.get("frames") or () if isinstance(frame, dict)]
    # The first thread of a process has the process's id.
    number = one.get("os_thread_id")
    is_main = number == pid if isinstance(number, int) else one.get("thread_name") == "MainThread"
    active = one.get("active")
    return ThreadStack(
        pid=pid,
        thread=str(one.get("thread_name") or one.get("os_thread_id") or "?"),
        frames=tuple(f for f in frames if not f.file.startswith(f"{_GUEST}{os.sep}"))[:MAX_FRAMES],
        is_main=is_main,
        is_active=active if isinstance(active, bool) else None,
    )


def _frame(frame: Mapping[str, Any]) -> StackFrame:
    line = frame.get("line")
    return StackFrame(
        function=str(frame.get("name") or "?"),
        file=str(frame.get("filename") or "?"),
        line=line if isinstance(line, int) else 0,
    )


# -- what the kernel says


def read_kernel(pid: int) -> KernelState:
    """Return state, wait channel and system call of the main thread, where /proc is readable."""
    stat = _read_text(_PROC / str(pid) / "stat")
    if stat is None:
        return KernelState()
    wchan = _read_text(_PROC / str(pid) / "wchan")
    words = (_read_text(_PROC / str(pid) / "syscall") or "").split()
    name = name_syscall(words[0], platform.machine()) if words else None
    return KernelState(
        state=stat.rpartition(")")[2].split()[0],
        wchan=wchan if wchan not in (None, "", "0") else None,
        syscall=name,
        is_file=name is not None and len(words) > 1 and _is_file(pid, words[1]),
    )


def name_syscall(number: str, machine: str) -> str | None:
    """Return the name of a system call; None if the thread is in none (`running`, -1)."""
    if not number.isdigit():
        return None
    words = _SYSCALLS.get(machine, "").split()
    names = dict(zip(words[1::2], words[::2], strict=True))
    return names.get(number, f"system call {number}")


def _is_file(pid: int, descriptor: str) -> bool:
    try:
        return os.path.isfile(_PROC / str(pid) / "fd" / str(int(descriptor, 16)))
    except (OSError, ValueError):
        return False


def _read_work(pid: int) -> tuple[float, int]:
    """Return CPU time [s] and bytes read and written by a process and its children so far."""
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    cpu_s, io_bytes = 0.0, 0
    for one in (pid, *descendants(pid)):
        fields = (_read_text(_PROC / str(one) / "stat") or "").rpartition(")")[2].split()
        if len(fields) > 14:  # the third field of proc(5) has index 0
            cpu_s += (int(fields[11]) + int(fields[12])) * tick_s
        for line in (_read_text(_PROC / str(one) / "io") or "").splitlines():
            name, _, value = line.partition(":")
            if name in ("rchar", "wchar"):
                io_bytes += int(value)
    return cpu_s, io_bytes


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
