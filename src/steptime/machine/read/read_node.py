"""Reads the smaller facts of a node: room for processes, caches, peer memory, switches.

In: the kernel's files and the variables of this shell. Out: values of `node_facts`.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from steptime.core.devices.control_groups import find_group
from steptime.machine._files import KernelFiles, names_in, read_int, read_lines, read_text
from steptime.machine.storage import find_mount
from steptime.machine.values.inventory_values import Mount
from steptime.machine.values.node_facts import (
    CacheFolder,
    Fabric,
    PeerMemory,
    ProcessRoom,
)

_NO_LIMIT = 1 << 60  # version 1 writes a number near 2**63 for "no limit"
_MAX_PROCESSES = 50_000
_NVIDIA, _BRIDGE = "0x10de", "0x0680"  # an NVSwitch is an "other bridge" of NVIDIA's
_MANAGER = "nv-fabricmanager"
_COMM = 15  # the kernel keeps so many characters of a program's name
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")


# -- processes and threads


def read_room(kernel: KernelFiles, *, user: int) -> ProcessRoom:
    """Return how many processes and threads are allowed, and how many there are.

    Args:
        kernel: the kernel's files.
        user: number of the user who trains.
    """
    limit, used = _group_room(kernel)
    own = _user_threads(kernel, user)
    # The kernel does not hold root to its own limit of processes.
    return ProcessRoom(
        group_limit=limit,
        group_used=used,
        user_limit=None if user == 0 else _soft_processes(),
        user_used=own,
    )


def _group_room(kernel: KernelFiles) -> tuple[int | None, int | None]:
    """Return limit and count of the group with the least room; both versions name the files so."""
    group = find_group("pids", v1_file="pids.max", v2_file="pids.max", proc=kernel.proc)
    rooms = []
    for folder in group.folders if group is not None else ():
        limit, used = read_int(folder / "pids.max"), read_int(folder / "pids.current")
        if limit is not None and limit < _NO_LIMIT:
            rooms.append((limit - (used or 0), limit, used))
    return min(rooms)[1:] if rooms else (None, None)


def _soft_processes() -> int | None:
    with suppress(AttributeError, OSError, ValueError):
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        return None if soft in (resource.RLIM_INFINITY, -1) else soft
    return None


def _user_threads(kernel: KernelFiles, user: int) -> int | None:
    """Return the threads of a user; None where processes of others are hidden or too many."""
    names = [name for name in names_in(kernel.proc) if name.isdecimal()]
    if "1" not in names or len(names) > _MAX_PROCESSES:
        return None
    total = 0
    for name in names:
        owner, threads = _owner_and_threads(kernel.proc / name)
        total += threads if owner == user else 0
    return total


def _owner_and_threads(folder: Path) -> tuple[int | None, int]:
    owner, threads = None, 1
    for line in read_lines(folder / "status"):
        name, _, rest = line.partition(":")
        with suppress(ValueError, IndexError):
            if name == "Uid":
                owner = int(rest.split()[0])
            elif name == "Threads":
                threads = int(rest)
    return owner, threads


def owner_of(kernel: KernelFiles, pid: int) -> int | None:
    """Return the user of a process; None where it cannot be seen."""
    return _owner_and_threads(kernel.proc / str(pid))[0]


# -- caches


def read_caches(
    environment: Mapping[str, str], mounts: tuple[Mount, ...], *, user: str
) -> tuple[CacheFolder, ...]:
    """Return where libraries keep what they compiled or downloaded, with the file system.

    Args:
        environment: of the shell that trains.
        mounts: of the machine.
        user: name of the user, which is in the default of `torch.compile`.
    """
    home = environment.get("HOME") or "/"
    cache = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    temporary = environment.get("TMPDIR") or "/tmp"
    triton = environment.get("TRITON_HOME") or home
    # The defaults are those of the libraries' own documentation.
    defaults = (
        ("torch.compile", "TORCHINDUCTOR_CACHE_DIR", f"{temporary}/torchinductor_{user}"),
        ("triton", "TRITON_CACHE_DIR", f"{triton}/.triton/cache"),
        ("cuda", "CUDA_CACHE_PATH", f"{home}/.nv/ComputeCache"),
        ("extensions", "TORCH_EXTENSIONS_DIR", f"{cache}/torch_extensions"),
        ("hugging face", "HF_HOME", f"{cache}/huggingface"),
    )
    found = []
    for library, variable, default in defaults:
        folder = environment.get(variable) or default
        mount = find_mount(Path(os.path.realpath(folder)), mounts)
        found.append(
            CacheFolder(
                library=library,
                variable=variable,
                folder=folder,
                kind=None if mount is None else mount.kind,
                is_network=mount is not None and mount.is_network,
            )
        )
    return tuple(found)


# -- peer memory, switches


def read_peer_memory(kernel: KernelFiles, *, release: str | None) -> PeerMemory | None:
    """Return what lets RDMA reach a GPU's memory; None where modules are not listed.

    Args:
        kernel: the kernel's files.
        release: of the kernel.
    """
    lines = read_lines(kernel.proc / "modules")
    if not lines:
        return None
    names = {line.split(" ", 1)[0] for line in lines}
    version = read_text(kernel.proc / "driver" / "nvidia" / "version")
    numbers = re.match(r"(\d+)\.(\d+)", release or "")
    return PeerMemory(
        module=next((name for name in _PEER_MODULES if name in names), None),
        is_open_driver=None if version is None else "Open Kernel Module" in version,
        kernel=tuple(int(part) for part in numbers.groups()) if numbers else (),
    )


def read_fabric(kernel: KernelFiles, *, is_container: bool) -> Fabric | None:
    """Return the NVSwitches and whether their service runs; None without a list of devices.

    Args:
        kernel: the kernel's files.
        is_container: the service runs on the host, whose processes are not seen here.
    """
    folder = kernel.sys / "bus" / "pci" / "devices"
    if not folder.is_dir():
        return None
    switches = sum(_is_switch(folder / name) for name in names_in(folder))
    if not switches or is_container:
        return Fabric(num_switches=switches)
    names = [name for name in names_in(kernel.proc) if name.isdecimal()]
    if "1" not in names or len(names) > _MAX_PROCESSES:
        return Fabric(num_switches=switches)
    wanted = (_MANAGER, _MANAGER[:_COMM])
    runs = any(read_text(kernel.proc / name / "comm") in wanted for name in names)
    return Fabric(num_switches=switches, is_managed=runs)


def _is_switch(folder: Path) -> bool:
    kind = read_text(folder / "class") or ""
    return kind.startswith(_BRIDGE) and read_text(folder / "vendor") == _NVIDIA


def has_irqbalance(kernel: KernelFiles) -> bool | None:
    """Return whether irqbalance runs; None where processes of others cannot be seen."""
    names = [name for name in names_in(kernel.proc) if name.isdecimal()]
    if "1" not in names or len(names) > _MAX_PROCESSES:
        return None
    return any(read_text(kernel.proc / name / "comm") == "irqbalance" for name in names)


def own_user() -> tuple[int, str]:
    """Return number and name of the user."""
    user = os.getuid()
    with suppress(KeyError, ImportError):
        import pwd

        return user, pwd.getpwuid(user).pw_name
    return user, os.environ.get("USER") or str(user)
