"""Builds the root that an isolated child sees: every disk under a layer in memory.

It runs in the launcher, inside a user and mount namespace of its own. An unprivileged overlay
cannot cover a folder that has other mounts inside it (the kernel locks them to it), so such a
folder is rebuilt in memory, entry by entry, down to where no mounts are left.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from steptime.isolate import kernel

from .devices import own_devices
from .mounts import PSEUDO, MountLine, has_mount_beneath, mount_of, visible_mounts

_MAX_OVERLAYS = 2000  # 0.3 ms each: thousands of mounts would cost a trial seconds
_OTHER_DESCRIPTORS = 100  # each overlay keeps two open; these are for everything else
_MAX_OVERLAYS_HERE = 1000  # in one folder, so that others get theirs too
_MAX_COPIED_BYTES = 1 << 20  # a file beside mounts is copied into memory up to this size
_MAX_PREPARED = 1000  # folders of other users that are searched for writable ones
_KERNELS_OWN = ("/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One folder of the user's: as it is (`lower`) and what was written over it (`upper`).

    Both are descriptors, so they can be read when the child's root is gone. With `is_rebuilt`,
    `upper` holds the whole folder and not only the changes: `begun` has what it held at first.
    `begun_ns` is when the child could begin: other programs change `lower` from then on, too.
    """

    place: str
    lower: int
    upper: int
    is_rebuilt: bool = False
    begun: dict[str, os.stat_result] = field(default_factory=dict)
    begun_ns: int | None = None


@dataclass(slots=True, kw_only=True)
class Layers:
    """The root that is being built; `memory` is where the tmpfs is mounted."""

    memory: str
    folder: str
    mounts: Mapping[str, MountLine]
    made: list[Layer] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    read_only: list[str] = field(default_factory=list)
    """Folders beyond the number of possible overlays."""
    share_network: bool = False
    num_overlays: int = 0
    max_overlays: int = _MAX_OVERLAYS

    @property
    def root(self) -> str:
        """The new root, as a path in the old one."""
        return f"{self.memory}/tree"


def build_root(
    folder: str, layer_bytes: int, *, has_own_network: bool, share_network: bool
) -> Layers:
    """Mount everything for the new root except /proc; the caller makes it the root.

    Args:
        folder: the only place that is really writable.
        layer_bytes: how much may be written elsewhere, in memory.
        has_own_network: whether this host's name must lead to the loopback.
        share_network: whether devices of the network are shown.

    Raises:
        OSError: something that isolation needs cannot be mounted.
    """
    mounts = visible_mounts()
    real = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("steptime", folder, "tmpfs", flags, f"size={layer_bytes},mode=755")
    max_overlays = min(_MAX_OVERLAYS, (_raise_limit() - _OTHER_DESCRIPTORS) // 2)
    layers = Layers(
        memory=f"/proc/self/fd/{_open_folder(folder)}",
        folder=folder,
        mounts=mounts,
        share_network=share_network,
        max_overlays=max_overlays,
    )
    os.mkdir(layers.root)
    kernel.mount(layers.root, layers.root, None, kernel.MS_BIND)
    _rebuild(layers, "/")
    if has_own_network:
        _name_loopback(layers)
    kernel.mount(f"/proc/self/fd/{real}", layers.root + folder, None, kernel.MS_BIND)
    os.close(real)
    _note_the_beginning(layers)
    return layers


def _note_the_beginning(layers: Layers) -> None:
    """Note what each rebuilt folder holds before the child begins: only that can tell its changes.

    The folder outside is no measure: other programs write there meanwhile.
    """
    begun_ns = time.time_ns()
    for index, layer in enumerate(layers.made):
        begun: dict[str, os.stat_result] = {}
        for name in os.listdir(layer.upper) if layer.is_rebuilt else ():
            with contextlib.suppress(OSError):
                begun[name] = os.stat(name, dir_fd=layer.upper, follow_symlinks=False)
        layers.made[index] = replace(layer, begun=begun, begun_ns=begun_ns)


def _raise_limit() -> int:
    """Raise this process's limit on open files; the command gets the original limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MAX_OVERLAYS + _OTHER_DESCRIPTORS
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _rebuild(layers: Layers, place: str) -> None:
    """Fill a folder of the new root entry by entry, because its original has mounts inside it."""
    target = layers.root + place
    _copy_attributes(place, target)
    upper = _open_folder(target)
    layers.made.append(Layer(place=place, lower=_open_folder(place), upper=upper, is_rebuilt=True))
    with os.scandir(place) as entries:
        found = sorted(entries, key=lambda entry: (not _leads_to(layers, entry.path), entry.name))
    before, read_only = layers.num_overlays, len(layers.read_only)
    for entry in found:
        path = entry.path
        with contextlib.suppress(FileNotFoundError):  # removed in the meantime
            if entry.is_symlink():
                os.symlink(os.readlink(path), layers.root + path)
            elif entry.is_dir(follow_symlinks=False):
                os.mkdir(layers.root + path)
                is_full = layers.num_overlays - before >= _MAX_OVERLAYS_HERE
                _add_folder(layers, path, is_full=is_full)
            else:
                _add_file(layers, path)
    if (num := len(layers.read_only) - read_only) > 0:
        layers.reasons.append(
            f"{num} folders in {place}, such as {layers.read_only[read_only]}, can be read but not "
            "written: they lie beside mounts, and there are too many of them"
        )


def _leads_to(layers: Layers, place: str) -> bool:
    return f"{layers.folder}/".startswith(f"{place}/")


def _add_folder(layers: Layers, place: str, *, is_full: bool = False) -> None:
    if place in _KERNELS_OWN:
        _KERNELS_FOLDERS[place](layers)
        return
    if place == layers.folder:
        return  # bound at the end
    mount = mount_of(place, layers.mounts)
    beneath = has_mount_beneath(place, layers.mounts)
    is_closed = not os.access(place, os.X_OK | os.R_OK)
    if mount.kind in PSEUDO or is_closed or (mount.is_read_only and not beneath):
        _bind(layers, place)
        kernel.make_read_only(layers.root + place)
    elif beneath:
        _rebuild(layers, place)
    elif is_full or layers.num_overlays >= layers.max_overlays:
        _bind(layers, place)
        kernel.make_read_only(layers.root + place)
        layers.read_only.append(place)
    else:
        _overlay(layers, place)


def _overlay(layers: Layers, place: str) -> None:
    """Put a folder in memory over one that has no mounts inside it."""
    number = layers.num_overlays
    layers.num_overlays += 1
    upper, work = f"{layers.memory}/upper-{number}", f"{layers.memory}/aside-{number}"
    os.mkdir(upper)
    os.mkdir(work)
    _copy_attributes(place, upper)
    lower = _open_folder(place)
    _prepare(layers, place, lower, upper)
    # Descriptors instead of names: a path may contain commas and colons, which separate options.
    options = f"lowerdir=/proc/self/fd/{lower},upperdir={upper},workdir={work},userxattr"
    try:
        kernel.mount("steptime", layers.root + place, "overlay", 0, options)
    except OSError as error:
        os.close(lower)
        shutil.rmtree(upper)
        _bind_read_only(layers, place, str(error))
        return
    layers.made.append(Layer(place=place, lower=lower, upper=_open_folder(upper)))


def _prepare(layers: Layers, place: str, lower: int, upper: str) -> None:
    """Make folders of other users ours in the layer, where the kernel cannot.

    The kernel copies a folder into the layer before the first write in it. That fails where the
    folder's owner has no number in this namespace: nothing could be written in /data/me under
    root's /data.
    """
    known = _known_owners()
    if known is None:
        return
    # First the way to the child's folder, however much lies beside it: the script works there.
    way = os.path.relpath(layers.folder, place).split("/") if _leads_to(layers, place) else []
    with contextlib.suppress(OSError):
        for depth in range(1, len(way)):
            _make_ours(lower, upper, "/" + "/".join(way[:depth]), known)
    pending, num = [""], 0
    while pending and num < _MAX_PREPARED:
        inside = pending.pop(0)
        with contextlib.suppress(OSError), os.scandir(f"/proc/self/fd/{lower}/{inside}") as found:
            for entry in found:
                num += 1
                if not entry.is_dir(follow_symlinks=False):
                    continue
                path = f"{inside}/{entry.name}"
                if path.count("/") <= 3 and _make_ours(lower, upper, path, known):
                    pending.append(path)


def _make_ours(lower: int, upper: str, path: str, known: tuple[set[int], set[int]]) -> bool:
    """Make a folder in the layer if it is another user's and can be entered; say whether it is."""
    facts = os.stat(f"/proc/self/fd/{lower}{path}")
    if facts.st_uid in known[0] and facts.st_gid in known[1]:
        return False  # ours: the kernel copies it and everything in it
    if not os.access(f"/proc/self/fd/{lower}{path}", os.X_OK):
        return False
    if not os.path.isdir(upper + path):
        os.mkdir(upper + path)
        os.chmod(upper + path, stat.S_IMODE(facts.st_mode))
    return True


def _known_owners() -> tuple[set[int], set[int]] | None:
    """Return the users and groups that have a number here; None if all have one."""
    with open("/proc/self/uid_map") as file:
        num_users = sum(int(line.split()[2]) for line in file)
    if num_users > 1:
        return None
    found = []
    for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
        with open(f"/proc/sys/kernel/overflow{kind}") as file:
            # Whoever has no number here seems to be nobody: nobody does not know what is his.
            found.append({own} - {int(file.read())})
    return found[0], found[1]


def _bind(layers: Layers, place: str) -> None:
    """Show a folder or a file as it is, with everything mounted in it."""
    kernel.mount(place, layers.root + place, None, kernel.MS_BIND | kernel.MS_REC)


def _bind_read_only(layers: Layers, place: str, why: str) -> None:
    _bind(layers, place)
    kernel.make_read_only(layers.root + place)
    layers.reasons.append(f"{place} can be read but not written: {why}")


def _add_file(layers: Layers, place: str) -> None:
    """Add a file beside mounts, or one that is itself a mount, as /etc/hosts in a container."""
    facts = os.lstat(place)
    target = layers.root + place
    is_small = stat.S_ISREG(facts.st_mode) and facts.st_size <= _MAX_COPIED_BYTES
    if is_small and os.access(place, os.R_OK):
        shutil.copy2(place, target)
        _copy_owner(facts, target)
        return
    if not stat.S_ISREG(facts.st_mode):
        # A pipe or a socket of its own: through the original it would reach another program.
        is_way = stat.S_ISFIFO(facts.st_mode) or stat.S_ISSOCK(facts.st_mode)
        os.mknod(target, facts.st_mode if is_way else stat.S_IFREG)
        _copy_owner(facts, target)
        return
    _show(layers, place)


def _show(layers: Layers, place: str) -> None:
    """Show a file or a device as it is; what is written to a device goes there."""
    with open(layers.root + place, "xb"):
        pass
    _bind(layers, place)
    kernel.make_read_only(layers.root + place, has_devices=place.startswith("/dev/"))


def _copy_attributes(place: str, target: str) -> None:
    facts = os.stat(place)
    _copy_owner(facts, target)
    os.chmod(target, stat.S_IMODE(facts.st_mode))


def _copy_owner(facts: os.stat_result, target: str) -> None:
    with contextlib.suppress(OSError):  # it belongs to a user without a number here
        os.chown(target, facts.st_uid, facts.st_gid)


def _add_devices(layers: Layers) -> None:
    """Add a /dev with the child's devices, where no file can be created.

    Shared memory and terminals are its own.
    """
    made = f"{layers.root}/dev"
    kernel.mount("dev", made, "tmpfs", kernel.MS_NOSUID, "size=64k,mode=755")
    for entry in os.scandir("/dev"):
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), f"{made}/{entry.name}")
    for place in own_devices(share_network=layers.share_network):
        if os.path.isdir(place):
            os.mkdir(layers.root + place)
            _bind(layers, place)
            kernel.make_read_only(layers.root + place, has_devices=True)
        else:
            _show(layers, place)
    shared = "/dev/shm"
    if os.path.isdir(shared) and not os.path.islink(shared):
        facts = os.statvfs(shared)
        size = max(facts.f_blocks * facts.f_frsize, 1 << 26)
        os.mkdir(layers.root + shared)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("shm", layers.root + shared, "tmpfs", flags, f"size={size},mode=1777")
        _add_staged(layers, shared)
    for name, kind, options in (
        ("mqueue", "mqueue", ""),
        ("pts", "devpts", "ptmxmode=666,mode=620"),
    ):
        if os.path.isdir(f"/dev/{name}"):
            os.mkdir(f"{made}/{name}")
            with contextlib.suppress(OSError):  # then there are none
                kernel.mount(kind, f"{made}/{name}", kind, kernel.MS_NOSUID, options)
    with contextlib.suppress(FileExistsError):  # some machines have the same link
        os.symlink("pts/ptmx", f"{made}/ptmx")
    kernel.make_read_only(made, recursive=False, has_devices=True)


def _add_staged(layers: Layers, shared: str) -> None:
    """Show folders in shared memory: they are data that somebody put there for speed."""
    with os.scandir(shared) as entries:
        names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    for name in names:
        place = f"{shared}/{name}"
        os.mkdir(layers.root + place)
        _add_folder(layers, place)


def _add_processes(layers: Layers) -> None:
    """Add /proc read-only; the caller mounts a new one over it where it can."""
    _bind(layers, "/proc")
    kernel.make_read_only(f"{layers.root}/proc")


def close_settings(proc: str) -> None:
    """Make read-only what is the machine's in a new /proc, and leave what is its processes'.

    Root could change the machine there without any further right.
    """
    with os.scandir(proc) as entries:
        for entry in entries:
            if not entry.name.isdigit() and not entry.is_symlink():
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode) or facts.st_mode & 0o222:
                    kernel.mount(entry.path, entry.path, None, kernel.MS_BIND)
                    kernel.make_read_only(entry.path)


def _add_system(layers: Layers) -> None:
    """Add /sys read-only: root could change the machine's settings there."""
    _bind(layers, "/sys")
    kernel.make_read_only(f"{layers.root}/sys")


_KERNELS_FOLDERS = {"/proc": _add_processes, "/sys": _add_system, "/dev": _add_devices}


def _name_loopback(layers: Layers) -> None:
    """Let this host's own name lead to the loopback, which is the only network there."""
    hosts = "/etc/hosts"
    if not os.path.exists(layers.root + hosts) or os.path.islink(hosts):
        return
    copy = f"{layers.memory}/hosts"
    with open(hosts, errors="surrogateescape") as file:
        lines = file.read()
    name = os.uname().nodename
    with open(copy, "w", errors="surrogateescape") as file:
        file.write(f"127.0.0.1 localhost {name}\n{lines}")
    kernel.mount(copy, layers.root + hosts, None, kernel.MS_BIND)
