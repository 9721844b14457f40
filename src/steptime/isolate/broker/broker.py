"""Decides, in the launcher, the system calls of a child that a filter alone cannot judge.

In: the descriptor that `seccomp.install` returned. Out: an answer to each waiting call: let it go
on, make it fail, or do it for the child and hand it the descriptor. What is decided about:
sockets (`broker_sockets.py`), files (`broker_files.py`), processes (here). The walls keep a
script from harm that it does by itself; they are no prison for a program that fights them.
Source: https://docs.kernel.org/userspace-api/seccomp_filter.html#userspace-notification
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steptime.isolate.guard.syscall_numbers import this_processor
from steptime.isolate.guard.walls import (
    ATTRIBUTES_AT,
    ATTRIBUTES_BY_DESCRIPTOR,
    ATTRIBUTES_BY_PATH,
    F_SETOWN,
    SIGNALS,
    process_argument,
)

from .broker_files import BrokeredFiles
from .broker_sockets import BrokeredSockets
from .waiting_call import GoOn, NewDescriptor, Replaced, Reply, WaitingCall, fail

_RECEIVE, _SEND, _IS_VALID, _ADD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_ADDED = struct.Struct("=QIIII")
_CONTINUE = 1
_AT_NUMBER = 1
_MAX_REFUSED = 50

Handler = Callable[[WaitingCall], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlaces:
    """What is the child's own.

    Attributes:
        launcher: the process whose descendants the child's processes are.
        folders: where it may really write.
        memory: the folder of its shared memory; None if it has /dev/shm to itself.
        is_own_socket: whether a socket file that lies in none of the folders is its own.
        has_own_network: all addresses but socket files are its own.
    """

    launcher: int
    folders: tuple[str, ...]
    memory: str | None = None
    is_own_socket: Callable[[str], bool] = lambda path: False
    has_own_network: bool = False


class Broker:
    """Answers the waiting calls of one child, in the launcher's loop."""

    def __init__(self, descriptor: int, places: BrokerPlaces) -> None:
        self.descriptor = descriptor
        self.is_open = True
        self.refused: list[str] = []
        """What the child wanted to connect to, and could not."""
        self._launcher = places.launcher
        processor = this_processor()
        assert processor is not None
        names = {number: name for name, number in processor.numbers.items()}
        files = BrokeredFiles(places.folders, places.memory)
        sockets = BrokeredSockets(
            files,
            is_own_socket=places.is_own_socket,
            has_own_network=places.has_own_network,
            note=self._note,
        )
        by_name: dict[str, Handler] = {
            "open": files.open,
            "openat": files.open,
            "link": files.link,
            "linkat": files.link,
            "unlink": files.unlink,
            "unlinkat": files.unlink,
            **dict.fromkeys(ATTRIBUTES_BY_PATH, files.change),
            **dict.fromkeys(ATTRIBUTES_AT, files.change_at),
            **dict.fromkeys(ATTRIBUTES_BY_DESCRIPTOR, files.change_descriptor),
            "flock": files.lock,
            "fcntl": lambda call: (
                self._decide(call, call.signed(2))
                if call.signed(1) == F_SETOWN
                else files.lock(call)
            ),
            "connect": sockets.connect,
            "bind": sockets.bind,
            "listen": sockets.listen,
            "sendto": sockets.send,
            "getsockname": sockets.tell_name,
            **dict.fromkeys(SIGNALS, self._signal),
        }
        self._names = names
        self._handlers = by_name

    def answer(self) -> None:
        """Answer the calls that wait now."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        for _, events in poll.poll(0):
            if events & select.POLLIN:
                self._answer_next()
            elif events:  # nobody is left who could ask
                self.close()

    def close(self) -> None:
        """Stop answering: calls that wait fail."""
        if self.is_open:
            self.is_open = False
            os.close(self.descriptor)

    def _note(self, what: str) -> None:
        if what not in self.refused and len(self.refused) < _MAX_REFUSED:
            self.refused.append(what)

    def _answer_next(self) -> None:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, notice)
        except OSError:
            return  # it was killed meanwhile
        key, pid, _, number, _, _, *arguments = _NOTICE.unpack(notice)
        call = WaitingCall(
            name=self._names.get(number, ""),
            pid=pid,
            arguments=tuple(arguments),
            is_waiting=lambda: self._is_waiting(key),
        )
        try:
            reply = self._handlers.get(call.name, self._process)(call)
        except OSError as error:
            reply = fail(error.errno or errno.EACCES)
        with contextlib.suppress(OSError):  # it was killed meanwhile
            self._reply(key, reply)

    def _is_waiting(self, key: int) -> bool:
        """Return whether what was read of the process was really read of the caller."""
        try:
            fcntl.ioctl(self.descriptor, _IS_VALID, struct.pack("=Q", key))
        except OSError:
            return False
        return True

    def _reply(self, key: int, reply: Reply) -> None:
        value, error, flags = 0, 0, 0
        if isinstance(reply, NewDescriptor):
            try:
                value = self._add(key, reply.descriptor, 0, 0, reply.flags)
            finally:
                os.close(reply.descriptor)
        elif isinstance(reply, Replaced):
            try:
                self._add(key, reply.descriptor, _AT_NUMBER, reply.number, reply.flags)
            finally:
                os.close(reply.descriptor)
            error = -reply.error
        elif isinstance(reply, GoOn):
            flags = _CONTINUE
        else:
            error = -reply.number
        fcntl.ioctl(self.descriptor, _SEND, _ANSWER.pack(key, value, error, flags))

    def _add(self, key: int, descriptor: int, how: int, number: int, flags: int) -> int:
        """Give the caller a descriptor; return its number there."""
        added = bytearray(_ADDED.pack(key, how, descriptor, number, flags))
        return int(fcntl.ioctl(self.descriptor, _ADD, added))

    # --- processes ------------------------------------------------------------------------

    def _signal(self, call: WaitingCall) -> Reply:
        return self._decide(call, call.signed(0))

    def _process(self, call: WaitingCall) -> Reply:
        """A call that changes a process: its priority, its cores, its limits."""
        pid = call.signed(process_argument(call.name))
        if call.name in ("setpriority", "ioprio_set") and call.signed(0) == _GROUP[call.name]:
            pid = -pid
        return self._decide(call, pid)

    def _decide(self, call: WaitingCall, pid: int) -> Reply:
        if pid == 0 or self._is_ours(pid):
            return GoOn()
        if not _exists(pid):
            return fail(errno.ESRCH)
        return fail(errno.EPERM)

    def _is_ours(self, pid: int) -> bool:
        """Whether a process, or a group where the number is negative, is the child's."""
        if pid < -1:
            return all(self._is_ours(member) for member in _members(-pid))
        while pid > 1:
            parent = _parent(pid)
            if parent == self._launcher:
                return True
            pid = parent
        return False


_GROUP = {"setpriority": 1, "ioprio_set": 2}


def _exists(pid: int) -> bool:
    if pid < -1:
        return bool(_members(-pid))
    return pid == -1 or os.path.exists(f"/proc/{pid}")


def _parent(pid: int) -> int:
    """Return the parent of a process, or of a thread; 0 where it is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
        return int(text.partition("\nPPid:")[2].split()[0])
    return 0


def _members(group: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry)) == group:
                    found.append(int(entry))
    return found
