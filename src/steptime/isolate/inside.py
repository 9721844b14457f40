"""What happens in the launcher's child until it becomes the user's command.

Each function here runs after a fork, in a process that never returns to the launcher's code.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import kernel
from .guard import landlock, seccomp
from .guard.walls import Wall, rules_of
from .left.left_behind import list_left, others_in_namespace
from .overlay.devices import own_devices
from .overlay.layers import Layers, close_settings
from .surroundings import Surroundings
from .tiers import Tier

_CORES_OFF = 1  # a limit of 1 byte also keeps a dump from being piped to a program of the host
_OOM_SCORE = 300  # where memory runs out, a trial is killed before the user's other work


def run(
    plan: dict[str, Any], around: Surroundings, layers: Layers | None, writers: Sequence[int]
) -> None:
    """Finish the walls and become the command; never returns.

    Args:
        plan: what `start_contained` wrote.
        around: the command's environment and its own places.
        layers: the root to enter, if isolated.
        writers: descriptors for stdout, for stderr, for what fails, and for how it ended.
    """
    _, _, failed, status = writers
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1 and not plan["has_own_processes"]:
            os._exit(1)  # the launcher died before this line
        # Now, because an isolated child may get a /proc that it can only read.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
        if layers is not None:
            _enter_root(layers, has_own_processes=plan["has_own_processes"])
        if plan["has_own_processes"]:
            _be_first(failed, status, writers)
        _become(plan, around, writers)
    except OSError as error:
        os.write(failed, f"setup {error}".encode())
    finally:
        os._exit(127)


def _enter_root(layers: Layers, *, has_own_processes: bool) -> None:
    if has_own_processes:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("proc", f"{layers.root}/proc", "proc", flags)
        close_settings(f"{layers.root}/proc")
    os.chdir(layers.root)
    kernel.pivot_root_here()
    os.chdir("/")


def _be_first(failed: int, status: int, writers: Sequence[int]) -> None:
    """Fork the command and reap the namespace's processes; returns in the fork only."""
    pid = os.fork()
    if pid == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    for writer in writers:
        if writer != status:
            os.close(writer)
    while True:
        ended, code = os.waitpid(-1, 0)
        if ended == pid:
            left = list_left(others_in_namespace(os.getpid(), pid))
            os.write(status, json.dumps({"status": code, "left": left}).encode())
            os._exit(0)  # the kernel kills whatever is left


def _become(plan: dict[str, Any], around: Surroundings, writers: Sequence[int]) -> None:
    out, err, failed, _ = writers
    os.setsid()  # a script that signals its own group must not reach the launcher
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (min(_CORES_OFF, hard) if hard >= 0 else 1, hard))
    walls = [Wall(name) for name in plan["walls"]]
    if plan["tier"] != Tier.UNSAFE:
        _drop_capabilities()
    if plan["tier"] == Tier.GUARDED:
        devices = own_devices(share_network=plan["share_network"])
        landlock.restrict((plan["folder"], *around.folders), devices, walls)
    if walls:
        _filter_calls(walls, plan["answers"])
    os.dup2(out, 1)
    os.dup2(err, 2)
    last = os.dup(failed)  # closed by its flag when the command starts; all others close below
    os.set_inheritable(last, False)
    os.closerange(3, last)
    os.closerange(last + 1, 1 << 16)
    resource.setrlimit(resource.RLIMIT_NOFILE, plan["files_limit"])
    _limit_memory(plan["memory_bytes"])
    _reset_signals()
    os.chdir(plan["cwd"])
    try:
        _execute(plan["path"], plan["argv"], around.environment)
    except OSError as error:
        os.write(last, f"execute {error.errno}".encode())
        os._exit(127)


def _drop_capabilities() -> None:
    """Root keeps what it needs to read and to write files, and to hold memory and cores.

    With others, the command could unmount its walls, or change the machine.
    """
    if os.geteuid() == 0:
        for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
            if capability not in kernel.CAPS_KEPT:
                with contextlib.suppress(PermissionError):  # a container took that right from root
                    kernel.prctl(kernel.PR_CAPBSET_DROP, capability)


def _filter_calls(walls: Sequence[Wall], answers: int) -> None:
    """Put the filter up, and give the launcher the descriptor on which it answers."""
    # Nobody answers before the command runs, so from here on nothing may be asked.
    with socket.socket(fileno=os.dup(answers)) as door:
        listener = seccomp.install(rules_of(walls))
        if listener is not None:
            socket.send_fds(door, [b"."], [listener])
            os.close(listener)


def _limit_memory(wanted_bytes: int | None) -> None:
    """Let allocations fail beyond a limit, or beyond the one that is there already."""
    if wanted_bytes is None:
        return
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = wanted_bytes if hard == resource.RLIM_INFINITY else min(wanted_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):  # the C library keeps two for itself
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(path: str, argv: list[str], environment: Mapping[str, str]) -> None:
    try:
        os.execve(path, argv, environment)
    except OSError as error:
        if error.errno != 8:  # ENOEXEC: without a `#!` line, a shell runs the file as a script
            raise
        os.execve("/bin/sh", ("/bin/sh", path, *argv[1:]), environment)
