"""Tells each process of a child its plan once, and shows it what changes; no path leads to either.

The door is a socket file. `inject/site/sitecustomize.py` asks there before any code of the user's
runs, and gets the plan, with a descriptor of memory that it can only read where something will be
shown: it maps that memory and holds nothing open. Whoever asks again, or in a fork, gets nothing.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from contextlib import suppress
from hashlib import blake2b

from .broker.waiting_call import open_proc

NAME = "door"
SHOWN_BYTES = 1 << 21  # `guest/trial/shown.py` knows the sizes, too
_SLOT_BYTES = SHOWN_BYTES // 2
_IS_SHOWN = '"is_live": true'
_SEALS = 0x2 | 0x4 | 0x10  # not shorter, not longer, written by nobody who maps it from here on
_ADD_SEALS = 1033


class PlanDoor:
    """The door of one child, answered in the launcher's loop.

    Args:
        place: where the socket file is made.
        plan: what each process is told, a JSON text.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, place: str, plan: str) -> None:
        self._plan, self._known = plan.encode(), set[bytes]()
        self._number = 0
        self._memory = self._map = None
        if _IS_SHOWN in plan:
            self._memory = os.memfd_create("shown", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._memory, SHOWN_BYTES)
            self._map = mmap.mmap(self._memory, SHOWN_BYTES)
            fcntl.fcntl(self._memory, _ADD_SEALS, _SEALS)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(place)
        os.chmod(place, 0o600)
        self._socket.listen(128)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """The descriptor on which somebody asks."""
        return self._socket.fileno()

    def answer(self) -> None:
        """Answer one who asks."""
        with suppress(OSError), self._socket.accept()[0] as asker:
            asker.settimeout(1.0)
            if self._is_new(asker):
                handed = [] if self._memory is None else [self._memory]
                socket.send_fds(asker, [b"."], handed)
                asker.sendall(self._plan)

    def show(self, text: str) -> None:
        """Show a text in the memory; the one before it stays until the next."""
        if self._map is not None:
            self._number += 1
            data = text.encode()
            slot = 8 + self._number % 2 * _SLOT_BYTES
            self._map[slot : slot + 8 + len(data)] = struct.pack("<Q", len(data)) + data
            self._map[:8] = struct.pack("<Q", self._number)

    def _is_new(self, asker: socket.socket) -> bool:
        """Whether it is a program that has not asked: each start of one has other addresses."""
        pid, _, _ = struct.unpack("3i", asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        start = f"{pid}".encode()
        with suppress(OSError):
            file = os.open(f"{pid}/auxv", os.O_RDONLY | os.O_CLOEXEC, dir_fd=open_proc())
            with open(file, "rb") as addresses:
                start = blake2b(addresses.read()).digest()
        is_new = start not in self._known
        self._known.add(start)
        return is_new
