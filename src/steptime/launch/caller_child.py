"""The door through which a Python program starts a command to observe it: from a notebook, say.

In: an argv. Out: the running child, how it ended. Unlike `user_command`, which belongs to a process
that does nothing else, this one changes no signal and no descriptor of the process that calls: it
may have threads, children and a prompt of its own.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from steptime.core.executable import need_executable, not_started, why_not_started
from steptime.core.process_end import ProcessEnd, RunState

_POLL_S = 0.5  # how late Ctrl-C and what is due beside the command may be seen
# Ctrl-C reaches the whole foreground group, the command as well: it first gets time to end by
# itself, since a second interrupt may cut short what it saves after the first.
_LADDER: tuple[tuple[signal.Signals | None, float], ...] = (
    (None, 3.0),
    (signal.SIGINT, 10.0),
    (signal.SIGTERM, 5.0),
    (signal.SIGKILL, 30.0),
)


class CallerChild:
    """A command that runs as a child of the calling program."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def wait(
        self,
        tick: Callable[[], float],
        *,
        on_end: Callable[[ProcessEnd], None],
        first_s: float = 1.0,
    ) -> ProcessEnd:
        """How it ended, after waiting for that.

        Args:
            tick: called when it is due; returns the time until the next call [s].
            on_end: called when it has ended.
            first_s: time until the first call [s].
        """
        due_s = time.monotonic() + first_s
        while (end := self._poll(min(_POLL_S, due_s - time.monotonic()))) is None:
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + tick()
        on_end(end)
        return end

    def stop(self) -> ProcessEnd:
        """End it, gently first; how it ended."""
        for number, patience_s in _LADDER:
            if number is not None:
                with suppress(ProcessLookupError, PermissionError):
                    self._process.send_signal(number)
            end = self._poll(patience_s)
            if end is not None:
                return end
        return ProcessEnd(state=RunState.UNKNOWN)  # it belongs to somebody else, or hangs in a disk

    def _poll(self, timeout_s: float) -> ProcessEnd | None:
        try:
            code = self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return None
        if code < 0:
            return ProcessEnd(state=RunState.KILLED, signal=-code)
        return ProcessEnd(state=RunState.FAILED if code else RunState.FINISHED, exit_code=code)


def start_child(
    argv: tuple[str, ...], environment: Mapping[str, str], *, output: Path | None = None
) -> CallerChild:
    """Start the command. It inherits the standard streams.

    Args:
        argv: the command.
        environment: exactly what it gets.
        output: the file that takes what it writes to stdout and stderr; None to inherit them.

    Raises:
        NotStartedError: it cannot be started.
        OSError: the file of `output` cannot be written.
    """
    path = need_executable(argv, environment)
    with ExitStack() as files:
        file = None if output is None else files.enter_context(output.open("wb"))
        try:
            process = subprocess.Popen(
                argv, executable=path, env=environment, stdout=file, stderr=file
            )
        except OSError as error:
            raise not_started(argv, why_not_started(error)) from error
    return CallerChild(process)
