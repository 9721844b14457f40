"""Which processes this one waits for, by the pipes and sockets that it reads from.

A pipe or socket is looked up once, when the waits for it have become long: in `/proc`, among the
children of multiprocessing first, and only among processes of the same user. Without `/proc`
nothing is known of them. Nothing is sent to another process.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from json import dumps
from multiprocessing import process
from time import monotonic
from typing import Any

from ...record import kinds
from ..timeline.recorder import Recorder

LOOKED_UP_NS = 50_000_000
"""Shorter waits in all are not worth a look, which takes milliseconds where many processes run."""

MAX_KNOWN = 64
"""Pipes and sockets; a script that opens more waits for none of them long."""

MAX_PEERS = 4
MAX_LINKS = 5_000
"""Descriptors of other processes that one look reads: some ten milliseconds."""

MAX_COMMAND = 200
WRITTEN_EVERY_S = 2.0

Facts = dict[str, Any]


class AwaitedProcesses:
    """The waits for each pipe, socket or process, and who is behind it; writes `pw` lines."""

    place = "awaited"

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = monotonic) -> None:
        self.recorder = recorder
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.waits: dict[object, KnownWait] = {}
        self.due_s = 0.0
        self.has_news = False

    def add(self, key: object, ns: int, look_up: Callable[[], list[Facts]]) -> None:
        """Take a wait of `ns` nanoseconds; `look_up` says for whom, once it is worth it."""
        wait = self.waits.get(key)
        if wait is None:
            if len(self.waits) >= MAX_KNOWN:
                return
            wait = self.waits[key] = KnownWait()
        wait.ns += ns
        wait.num += 1
        if wait.peers is None and wait.ns >= LOOKED_UP_NS:
            wait.peers = []  # also if the look fails
            wait.peers = look_up()[:MAX_PEERS]
        self.has_news |= bool(wait.peers)

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return a line with all that is known, if it is due."""
        now = self.clock()
        if not self.has_news or (now < self.due_s and not is_last):
            return ""
        self.due_s, self.has_news = now + WRITTEN_EVERY_S, False
        found: dict[tuple[int | None, str | None], Facts] = {}
        for wait in list(self.waits.values()):
            for peer in wait.peers or ():
                key = peer["pid"], peer.get("address")
                known = found.setdefault(key, {**peer, "num": 0, "total_s": 0.0})
                # One that is ending has no command any more, and not every wait has its name.
                known |= {name: one for name, one in peer.items() if known[name] is None}
                known["num"] += wait.num
                known["total_s"] += wait.ns / 1e9
        line = {"k": kinds.AWAITED, "n": self.recorder.num_updates}
        return dumps({**line, "processes": list(found.values())}) + "\n"


class KnownWait:
    """The waits for one pipe or socket; `peers` is None until they were looked up."""

    __slots__ = ("ns", "num", "peers")

    def __init__(self) -> None:
        self.ns = self.num = 0
        self.peers: list[Facts] | None = None


def describe(pid: int, name: str | None = None) -> Facts:
    """Return what is known of a process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4 * MAX_COMMAND).decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        words = []
    command = " ".join(words)[:MAX_COMMAND] or None
    return {"pid": pid, "command": command, "name": name}


def peers_of(fd: int) -> list[Facts]:
    """Return the processes at the other end of a pipe or a socket; empty where nobody is known."""
    link = os.readlink(f"/proc/self/fd/{fd}")
    if not link.startswith("socket:"):
        return list(holders(link))
    own = socket.socket(fileno=os.dup(fd))
    try:
        if own.family == socket.AF_UNIX:
            return unix_peers(own, link)
        return internet_peers(own)
    finally:
        own.close()


def unix_peers(own: socket.socket, link: str) -> list[Facts]:
    """Return who is at the other end of a local socket.

    The kernel names who made it. Of a pair, that may be this process; then it was handed to a
    child, which has inherited both ends, or is the only child.
    """
    raw = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid = struct.unpack("3i", raw)[0]
    if pid not in (0, os.getpid()):
        return [describe(pid, relatives().get(pid))]
    children = {one: name for one, name in relatives().items() if one != os.getppid()}
    found = [one for one in children if holds(one, link, may_read=True)]
    if not found and len(children) == 1:
        found = list(children)
    return [describe(one, children[one]) for one in found]


def internet_peers(own: socket.socket) -> list[Facts]:
    """Return who is at the other end of a connection, or its address."""
    here, there = own.getsockname(), own.getpeername()
    if here[0] == there[0]:
        inode = inode_of(port=there[1], peer_port=here[1])
        found = [] if inode is None else list(holders(f"socket:[{inode}]", may_read=True))
        if found:
            return found
    return [{"pid": None, "command": None, "name": None, "address": f"{there[0]}:{there[1]}"}]


def inode_of(*, port: int, peer_port: int) -> str | None:
    """Return the inode of a connection of this machine, by its port and that of its peer."""
    ends = f":{port:04X}", f":{peer_port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file]
        except OSError:
            continue
        for row in rows[1:]:
            if row[1].endswith(ends[0]) and row[2].endswith(ends[1]):
                return row[9]
    return None


def relatives() -> dict[int, str]:
    """Return the children and the parent that multiprocessing knows, by their ids."""
    known: Iterable[Any] = [*process._children, process.parent_process()]  # type: ignore[attr-defined]
    found = {one.pid: one.name for one in known if one is not None and one.pid is not None}
    return {pid: name for pid, name in found.items() if pid != os.getpid()}


def holders(link: str, *, may_read: bool = False) -> Iterator[Facts]:
    """Yield the processes that hold a pipe's end to write to, or a socket: relatives, or others."""
    known = relatives()
    found = [pid for pid in known if holds(pid, link, may_read=may_read)]
    if not found:
        left = MAX_LINKS
        for pid in own_processes():
            if pid in known:
                continue
            left -= number_of_links(pid)
            if left < 0:
                break
            if holds(pid, link, may_read=may_read):
                found.append(pid)
    for pid in found:
        yield describe(pid, known.get(pid))


def own_processes() -> list[int]:
    """Return the other processes of this user, the youngest first."""
    user, found = os.getuid(), []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                found.append(int(name))
        except OSError:
            continue  # it has ended
    return sorted((pid for pid in found if pid != os.getpid()), reverse=True)


def number_of_links(pid: int) -> int:
    """Return how many descriptors a process has, at least 1."""
    try:
        return max(1, len(os.listdir(f"/proc/{pid}/fd")))
    except OSError:
        return 1


def holds(pid: int, link: str, *, may_read: bool) -> bool:
    """Return whether a process holds an end; unless `may_read`, one that can be written to."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}") != link:
                continue
            if may_read or can_write(pid, name):
                return True
        except OSError:
            continue
    return False


def can_write(pid: int, descriptor: str) -> bool:
    """Return whether a descriptor of a process is open for writing."""
    with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
        flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
