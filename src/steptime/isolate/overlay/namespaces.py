"""Puts the launcher into namespaces of its own, where it may mount and its child can do no harm.

It needs only what every process may do: map its own user. Where it may map all users (root), every
user's files keep their owners.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from pathlib import Path

from steptime.isolate import kernel

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def enter_namespaces(
    *, has_own_mounts: bool, has_own_network: bool, has_own_processes: bool
) -> None:
    """Leave the host's users and, if asked, its mounts with shared memory, network, processes.

    The next child of this process is the first one in the new process namespace.

    Raises:
        OSError: the kernel or its configuration does not allow it.
    """
    flags = kernel.CLONE_NEWUSER
    flags |= kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC if has_own_mounts else 0
    flags |= kernel.CLONE_NEWNET if has_own_network else 0
    flags |= kernel.CLONE_NEWPID if has_own_processes else 0
    own = {"uid": os.geteuid(), "gid": os.getegid()}
    maps = {kind: Path(f"/proc/self/{kind}_map").read_text() for kind in own}
    helper, go = _start_mapper(os.getpid(), maps)
    try:
        kernel.unshare(flags)
    finally:
        os.write(go, b"." if Path("/proc/self/uid_map").read_text() != maps["uid"] else b"")
        os.close(go)
        os.waitpid(helper, 0)
    if not Path("/proc/self/uid_map").read_text().strip():
        Path("/proc/self/setgroups").write_text("deny")
        for kind, number in own.items():
            Path(f"/proc/self/{kind}_map").write_text(f"{number} {number} 1")
    if has_own_network:
        _raise_loopback()


def _start_mapper(pid: int, maps: dict[str, str]) -> tuple[int, int]:
    """Start a process that stays outside and maps every user and group to itself.

    More than the own user can be mapped only from outside, and only with the right to do so.
    """
    waiting, go = os.pipe()
    helper = os.fork()
    if helper:
        os.close(waiting)
        return helper, go
    os.close(go)
    try:
        if os.read(waiting, 1):
            for kind, text in maps.items():
                rows = [line.split() for line in text.splitlines()]
                identity = "\n".join(f"{inside} {inside} {num}" for inside, _, num in rows)
                with contextlib.suppress(OSError):  # then this process maps only itself
                    Path(f"/proc/{pid}/{kind}_map").write_text(identity)
    finally:
        os._exit(0)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(door, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(door, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))
