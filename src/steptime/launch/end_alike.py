"""Ends this process as the user's command ended: by the same signal, where one ended it.

A caller that looks at how a process ended (a scheduler, a launcher, a shell's trap) then sees what
it sees without us. A shell shows 128 + signal either way.
"""

from __future__ import annotations

import atexit
import os
import resource
import signal
import sys


class SignalExit(int):
    """An exit code, 128 + signal, of a command that a signal ended."""


def end_alike(code: int) -> int:
    """End this process by the signal of a `SignalExit`; return any other code."""
    if not isinstance(code, SignalExit):
        return code
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    number = code - 128
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))  # the command's core stays the only one
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    return code
