"""Does something in a forked copy of this process, as a DataLoader's worker does.

Whatever it changes (random states, caches, files that it opens) is gone with the copy. It shares
the places in files that are open already: those that are only read are put back.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

OPEN_FILES = "/proc/self/fd"


def do_apart(act: Callable[[], dict[str, Any]], *, limit_s: float) -> dict[str, Any]:
    """Return what `act` returns in a forked copy; `error` says why there is nothing.

    Args:
        act: returns what JSON can hold.
        limit_s: the copy is ended after this time [s].
    """
    return do_all_apart([act], limit_s=limit_s)[0]


def do_all_apart(
    acts: Sequence[Callable[[], dict[str, Any]]], *, limit_s: float
) -> list[dict[str, Any]]:
    """Return what each of several returns in a forked copy of its own, all at the same time."""
    before, until_s = open_files(), time.monotonic() + limit_s
    started = [start_apart(act) for act in acts]
    try:
        return [answer_of(reader, until_s) for _, reader in started]
    finally:
        for pid, reader in started:
            os.close(reader)
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        put_back(before)


def start_apart(act: Callable[[], dict[str, Any]]) -> tuple[int, int]:
    """Return the number of a forked copy that acts, and where its answer can be read."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns where there are threads
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        answer_and_leave(act, writer)
    os.close(writer)
    return pid, reader


def answer_of(reader: int, until_s: float) -> dict[str, Any]:
    """Return the answer of a copy, or an error where it is late or has ended without one."""
    text = read_until(reader, until_s)
    if text is None:
        return {"error": "time_limit"}
    return dict(json.loads(text)) if text else {"error": "ended"}


def answer_and_leave(act: Callable[[], dict[str, Any]], writer: int) -> None:
    """Write the answer and leave at once, so that nothing of the script's runs."""
    gc.disable()  # a finalizer may end what the process that goes on still uses
    try:
        try:
            answer = act()
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def read_until(reader: int, due_s: float) -> bytes | None:
    """Return all that comes until the other end closes; None where that is too late."""
    chunks: list[bytes] = []
    while (left_s := due_s - time.monotonic()) > 0:
        if select.select([reader], [], [], left_s)[0]:
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
    return None


def open_files() -> dict[int, Any]:
    """Return the files that this process has open, each with its name and the place in it.

    Where the system does not list them, there are none.
    """
    found: dict[int, Any] = {}
    for name in os.listdir(OPEN_FILES) if os.path.isdir(OPEN_FILES) else ():
        try:
            target = os.readlink(f"{OPEN_FILES}/{name}")
            place = os.lseek(int(name), 0, os.SEEK_CUR) if os.path.isfile(target) else 0
            found[int(name)] = target, place
        except OSError:
            continue  # that of the list itself
    return found


def access_of(number: int) -> int:
    """Return whether an open file is read, written or both, as `os.O_ACCMODE` has it."""
    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE


def file_condition() -> Any:
    """Return what would show that this process, a forked copy, has read or written a file.

    The place in a file that is only written says nothing: it may be the log of other processes.
    """
    files = {
        number: one if access_of(number) != os.O_WRONLY else one[0]
        for number, one in open_files().items()
    }
    return files, num_bytes_written()


def num_bytes_written() -> int | None:
    """Return how many bytes this process has written anywhere; None where Linux does not say."""
    try:
        with open("/proc/self/io") as counts:
            fields = dict(line.split(":") for line in counts)
        return int(fields["wchar"])
    except (OSError, KeyError, ValueError):
        return None


def put_back(before: dict[int, Any]) -> None:
    """Go back to where files were that are only read."""
    for number, (target, place) in open_files().items():
        was = before.get(number, (None, 0))
        if access_of(number) == os.O_RDONLY and was[0] == target and was[1] != place:
            os.lseek(number, was[1], os.SEEK_SET)
