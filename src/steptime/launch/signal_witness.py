"""A process beside us that tells whether a signal was sent to the whole group, or to us alone.

The command is in our process group. What is sent to the group reaches it from the sender; what is
sent to us alone is passed on. The kernel does not say which of the two it was, so a third process
stands in the group and does nothing but hear: a signal of the same number from the same sender
that it got as well went to everybody. A scheduler that kills one process after the other, and
`timeout`, look the same.

It bears the name and the words of the command, so that whoever kills by name (`pkill -f train.py`)
kills all three, or us alone (`pkill steptime`).

In: the numbers of the signals, the command. Out: whether a signal that we got went to it as well.
It has no descriptors but a pipe, and ends with us.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import time
from pathlib import Path

PATIENCE_S = 0.02
"""How long after the first of several processes the last one of them may be sent its signal."""
_ANSWER_S = 5.0  # it only has to be scheduled; without an answer, a signal is passed on
_KEPT_S = 0.1  # signals of one sender that are nearer than this count as one, as the kernel does
_PING = signal.SIGRTMIN
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # linux/prctl.h
_HEARD = struct.Struct("=ii")  # a number, and the process that sent it


class SignalWitness:
    """Hears the signals of our process group; nothing of it is left after `stop`."""

    def __init__(self, numbers: frozenset[int], argv: tuple[str, ...]) -> None:
        self.heard: dict[tuple[int, int], float] = {}
        us = os.getpid()
        self.pipe, writer = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {_PING})
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _hear(writer, us, numbers, argv)
            finally:
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)

    def is_for_all(self, number: int, sender: int) -> bool:
        """Return whether a signal that we just got from this sender went to the witness too."""
        if time.monotonic() - self.heard.get((number, sender), -_KEPT_S) < _KEPT_S:
            return True
        time.sleep(PATIENCE_S)
        return (number, sender) in self._listen()  # however long its answer took

    def stop(self) -> None:
        """End the witness and wait for it."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.pipe)

    def _listen(self) -> set[tuple[int, int]]:
        """Return what the witness was sent until now: it answers after all that came before."""
        found: set[tuple[int, int]] = set()
        try:
            os.kill(self.pid, _PING)
        except OSError:
            return found
        until = time.monotonic() + _ANSWER_S
        while select.select([self.pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            words = os.read(self.pipe, 512 * _HEARD.size)
            pairs: list[tuple[int, int]] = list(_HEARD.iter_unpack(words))
            found |= set(pairs)
            if not words or pairs[-1][0] == _PING:
                break
        self.heard |= dict.fromkeys(found, time.monotonic())
        return found


def _hear(writer: int, us: int, numbers: frozenset[int], argv: tuple[str, ...]) -> None:
    """Write down each signal, until nobody is there to read it."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != us:
        return
    libc.prctl(_PR_SET_NAME, ctypes.c_char_p(os.fsencode(Path(argv[0]).name)), 0, 0, 0)
    _rename(b"\0".join(map(os.fsencode, argv)))
    os.dup2(writer, 0)
    os.closerange(1, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    heard = numbers | {_PING}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    while True:
        info = signal.sigwaitinfo(heard)
        if info.si_code <= 0 or info.si_signo == _PING:
            os.write(0, _HEARD.pack(info.si_signo, info.si_pid))


def _rename(words: bytes) -> None:
    """Write other words over our own arguments, where `ps` and `pkill` read them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = int(fields[45]), int(fields[46])  # arg_start, arg_end: proc(5), 48 and 49
        if 0 < begin < end:
            ctypes.memset(begin, 0, end - begin)
            ctypes.memmove(begin, words, min(len(words), end - begin - 1))
