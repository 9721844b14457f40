"""Finds the files of a process's control groups, in both versions, in a container or not.

In: the files of the kernel. Out: folders, and the quota of cores, which several modules need. The
callers read the other files themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The folders of one group, from its own up to the mounted one: each one's limit binds."""

    is_v2: bool
    folders: tuple[Path, ...]


def find_group(
    controller: str,
    *,
    v1_file: str,
    v2_file: str,
    pid: int | str = "self",
    proc: Path = _PROC,
) -> Group | None:
    """Return the process's group of a controller; None where it has none.

    Args:
        controller: its name in version 1, such as `memory`.
        v1_file, v2_file: a folder of the group must hold this file; others are left out.
        pid: the process.
        proc: the folder of the kernel's files.
    """
    for controllers, path in _groups(proc / str(pid) / "cgroup"):
        is_v2 = controllers == ""
        if not is_v2 and controller not in controllers.split(","):
            continue
        wanted = v2_file if is_v2 else v1_file
        for root, mounted in _mounts(proc / "self" / "mountinfo", None if is_v2 else controller):
            # In a container the path may be the host's; then the mount is the group itself.
            inside = os.path.relpath(path, root) if _is_below(path, root) else "."
            folder = Path(os.path.normpath(mounted / inside))
            folders = [f for f in (folder, *folder.parents) if _is_below(str(f), str(mounted))]
            found = tuple(f for f in folders if (f / wanted).is_file())
            if found:
                return Group(is_v2=is_v2, folders=found)
    return None


def read_cpu_quota(*, proc: Path = _PROC) -> float | None:
    """Return how many cores the tightest group of this process allows; None without a limit."""
    group = find_group("cpu", v1_file="cpu.cfs_quota_us", v2_file="cpu.max", proc=proc)
    if group is None:
        return None
    files = ("cpu.max",) if group.is_v2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    found = []
    for folder in group.folders:
        words = " ".join(line for file in files for line in lines_of(folder / file)).split()
        with suppress(ValueError):  # `max`
            quota, period = (float(word) for word in words)
            if quota > 0 and period > 0:  # -1 stands for no limit
                found.append(quota / period)
    return min(found, default=None)


def read_quota_periods(*, proc: Path = _PROC) -> tuple[int, int] | None:
    """Return the periods of the quota since its group began, and in how many it stopped the group.

    It is that of the group that was stopped most; None where no quota was ever counted.
    """
    group = find_group("cpu", v1_file="cpu.cfs_quota_us", v2_file="cpu.max", proc=proc)
    found = []
    for folder in () if group is None else group.folders:
        counts = dict(line.partition(" ")[::2] for line in lines_of(folder / "cpu.stat"))
        with suppress(KeyError, ValueError):
            found.append((int(counts["nr_throttled"]), int(counts["nr_periods"])))
    stopped, periods = max(found, default=(0, 0))
    return (periods, stopped) if periods else None


def _groups(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the controllers and the path of each group; version 2, without names, is last."""
    for line in sorted(lines_of(path), key=lambda line: line.split(":")[1:2] == [""]):
        parts = line.split(":", 2)
        if len(parts) == 3:
            yield parts[1], parts[2]


def _mounts(path: Path, controller: str | None) -> Iterator[tuple[str, Path]]:
    """Yield each mount's root and folder, as in proc(5); a controller of None is version 2."""
    for line in lines_of(path):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        is_wanted = kind[0] == "cgroup2" if controller is None else controller in kind[2].split(",")
        if is_wanted and kind[0].startswith("cgroup"):
            yield fields[3], Path(fields[4])


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file; none where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
