"""Which system calls of a child are refused, and which ones the launcher decides.

A wall is what a tier's folders and namespaces do not hold: the network, sockets in the file
system, shared memory, other processes, and the rights and times of files. The launcher decides
(`broker.py`) where the answer depends on an address, a path or a process, which a filter cannot
see.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from enum import Enum

from .seccomp import ALLOW, ASK, Argument, CallRule, refuse


class Wall(str, Enum):
    """What the kernel's filter adds to a tier."""

    NETWORK = "network"
    """No address but the child's own ports, each of which is really a free one of the loopback."""
    SOCKETS = "sockets"
    """No socket file, and no abstract name, that belongs to another program."""
    MEMORY = "memory"
    """Named shared memory and semaphores are in a folder of the child's own; System V has none."""
    PROCESSES = "processes"
    """No signal to a process outside, and no change of its priority, cores or limits."""
    ATTRIBUTES = "attributes"
    """No change of rights, owners, times and extended attributes of files outside."""


_NO_NAMESPACE = 40  # AF_VSOCK, between a virtual machine and its host
_INET = (socket.AF_INET, socket.AF_INET6)
_NETLINK, _NETLINK_ROUTE = 16, 0
_TYPE_BITS = 0xF  # the others are flags
_FAST_OPEN = 0x20000000  # connects while it sends
_TCP = (0, 6)

_SYSTEM_V = (
    *("shmget", "shmctl", "shmat", "semget", "semctl", "semop", "semtimedop"),
    *("msgget", "msgctl", "msgrcv", "msgsnd", "mq_open", "mq_unlink"),
)
# Each with the index of the argument that names a process; 0 there is the process itself.
_BY_PROCESS = {
    "sched_setparam": 0,
    "sched_setscheduler": 0,
    "sched_setaffinity": 0,
    "sched_setattr": 0,
    "setpriority": 1,
    "ioprio_set": 1,
    "migrate_pages": 0,
    "move_pages": 0,
}
_OF_USER = {"setpriority": 2, "ioprio_set": 3}  # argument 0: all processes of the user
SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
ATTRIBUTES_BY_PATH = (
    *("chmod", "chown", "lchown", "utime", "utimes", "truncate"),
    *("setxattr", "lsetxattr", "removexattr", "lremovexattr"),
)
ATTRIBUTES_AT = ("fchmodat", "fchmodat2", "fchownat", "futimesat", "utimensat")
ATTRIBUTES_BY_DESCRIPTOR = ("fchmod", "fchown", "fsetxattr", "fremovexattr")
# The C library does the same by older calls where these are not there.
_NEWER_CALLS = ("openat2", "setxattrat", "removexattrat", "file_setattr")
# What is asked of a file system, and not of a device: by the second byte, `f`, `v`, `X`, and that
# of btrfs. Only this passes: flags, generation and extents are read, and files cloned.
_OF_FILES = (0x6600, 0x7600, 0x5800, 0x9400)
_READS_OF_FILES = (0x80086601, 0x80087601, 0xC020660B, 0x801C581F, 0x40049409, 0x4020940D)
_LEASE = 1024  # F_SETLEASE: whoever writes waits for the child
_LOCKS = (6, 7, 37, 38)  # F_SETLK and its kin
F_SETOWN = 8
_OWNER_BY_POINTER = {"fcntl": (15,), "ioctl": (0x8901, 0x8902)}  # F_SETOWN_EX, FIOSETOWN, SIOCSPGRP


def rules_of(walls: Iterable[Wall]) -> list[CallRule]:
    """Return the rules of these walls; none without a wall."""
    wanted = frozenset(walls)
    if not wanted:
        return []
    rules = [
        # They would do unseen what is asked about elsewhere.
        *_refused(("io_uring_setup", "io_uring_enter", "io_uring_register"), errno.ENOSYS),
        # No namespace holds them.
        *_refused(("add_key", "request_key", "keyctl", "bpf"), errno.EPERM),
        *_sockets(wanted),
    ]
    for name, kind in _OF_USER.items():
        rules.append(CallRule(name=name, action=refuse(errno.EPERM), arguments=(_is(0, kind),)))
    if Wall.MEMORY in wanted:
        rules += _shared_memory()
    if Wall.PROCESSES in wanted:
        rules += _processes()
    if Wall.ATTRIBUTES in wanted:
        rules += _attributes()
    return rules


def _is(index: int, value: int, mask: int = 0xFFFFFFFF) -> Argument:
    return Argument(index=index, value=value, mask=mask)


def _refused(names: Iterable[str], number: int) -> list[CallRule]:
    return [CallRule(name=name, action=refuse(number)) for name in names]


def _sockets(walls: frozenset[Wall]) -> list[CallRule]:
    """Return the rules of the network and of sockets, which share their calls."""
    rules: list[CallRule] = []
    if Wall.NETWORK in walls:
        for family in _INET:
            rules += [
                CallRule(
                    name="socket",
                    action=ALLOW,
                    arguments=(
                        _is(0, family),
                        _is(1, socket.SOCK_STREAM, _TYPE_BITS),
                        _is(2, protocol),
                    ),
                )
                for protocol in _TCP
            ]
            offline = refuse(errno.ENETUNREACH)
            rules.append(CallRule(name="socket", action=offline, arguments=(_is(0, family),)))
        for index, name in ((3, "sendto"), (2, "sendmsg"), (3, "sendmmsg")):
            bits = Argument(index=index, bits=_FAST_OPEN)
            rules.append(CallRule(name=name, action=refuse(errno.EOPNOTSUPP), arguments=(bits,)))
        # Reading the list of interfaces is all that a child may ask of the kernel.
        listing = (_is(0, _NETLINK), _is(2, _NETLINK_ROUTE))
        rules.append(CallRule(name="socket", action=ALLOW, arguments=listing))
    if Wall.SOCKETS in walls and walls & {Wall.NETWORK, Wall.ATTRIBUTES}:
        # Each message has an address of its own, which nobody could check. Raw is the same kind.
        rules += [
            CallRule(
                name=name,
                action=refuse(errno.EACCES),
                arguments=(_is(0, socket.AF_UNIX), _is(1, kind, _TYPE_BITS)),
            )
            for name in ("socket", "socketpair")
            for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW)
        ]
    if Wall.SOCKETS in walls:
        offline = refuse(errno.EAFNOSUPPORT)
        rules.append(CallRule(name="socket", action=offline, arguments=(_is(0, _NO_NAMESPACE),)))
    if Wall.NETWORK in walls:
        rules.append(CallRule(name="socket", action=ALLOW, arguments=(_is(0, socket.AF_UNIX),)))
        rules.append(CallRule(name="socket", action=refuse(errno.EAFNOSUPPORT)))
        rules += [CallRule(name=name, action=ASK) for name in ("bind", "listen", "getsockname")]
    if Wall.NETWORK in walls or Wall.SOCKETS in walls:
        rules.append(CallRule(name="connect", action=ASK))
        addressed = (Argument(index=4, is_set=True),)
        rules.append(CallRule(name="sendto", action=ASK, arguments=addressed))
    return rules


def _attributes() -> list[CallRule]:
    """Return the rules of what a file has besides its content, and of who may use it."""
    rules = _refused(_NEWER_CALLS, errno.ENOSYS) + _refused(("open_by_handle_at",), errno.EPERM)
    names = (*ATTRIBUTES_BY_PATH, *ATTRIBUTES_AT, *ATTRIBUTES_BY_DESCRIPTOR, "flock")
    rules += [CallRule(name=name, action=ASK) for name in names]
    rules.append(_by_word("fcntl", _LEASE, refuse(errno.EPERM)))
    rules += [_by_word("fcntl", command, ASK) for command in _LOCKS]
    rules += [_by_word("ioctl", command, ALLOW) for command in _READS_OF_FILES]
    for kind in _OF_FILES:
        of_kind = (_is(1, kind, 0xFF00),)
        rules.append(CallRule(name="ioctl", action=refuse(errno.EPERM), arguments=of_kind))
    return rules


def _by_word(name: str, command: int, action: int) -> CallRule:
    return CallRule(name=name, action=action, arguments=(_is(1, command),))


def _shared_memory() -> list[CallRule]:
    """Return the rules of shared memory and of opening files.

    What is opened to be read, by its plain name, passes. Before Linux 6.2, Landlock lets a file be
    cut off that is not opened to be written.
    """
    rules = _refused(_SYSTEM_V, errno.EACCES)
    for index, name in ((1, "open"), (2, "openat")):
        for how, mask in ((os.O_ACCMODE, os.O_ACCMODE), (os.O_TRUNC, os.O_TRUNC | os.O_ACCMODE)):
            bits = (_is(index, how, mask),)
            rules.append(CallRule(name=name, action=refuse(errno.EACCES), arguments=bits))
    written = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    for index, name in ((1, "open"), (2, "openat")):
        folder = Argument(index=index, bits=os.O_DIRECTORY)
        rules.append(CallRule(name=name, action=ALLOW, arguments=(folder,)))
        asked = Argument(index=index, bits=written)
        rules.append(CallRule(name=name, action=ASK, arguments=(asked,)))
    rules += [CallRule(name=name, action=ASK) for name in ("link", "linkat", "unlink", "unlinkat")]
    return rules


def _processes() -> list[CallRule]:
    rules = [CallRule(name=name, action=ASK) for name in SIGNALS]
    # Whoever owns a file gets a signal when something happens to it.
    rules.append(_by_word("fcntl", F_SETOWN, ASK))
    for name, commands in _OWNER_BY_POINTER.items():
        rules += [_by_word(name, command, refuse(errno.EPERM)) for command in commands]
    for name, index in _BY_PROCESS.items():
        rules.append(CallRule(name=name, action=ALLOW, arguments=(_is(index, 0),)))
        rules.append(CallRule(name=name, action=ASK))
    # The limits of another process: only asking for them passes.
    rules.append(CallRule(name="prlimit64", action=ALLOW, arguments=(_is(0, 0),)))
    changed = (Argument(index=2, is_set=True),)
    rules.append(CallRule(name="prlimit64", action=ASK, arguments=changed))
    # Neither shows which process it means.
    rules += _refused(("pidfd_send_signal", "process_madvise"), errno.EPERM)
    return rules


def process_argument(name: str) -> int:
    """Return the index of the argument that names a process."""
    return _BY_PROCESS.get(name, 0)
