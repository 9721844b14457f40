"""Decides about sockets for the broker: a child has ports of its own, and no other address.

Whatever port of TCP it binds, its socket gets a free port of the loopback, and the number that it
asked for leads there in this child alone, which is told that it has what it asked for. So ranks
meet, nobody's port is taken, and nothing that somebody else listens on can be reached. A socket
is made here and put in the place of the child's own, because the address that the child holds in
its memory could change after it was checked.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from .broker_files import BrokeredFiles
from .waiting_call import AT_FDCWD, GoOn, Replaced, Reply, WaitingCall, fail, open_proc

_MAX_ADDRESS = 128
_LOOPBACK = "127.0.0.1"
_CONNECT_S = 1.0  # on the loopback, a connection is made at once unless the queue is full
_MAX_RESERVED = 256
_MAX_KNOWN = 10_000
# Lookups of users and of their names, which only read.
_NAME_SERVICES = frozenset(
    ("/run/nscd/socket", "/var/lib/sss/pipes/nss", "/run/systemd/userdb/io.systemd.Multiplexer")
)


class BrokeredSockets:
    """The sockets of one child."""

    def __init__(
        self,
        files: BrokeredFiles,
        *,
        is_own_socket: Callable[[str], bool],
        has_own_network: bool,
        note: Callable[[str], None],
    ) -> None:
        self._files = files
        self._is_own_socket = is_own_socket
        self._has_own_network = has_own_network
        self._note = note
        self._ports: dict[int, int] = {}
        """The port of the loopback for each port that the child asked for, and for itself."""
        self._reserved: list[socket.socket] = []
        """They keep the child's ports from others until it ends."""
        self._names: set[bytes] = set()
        self._bound: dict[str, bytes] = {}
        """Each socket that has an address, with what the child is told of it; b"" for the truth."""

    # --- calls ----------------------------------------------------------------------------

    def connect(self, call: WaitingCall) -> Reply:
        """Answer connect."""
        address = self._address(call, 1)
        family = _family(address)
        if family == socket.AF_UNIX:
            return self._reach(call, address)
        if family not in (socket.AF_INET, socket.AF_INET6):
            return GoOn()
        host, port = _host_and_port(address)
        if self._has_own_network:
            if not (host.is_loopback and _is_listened(port)):
                self._note(f"{host} port {port}")
            return GoOn()
        own = self._ports.get(port)
        if not _is_here(host):
            self._note(f"{host} port {port}")
            return fail(errno.ENETUNREACH)
        if own is None:
            self._note(f"{host} port {port}")
            return fail(errno.ECONNREFUSED)
        return self._connected(call, socket.AddressFamily(family), own)

    def bind(self, call: WaitingCall) -> Reply:
        """Answer bind."""
        address = self._address(call, 1)
        family = _family(address)
        if family == socket.AF_UNIX:
            self._remember(call.descriptor(call.signed(0)), b"")
            return self._name(address)
        if family not in (socket.AF_INET, socket.AF_INET6):
            return GoOn()  # of the kernel's own lists
        host, port = _host_and_port(address)
        if not (host.is_unspecified or _is_here(host)):
            return fail(errno.EADDRNOTAVAIL)
        made = self._bound_socket(socket.AddressFamily(family), port)
        told = address[:2] + struct.pack(">H", port or made.getsockname()[1]) + address[4:]
        self._remember(f"socket:[{os.fstat(made.fileno()).st_ino}]", told)
        return _replaced(call, made)

    def listen(self, call: WaitingCall) -> Reply:
        """Answer listen: a socket without an address would get one that everybody sees."""
        if call.descriptor(call.signed(0)) in self._bound:
            return GoOn()
        made = self._bound_socket(socket.AF_INET, 0)
        made.listen(max(0, min(call.signed(1), 4096)))
        return _replaced(call, made)

    def tell_name(self, call: WaitingCall) -> Reply:
        """Answer getsockname: with the port that was asked for."""
        told = self._bound.get(call.descriptor(call.signed(0)))
        if not told:
            return GoOn()
        room = int.from_bytes(call.data(2, 4), "little")
        call.write(1, told[:room])
        call.write(2, len(told).to_bytes(4, "little"))
        return fail(0)

    def send(self, call: WaitingCall) -> Reply:
        """Answer sendto with an address."""
        address = self._address(call, 4)
        family = _family(address)
        if family == socket.AF_UNIX:
            return self._reach(call, address)
        if self._has_own_network or family not in (socket.AF_INET, socket.AF_INET6):
            return GoOn()
        host, port = _host_and_port(address)
        self._note(f"{host} port {port}")
        return fail(errno.ENETUNREACH)

    # --- socket files and abstract names --------------------------------------------------

    def _reach(self, call: WaitingCall, address: bytes) -> Reply:
        path = address[2:]
        if path[:1] == b"\0" or not path:
            if self._has_own_network or path in self._names:
                return GoOn()
            self._note(f"the abstract socket {_shown(path)}")
            return fail(errno.ECONNREFUSED)
        asked = os.fsdecode(path.partition(b"\0")[0])
        place = os.path.realpath(call.place(AT_FDCWD, asked))
        if self._files.is_own(place) or self._is_own_socket(place) or place in _NAME_SERVICES:
            return GoOn()
        if not os.path.lexists(place):
            return fail(errno.ENOENT)
        self._note(place)
        return fail(errno.ECONNREFUSED)

    def _name(self, address: bytes) -> Reply:
        """Let it take an abstract name that nobody has; a path is left to the kernel."""
        name = address[2:]
        if name[:1] == b"\0" and name not in self._names:
            if _is_taken(name):
                return fail(errno.EADDRINUSE)
            if len(self._names) < _MAX_KNOWN:
                self._names.add(name)
        return GoOn()

    def _remember(self, opened: str, told: bytes) -> None:
        if len(self._bound) > _MAX_KNOWN:
            self._bound.clear()
        self._bound[opened] = told

    # --- ports ----------------------------------------------------------------------------

    def _bound_socket(self, family: socket.AddressFamily, port: int) -> socket.socket:
        """Return a socket with a port of the loopback, known under the port that was asked for."""
        made = _socket(family)
        try:
            made.bind(_loopback(family, self._ports.get(port, 0)))
            own = made.getsockname()[1]
            if own not in self._ports:
                self._reserve(own)
        except OSError:
            made.close()
            raise
        self._ports[own] = own
        self._ports[port or own] = own
        return made

    def _reserve(self, port: int) -> None:
        if len(self._reserved) >= _MAX_RESERVED:
            self._reserved.pop(0).close()
        keeper = _socket(socket.AF_INET)
        keeper.bind((_LOOPBACK, port))
        self._reserved.append(keeper)

    def _connected(self, call: WaitingCall, family: socket.AddressFamily, port: int) -> Reply:
        made = _socket(family)
        made.setblocking(False)
        try:
            made.connect(_loopback(family, port))
        except BlockingIOError:
            select.select([], [made], [], _CONNECT_S)
        except OSError:
            made.close()
            raise
        number = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            made.close()
            return fail(number)
        return _replaced(call, made)

    def _address(self, call: WaitingCall, index: int) -> bytes:
        size = call.arguments[index + 1] & 0xFFFFFFFF
        address = call.data(index, min(size, _MAX_ADDRESS))
        if len(address) < 2:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return address


def _replaced(call: WaitingCall, made: socket.socket) -> Reply:
    """Put a socket in the place of the child's, open in the same way."""
    number = call.signed(0)
    if not call.descriptor(number).startswith("socket:"):
        made.close()
        return fail(errno.ENOTSOCK)
    flags = call.descriptor_flags(number)
    made.setblocking(not flags & os.O_NONBLOCK)
    return Replaced(descriptor=made.detach(), number=number, flags=flags & os.O_CLOEXEC)


def _socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    # As servers do; and on the loopback, small messages need not wait for larger ones.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def _loopback(family: socket.AddressFamily, port: int) -> tuple[str, int]:
    """Return the address, in IPv4 whatever was asked for: both ends must meet."""
    return (f"::ffff:{_LOOPBACK}" if family == socket.AF_INET6 else _LOOPBACK), port


def _family(address: bytes) -> int:
    return int.from_bytes(address[:2], "little")


_Host = ipaddress.IPv4Address | ipaddress.IPv6Address


def _host_and_port(address: bytes) -> tuple[_Host, int]:
    is_long = _family(address) == socket.AF_INET6
    if len(address) < (24 if is_long else 8):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    (port,) = struct.unpack(">H", address[2:4])
    if not is_long:
        return ipaddress.IPv4Address(address[4:8]), port
    host = ipaddress.IPv6Address(address[8:24])
    return host.ipv4_mapped or host, port


def _is_here(host: _Host) -> bool:
    """Return whether an address is this machine's, by taking it."""
    if host.is_loopback or host.is_unspecified:
        return True
    family = socket.AF_INET if host.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as door:
        door.bind((str(host), 0))
        return True
    return False


def _is_listened(port: int) -> bool:
    """Return whether anybody in the child's own network listens on a port of TCP."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            file = os.open(f"self/net/{table}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=open_proc())
            with open(file, encoding="ascii") as lines:
                rows = [line.split()[:4] for line in lines][1:]
            if any(int(row[1].rpartition(":")[2], 16) == port for row in rows if row[3] == "0A"):
                return True
    return False


def _is_taken(name: bytes) -> bool:
    """Return whether somebody has an abstract name."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/net/unix").read_bytes().split(b"\n")
        return any(line.endswith(b" @" + name[1:].replace(b"\0", b"@")) for line in lines)
    return True


def _shown(name: bytes) -> str:
    return "@" + name[1:].decode(errors="replace")
