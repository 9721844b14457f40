"""The numbers of the system calls that a filter asks about, by processor.

Sources: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux. Both
processors store the low half of a number first, which `seccomp.py` relies on.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

_X86, _ARM = "x86_64", "aarch64"

# Name: its number on x86-64, and on ARM 64. None: there is no such call.
_NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    "open": (2, None),
    "openat": (257, 56),
    "link": (86, None),
    "linkat": (265, 37),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "open_by_handle_at": (304, 265),
    "openat2": (437, 437),
    "fcntl": (72, 25),
    "flock": (73, 32),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "ioctl": (16, 29),
    "getsockname": (51, 204),
    "shmget": (29, 194),
    "shmctl": (31, 195),
    "shmat": (30, 196),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "prlimit64": (302, 261),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "process_madvise": (440, 440),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "truncate": (76, 45),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """What a filter must know of a processor.

    Attributes:
        audit_arch: how the kernel names its kind of system calls.
        numbers: of the calls that it has, by name.
        seccomp: the number of the call that installs a filter.
        has_second_table: the same processor knows a second set of calls, from bit 30 on.
    """

    audit_arch: int
    numbers: Mapping[str, int]
    seccomp: int
    has_second_table: bool = False


def this_processor() -> Processor | None:
    """Return the processor of this machine; None if its numbers are not known here."""
    machine = platform.machine()
    if machine not in (_X86, _ARM):
        return None
    column = (_X86, _ARM).index(machine)
    numbers = {name: row[column] for name, row in _NUMBERS.items()}
    return Processor(
        audit_arch=(0xC000003E, 0xC00000B7)[column],
        numbers={name: number for name, number in numbers.items() if number is not None},
        seccomp=(317, 277)[column],
        has_second_table=machine == _X86,
    )
