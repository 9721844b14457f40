"""Waits for other processes: bytes from a pipe or a socket, the end of a process, Ray's objects.

Only the main thread is timed, since others wait while the training goes on; only what may block;
and nothing inside another marker, such as a loader's wait for its workers.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import connection, process
from threading import get_ident, main_thread
from time import perf_counter_ns
from typing import Any

from ...record.buckets import NUM_BUCKETS, PROCESS_WAIT
from ..timeline.acts import LEAVE
from ..watchers.awaited_processes import AwaitedProcesses, Facts, describe, peers_of
from .context import Context
from .patching import drop_hidden, hidden, put

RAY = ("get", "wait")
Awaited = Callable[[Any, Any], tuple[object, Callable[[], list[Facts]]] | None]
"""Takes a call's object and arguments; returns what names the other end, and how to look it up.
None: the call does not block."""


def hook_waits(context: Context, targets: dict[str, Callable[[Any], None]]) -> None:
    """Time the calls that wait for other processes."""
    book = AwaitedProcesses(context.recorder)
    context.recorder.watchers.append(book)
    calls: tuple[tuple[Any, tuple[str, ...], Awaited], ...] = (
        (getattr(connection, "Connection", None), ("_recv_bytes",), of_connection),
        (getattr(connection, "Connection", None), ("_poll",), of_poll),
        (socket.socket, ("recv", "recv_into"), of_socket),
        (subprocess.Popen, ("wait", "communicate"), of_command),
        (process.BaseProcess, ("join",), of_child),
    )
    for owner, names, awaited in calls:
        for name in names:
            if owner is not None and callable(getattr(owner, name, None)):
                put(owner, name, waiting(context, book, getattr(owner, name), awaited))

    def hook_ray(ray: Any) -> None:
        for name in RAY:
            original = getattr(ray, name, None)
            if callable(original):
                put(ray, name, waiting(context, book, original, of_ray))

    module = sys.modules.get("ray")
    if module is None:
        targets.setdefault("ray", hook_ray)
    else:
        context.guarded("waits", hook_ray, module)


def waiting(context: Context, book: AwaitedProcesses, original: Any, awaited: Awaited) -> Any:
    """Return a function that times a call which waits for another process."""
    main, local, guarded = main_thread().ident, context.local, context.guarded
    recorder = context.recorder

    @hidden
    def wait(*args: Any, **kwargs: Any) -> Any:
        try:
            if get_ident() != main or context.is_worker or recorder.is_closed:
                return original(*args, **kwargs)
            if 0 < local.journal.top < NUM_BUCKETS:
                return original(*args, **kwargs)
            found = find(context, awaited, args, kwargs)
            if found is None:
                return original(*args, **kwargs)
            journal, began = local.journal, perf_counter_ns()
            outer = journal.top
            guarded("waits", journal.note, PROCESS_WAIT, PROCESS_WAIT)
            try:
                return original(*args, **kwargs)
            finally:
                guarded("waits", journal.note, LEAVE, outer)
                guarded("waits", book.add, found[0], perf_counter_ns() - began, found[1])
        except BaseException as error:
            drop_hidden(error)
            raise

    return functools.update_wrapper(wait, original)


def find(context: Context, awaited: Awaited, args: Any, kwargs: Any) -> Any:
    """Return what is waited for; None where the call does not block, or we fail."""
    try:
        return awaited(args, kwargs)
    except (OSError, TypeError, ValueError):  # it is closed: the call says so itself
        return None
    except BaseException:
        context.recorder.fail("waits")
        return None


def of_descriptor(fd: int) -> tuple[object, Callable[[], list[Facts]]]:
    """Return what names a pipe or a socket as long as it exists."""
    return os.fstat(fd).st_ino, functools.partial(peers_of, fd)


def of_connection(args: Any, kwargs: Any) -> Any:
    """Return the other end of a connection, which every queue of multiprocessing has."""
    return of_descriptor(args[0]._handle)


def of_poll(args: Any, kwargs: Any) -> Any:
    """Return the same for a look that may wait."""
    timeout = args[1] if len(args) > 1 else kwargs.get("timeout", 0.0)
    return of_descriptor(args[0]._handle) if timeout is None or timeout > 0 else None


def of_socket(args: Any, kwargs: Any) -> Any:
    """Return the other end of a socket that blocks."""
    return None if args[0].gettimeout() == 0 else of_descriptor(args[0].fileno())


def of_command(args: Any, kwargs: Any) -> Any:
    """Return a command that was started."""
    pid = args[0].pid
    return ("pid", pid), lambda: [describe(pid)]


def of_child(args: Any, kwargs: Any) -> Any:
    """Return a child that multiprocessing started."""
    pid, name = args[0].pid, args[0].name
    return None if pid is None else (("pid", pid), lambda: [describe(pid, name)])


def of_ray(args: Any, kwargs: Any) -> Any:
    """Return Ray, whose processes are not known one by one."""
    return "ray", lambda: [{"pid": None, "command": None, "name": "Ray"}]
