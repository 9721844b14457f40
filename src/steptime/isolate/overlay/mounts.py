"""What is mounted in this namespace.

In: /proc/self/mountinfo. Out: the visible mounts, by their place. `layers` does the mounting.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# File systems that hold nobody's files, or cannot be under an overlay.
PSEUDO = frozenset(
    (
        *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts"),
        *("devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore"),
        *("rpc_pipefs", "securityfs", "selinuxfs", "smackfs", "sysfs", "tracefs"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountLine:
    """One line of mountinfo."""

    number: int
    place: str
    kind: str
    is_read_only: bool


def parse_mountinfo(text: str) -> tuple[MountLine, ...]:
    """Return the mounts in the order in which they were made."""
    found = []
    for line in text.splitlines():
        front, _, back = line.partition(" - ")
        fields, (kind, _source, super_options) = front.split(" "), back.split(" ")[:3]
        options = {*fields[5].split(","), *super_options.split(",")}
        found.append(
            MountLine(
                number=int(fields[0]),
                place=_unescape(fields[4]),
                kind=kind,
                is_read_only="ro" in options,
            )
        )
    return tuple(found)


def _unescape(place: str) -> str:
    """Decode blanks, tabs, newlines and backslashes: a backslash and three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), place)


def visible_mounts() -> dict[str, MountLine]:
    """Return the mounts that a path leads to, by place; later mounts hide others."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return {mount.place: mount for mount in parse_mountinfo(text) if _is_seen(mount)}


def _is_seen(mount: MountLine) -> bool:
    with contextlib.suppress(OSError):
        descriptor = os.open(mount.place, os.O_PATH | os.O_CLOEXEC)
        try:
            info = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
        finally:
            os.close(descriptor)
        match = re.search(r"^mnt_id:\s*(\d+)", info, re.MULTILINE)
        return match is not None and int(match.group(1)) == mount.number
    return False


def mount_of(place: str, mounts: Mapping[str, MountLine]) -> MountLine:
    """Return the mount that a path is on; `mounts` has one at the root."""
    while place not in mounts and place != "/":
        place = os.path.dirname(place)
    return mounts[place]


def has_mount_beneath(place: str, places: Iterable[str]) -> bool:
    """Return whether something else is mounted inside that folder."""
    inside = place.rstrip("/") + "/"
    return any(other.startswith(inside) and other != place for other in places)
