"""Starts a child that can do no harm, and ends it: everything that reruns a command comes here.

In: an argv, its environment, a folder and what a probe found. Out: the running child, or why there
is none, and how it ended. The launcher, a process in between, builds the walls and watches.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import psutil

from steptime.core.executable import NotStarted, find_executable
from steptime.core.process_end import ProcessEnd, RunState
from steptime.errors import ContainmentError
from steptime.isolate.tiers import Containment, Tier

_LAUNCHER = Path(__file__).with_name("launcher.py")
_KILL_S = 30.0  # before it is gone, the kernel frees a large process's memory and its device's
WRITE_S = 0.5
# What the launcher's own Python may need to start at all; the command has its own environment.
_LAUNCHERS_VARIABLES = ("LD_LIBRARY_PATH", "PATH")


class ContainedChild:
    """A running child; `pid` is the launcher's, which is the root of its tree as seen from here.

    `reasons` say what this child's walls lack. `left` are the processes that were still there when
    the command itself had ended, with their names; they were killed then.
    """

    def __init__(self, launcher: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.pid = launcher.pid
        self.reasons: tuple[str, ...] = ()
        self.left: tuple[tuple[int, str], ...] = ()
        self._launcher = launcher
        self._control = control
        self._heard = b""
        self._end: ProcessEnd | None = None

    def show(self, text: str) -> None:
        """Show a text to its processes, in place of the one before; its plan says who looks."""
        with contextlib.suppress(OSError):  # it has just ended
            self._control.sendall(json.dumps({"show": text}).encode() + b"\n")

    def poll(self) -> ProcessEnd | None:
        """Return how it ended, with everything it had started; None while it runs."""
        return self._wait(0.0)

    def wait(self, timeout_s: float) -> ProcessEnd | None:
        """Return the same, after waiting for the end at most this long."""
        return self._wait(timeout_s)

    def kill(self) -> None:
        """Send SIGKILL to the whole tree; nothing of it is left when this returns."""
        if self._end is not None:
            return
        with contextlib.suppress(OSError):
            self._control.sendall(b"kill\n")
        if self._wait(_KILL_S) is None:
            self._launcher.kill()
            self._finish(ProcessEnd(state=RunState.KILLED, signal=signal.SIGKILL))

    def hold(self) -> None:
        """Stop all of its processes where they are; one that is just forked is found, too."""
        held: set[int] = set()
        while new := [one for one in self._processes() if one.pid not in held]:
            for one in new:
                held.add(one.pid)
                with contextlib.suppress(psutil.Error):
                    one.suspend()

    def go_on(self) -> None:
        """Let its stopped processes go on."""
        for one in self._processes():
            with contextlib.suppress(psutil.Error):
                one.resume()

    def _processes(self) -> list[psutil.Process]:
        """All but the launcher, which answers their calls."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.Error:
            return []

    def _wait(self, timeout_s: float) -> ProcessEnd | None:
        if self._end is None:
            message = self._hear(timeout_s)
            if message is not None:
                left = (message.get("end") or {}).get("left", ())
                self.left = tuple((pid, name) for pid, name in left)
                self._finish(_end_of(message))
        return self._end

    def _hear(self, timeout_s: float | None) -> dict[str, Any] | None:
        """Return the next message; None if none came in time, an empty one if none will come."""
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._control], [], [], timeout_s)
            if not ready:
                return None
            try:
                data = self._control.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                return {}
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _finish(self, end: ProcessEnd) -> None:
        self._launcher.wait()
        self._control.close()
        self._end = end


def _end_of(message: Mapping[str, Any]) -> ProcessEnd:
    end = message.get("end") or {"signal": signal.SIGKILL}  # the launcher itself was killed
    code = end.get("exit_code")
    if code is None:
        return ProcessEnd(state=RunState.KILLED, signal=end["signal"])
    return ProcessEnd(state=RunState.FAILED if code else RunState.FINISHED, exit_code=code)


def start_contained(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    cwd: Path,
    folder: Path,
    containment: Containment,
    stdin: Path | None = None,
    memory_bytes: int | None = None,
    write_s: float = WRITE_S,
) -> ContainedChild | NotStarted:
    """Start a command behind the walls that `containment` names.

    Args:
        argv: the command.
        environment: exactly what it gets.
        cwd: where it runs; absolute.
        folder: exists; absolute; the only place that is really writable. It gets `stdout`, `stderr`
            (the last 1 MiB of each) and `writes.json`.
        containment: what `probe` found.
        stdin: what it reads; nothing if None.
        memory_bytes: what each of its processes may have of private memory that it can write to
            (RLIMIT_DATA); beyond that, an allocation fails. None for no limit of ours.
        write_s: how often what it writes goes to `stdout` and `stderr` while it runs [s].

    Raises:
        ContainmentError: the walls that the probe found can no longer be built.
    """
    name = os.path.join(cwd, argv[0]) if os.sep in argv[0] else argv[0]
    path = find_executable(name, environment)
    if isinstance(path, NotStarted):
        return path
    plan = {
        "argv": list(argv),
        "path": os.path.join(cwd, path),
        "environment": dict(environment),
        "cwd": str(cwd),
        "folder": os.path.realpath(folder),
        "tier": containment.tier.value,
        "has_own_network": containment.has_own_network,
        "share_network": containment.share_network or containment.tier is Tier.UNSAFE,
        "walls": [wall.value for wall in containment.walls],
        "has_own_processes": containment.has_own_processes,
        "layer_bytes": containment.layer_bytes,
        "memory_bytes": memory_bytes,
        "write_s": write_s,
    }
    with tempfile.TemporaryFile() as complaints:
        return _start(plan, stdin, complaints)


def _start(
    plan: Mapping[str, Any], stdin: Path | None, complaints: IO[bytes]
) -> ContainedChild | NotStarted:
    control, theirs = socket.socketpair()
    with theirs, open(stdin or os.devnull, "rb") as source:
        launcher = subprocess.Popen(
            [sys.executable, "-I", str(_LAUNCHER), str(theirs.fileno())],
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            cwd="/",
            env={k: os.environ[k] for k in _LAUNCHERS_VARIABLES if k in os.environ},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    child = ContainedChild(launcher, control)
    with contextlib.ExitStack() as cut_off:
        # An interrupt now must not leave it behind: without the socket it ends everything.
        cut_off.callback(launcher.wait)
        cut_off.callback(control.close)
        with contextlib.suppress(ConnectionError):
            control.sendall(json.dumps(plan).encode() + b"\n")
        message = child._hear(None) or {}
        cut_off.pop_all()
    if message.get("started"):
        child.reasons = tuple(message["reasons"])
        return child
    child._finish(_end_of({}))
    if "not_started" in message:
        return _not_started(message["not_started"])
    complaints.seek(0)
    last = complaints.read()[-2000:].decode(errors="replace").strip().rpartition("\n")[2]
    why = message.get("uncontained") or last or "its launcher died"
    raise ContainmentError(f"the trial could not be kept from doing harm: {why}")


def _not_started(number: int) -> NotStarted:
    if number == 2:  # ENOENT although the file exists: the interpreter in its first line is missing
        return NotStarted(exit_code=127, reason="names an interpreter that was not found")
    return NotStarted(exit_code=126, reason=f"failed: {os.strerror(number)}")
