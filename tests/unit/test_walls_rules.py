"""The filter's program, read as the kernel reads it, and the folders that were left."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import termios

import pytest

from steptime.isolate.guard import syscall_numbers
from steptime.isolate.guard.seccomp import ALLOW, ASK, Argument, CallRule, assemble, refuse
from steptime.isolate.guard.syscall_numbers import Processor, this_processor
from steptime.isolate.guard.walls import Wall, rules_of
from steptime.isolate.left import left_folders
from steptime.isolate.left.left_folders import hold, remove_left
from steptime.isolate.tiers import Containment, Tier

NATIVE = 0xC000003E
PROCESSOR = Processor(
    audit_arch=NATIVE,
    numbers={"socket": 41, "sendto": 44, "open": 2, "kill": 62},
    seccomp=317,
    has_second_table=True,
)


def decide(code: bytes, number: int, *arguments: int, arch: int = NATIVE) -> int:
    """What the kernel's machine returns for a call."""
    padded = [*arguments, *(0,) * (6 - len(arguments))]
    data = struct.pack("=iIQ6Q", number, arch, 0, *(value & (1 << 64) - 1 for value in padded))
    lines = list(struct.iter_unpack("=HBBI", code))
    place = accumulator = 0
    while True:
        kind, yes, no, constant = lines[place]
        place += 1
        if kind == 0x06:
            return constant
        if kind == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif kind == 0x54:
            accumulator &= constant
        else:
            tests = {
                0x15: accumulator == constant,
                0x35: accumulator >= constant,
                0x45: bool(accumulator & constant),
            }
            place += yes if tests[kind] else no


def test_the_first_rule_that_fits_decides_and_what_no_rule_names_passes():
    rules = [
        CallRule(
            name="socket",
            action=ALLOW,
            arguments=(Argument(index=0, value=2), Argument(index=1, value=1, mask=0xF)),
        ),
        CallRule(name="socket", action=refuse(1), arguments=(Argument(index=0, value=2),)),
        CallRule(name="sendto", action=ASK, arguments=(Argument(index=4, is_set=True),)),
        CallRule(name="open", action=ASK, arguments=(Argument(index=1, bits=0b11),)),
        CallRule(name="not_here", action=refuse(1)),
    ]
    code = assemble(rules, PROCESSOR)

    assert decide(code, 41, 2, 1 | socket.SOCK_CLOEXEC) == ALLOW
    assert decide(code, 41, 2, 2) == refuse(1)
    assert decide(code, 41, 1, 2) == ALLOW
    assert decide(code, 44, 3, 0, 0, 0, 0) == ALLOW
    assert decide(code, 44, 3, 0, 0, 0, 0x7F) == ASK
    assert decide(code, 44, 3, 0, 0, 0, 0x7F << 32) == ASK
    assert decide(code, 2, 0, os.O_RDONLY) == ALLOW
    assert decide(code, 2, 0, os.O_RDWR) == ASK
    assert decide(code, 999) == ALLOW


def test_other_tables_of_system_calls_are_closed():
    code = assemble([CallRule(name="kill", action=ASK)], PROCESSOR)

    assert decide(code, 62) == ASK
    assert decide(code, 62 | 1 << 30) == refuse(errno.ENOSYS)
    assert decide(code, 37, arch=0x40000003) == refuse(errno.ENOSYS)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_wall_can_be_built_for_each_processor(monkeypatch, machine):
    monkeypatch.setattr(syscall_numbers.platform, "machine", lambda: machine)
    processor = this_processor()
    code = assemble(rules_of(tuple(Wall)), processor)

    def of(name, *arguments):
        return decide(code, processor.numbers[name], *arguments, arch=processor.audit_arch)

    offline = refuse(errno.ENETUNREACH)
    assert len(code) // 8 < 4096
    assert of("socket", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) == ALLOW
    assert of("socket", socket.AF_INET, socket.SOCK_STREAM, 132) == offline  # SCTP
    assert of("socket", socket.AF_INET6, socket.SOCK_DGRAM) == offline
    assert of("socket", socket.AF_UNIX, socket.SOCK_STREAM) == ALLOW
    assert of("socket", socket.AF_UNIX, socket.SOCK_DGRAM) == refuse(errno.EACCES)
    assert of("socket", 16, socket.SOCK_RAW, 0) == ALLOW  # lists of interfaces
    assert of("socket", 17, socket.SOCK_RAW, 3) == refuse(errno.EAFNOSUPPORT)  # packets
    assert of("sendto", 3, 0, 4, 0x20000000, 1) == refuse(errno.EOPNOTSUPP)
    assert of("openat", -100, 0, os.O_RDONLY | os.O_CLOEXEC) == ALLOW
    assert of("openat", -100, 0, os.O_WRONLY | os.O_CREAT) == ASK
    assert of("shmget", 1, 4096, 0o1600) == refuse(errno.EACCES)
    assert of("setpriority", 0, 0, 5) == of("sched_setaffinity", 0) == ALLOW
    assert of("setpriority", 0, 1234, 5) == of("sched_setaffinity", 1234) == ASK
    assert of("setpriority", 2, 1000, 5) == refuse(errno.EPERM)
    assert of("prlimit64", 1234, 7, 0, 1) == ALLOW
    assert of("prlimit64", 1234, 7, 1) == ASK
    assert of("io_uring_setup") == refuse(errno.ENOSYS)
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        assert of("socketpair", socket.AF_UNIX, kind) == refuse(errno.EACCES)
        assert of("socket", socket.AF_UNIX, kind) == refuse(errno.EACCES)
    assert of("openat", -100, 0, os.O_RDONLY | os.O_TRUNC) == refuse(errno.EACCES)
    assert of("openat", -100, 0, os.O_ACCMODE) == refuse(errno.EACCES)
    assert of("openat2", -100) == refuse(errno.ENOSYS)
    assert of("fcntl", 3, fcntl.F_SETOWN, 1234) == of("fcntl", 3, fcntl.F_SETLK) == ASK
    assert of("fcntl", 3, 15) == of("fcntl", 3, fcntl.F_SETLEASE) == refuse(errno.EPERM)
    assert of("fcntl", 3, fcntl.F_SETFL) == of("fcntl", 3, fcntl.F_GETLK) == ALLOW
    assert of("ioctl", 3, 0x40087602) == refuse(errno.EPERM)  # FS_IOC_SETVERSION
    assert of("ioctl", 3, 0x80087601) == of("ioctl", 3, termios.TCGETS) == ALLOW


def test_another_processor_has_no_filter(monkeypatch):
    monkeypatch.setattr(syscall_numbers.platform, "machine", lambda: "riscv64")

    assert this_processor() is None


@pytest.mark.parametrize(
    ("containment", "walls"),
    [
        (Containment(tier=Tier.GUARDED), set(Wall)),
        (Containment(tier=Tier.GUARDED, has_own_network=True), set(Wall) - {Wall.NETWORK}),
        (
            Containment(tier=Tier.GUARDED, share_network=True),
            {Wall.MEMORY, Wall.PROCESSES, Wall.ATTRIBUTES},
        ),
        (
            Containment(tier=Tier.ISOLATED, has_own_network=True, has_own_processes=True),
            {Wall.SOCKETS},
        ),
        (Containment(tier=Tier.ISOLATED), {Wall.NETWORK, Wall.SOCKETS, Wall.PROCESSES}),
        (Containment(tier=Tier.UNSAFE), set()),
    ],
)
def test_a_filter_holds_what_a_tier_does_not(containment, walls):
    assert set(containment.walls) == walls


def test_a_folder_without_its_mark_or_with_a_lock_stays(tmp_path):
    for name in ("foreign", "held"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("kept")
    hold(str(tmp_path / "held"))
    (tmp_path / "link").symlink_to(tmp_path / "foreign")

    assert remove_left(str(tmp_path / name) for name in ("foreign", "held", "link", "none")) == 0
    assert (tmp_path / "foreign" / "file").exists()
    assert (tmp_path / "held" / "file").exists()


def left(folder, *names):
    """A folder whose launcher is gone."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("left")
    (folder / ".held").write_text("")
    return folder


def test_a_link_in_what_was_left_is_removed_and_not_followed(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    folder = left(tmp_path / "shadow", "files/a/b/c")
    (folder / "files" / "link").symlink_to(tmp_path / "kept")
    (folder / "files" / "a" / "b").chmod(0)

    assert remove_left([str(folder)]) == 1
    assert not folder.exists()
    assert (tmp_path / "kept" / "file").read_text() == "kept"


def test_a_removal_is_bounded_and_goes_on_the_next_time(tmp_path, monkeypatch):
    folders = [left(tmp_path / str(n), *(f"files/{i}" for i in range(6))) for n in range(3)]
    monkeypatch.setattr(left_folders, "_MAX_ENTRIES", 10)

    gone = [remove_left(map(str, folders)) for _ in range(4)]

    assert gone[0] == 1
    assert sum(gone) == 3
    assert not any(folder.exists() for folder in folders)
