"""The disks, the mounts, and the file system of the data.

In: the kernel's files. Out: `Disk`, `Mount` and `DataFolder` values. Only the file system of the
data folder is asked anything: one on a network that is gone would never answer.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path, PurePath

from steptime.machine._files import (
    KernelFiles,
    link_name,
    names_in,
    read_int,
    read_lines,
    read_text,
)
from steptime.machine.values.inventory_values import DataFolder, Disk, Mount

MAX_MOUNTS = 64
"""How many are kept; hundreds come from containers, whose mounts show the same disks."""

_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|lustre|ceph|fuse\.(?!overlay).*|gpfs|beegfs|glusterfs|9p|"
    r"virtiofs|afs|wekafs|pvfs2|orangefs|daos"
)
_NO_DATA = re.compile(
    r"proc|sysfs|devtmpfs|devpts|cgroup2?|mqueue|debugfs|tracefs|securityfs|pstore|bpf|configfs|"
    r"fusectl|hugetlbfs|binfmt_misc|autofs|rpc_pipefs|nsfs|efivarfs|ramfs|squashfs|nfsd|selinuxfs|"
    r"fuse\.(lxcfs|snapfuse|portal|gvfsd-fuse)"
)
_VIRTUAL = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
_SYSTEM = re.compile(r"/(proc|sys|dev(?!/shm))(/.*)?")
_SECTOR_BYTES = 512  # the unit of /sys/block/*/size, whatever the disk's own sector is


def read_mounts(kernel: KernelFiles) -> tuple[Mount, ...]:
    """Return all mounts that data could be on, in the order of mounting."""
    found = []
    for line in read_lines(kernel.proc / "self" / "mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 2 or _NO_DATA.fullmatch(kind[0]):
            continue
        folder = _unescape(fields[4])
        if _SYSTEM.fullmatch(folder):
            continue
        found.append(
            Mount(
                folder=folder,
                kind=kind[0],
                source=_unescape(kind[1]),
                is_network=bool(_NETWORK.fullmatch(kind[0])),
                disks=_disks_under(fields[2], kernel.sys),
            )
        )
    return tuple(found)


def find_mount(folder: PurePath, mounts: tuple[Mount, ...]) -> Mount | None:
    """Return a folder's mount: the longest match and, of equal ones, the last, which hides."""
    path = str(folder)
    found = [m for m in mounts if path == m.folder or path.startswith(m.folder.rstrip("/") + "/")]
    longest = max((len(m.folder) for m in found), default=0)
    return next((m for m in reversed(found) if len(m.folder) == longest), None)


def read_data_folder(folder: Path, mounts: tuple[Mount, ...]) -> DataFolder:
    """Return the folder with its file system; the space is None where it is unknown."""
    real = Path(os.path.realpath(folder))
    mount = find_mount(real, mounts)
    try:
        status = os.statvfs(real)
    except OSError:
        return DataFolder(folder=str(real), mount=mount)
    unit = status.f_frsize
    return DataFolder(
        folder=str(real),
        mount=mount,
        total_bytes=unit * status.f_blocks,
        free_bytes=unit * status.f_bavail,
    )


def read_disks(kernel: KernelFiles) -> tuple[Disk, ...]:
    """Return the disks, without those made from others (loop, md, dm).

    A virtual disk claims to be rotational, whatever it is made of.
    """
    folder = kernel.sys / "block"
    found = []
    for name in names_in(folder):
        sectors = read_int(folder / name / "size")
        if name.startswith(_VIRTUAL) or not sectors:
            continue
        here = folder / name
        transport = _transport(here, name)
        rotational = None if transport == "virtio" else read_int(here / "queue" / "rotational")
        found.append(
            Disk(
                name=name,
                size_bytes=sectors * _SECTOR_BYTES,
                model=read_text(here / "device" / "model"),
                transport=transport,
                is_rotational=None if rotational is None else bool(rotational),
            )
        )
    return tuple(found)


def _transport(folder: Path, name: str) -> str | None:
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith("mmcblk"):
        return "mmc"
    return link_name(folder / "device" / "subsystem")


def _disks_under(number: str, sys_folder: Path) -> tuple[str, ...]:
    """Return the disks below a device, by its `major:minor`, through partitions and dm stacks."""
    with suppress(OSError, ValueError):
        return tuple(sorted(_below((sys_folder / "dev" / "block" / number).resolve(strict=True))))
    return ()


def _below(device: Path, depth: int = 0) -> set[str]:
    slaves = names_in(device / "slaves")
    if slaves and depth < 8:  # a stack of RAID, encryption and volumes has three levels
        roots = (device / "slaves" / name for name in slaves)
        return set().union(*(_below(root.resolve(), depth + 1) for root in roots))
    is_partition = (device / "partition").exists()
    return {device.parent.name if is_partition else device.name}


def _unescape(text: str) -> str:
    """Return the path with its blanks, which mountinfo writes as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), text)
