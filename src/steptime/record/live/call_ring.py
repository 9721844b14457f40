"""The layout of a process's record of its collectives: 64 KiB of shared memory, one file a process.

The guest writes each call before the process enters it, and marks it when the process is back. The
parent reads the file when the ranks stand still, or when a process is gone. The file is no part of
the run's folder: a disk that is full, or a server that is gone, must not reach who writes to it.
"""

from __future__ import annotations

import os
import struct
import zlib

FOLDER = "/dev/shm"

OPERATIONS: tuple[str, ...] = (
    "",
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)
"""A call holds the place of its operation's name; none is at the place 0."""

MAGIC = b"STCALLS1"
HEAD = struct.Struct("<8sii")
"""The magic, the rank, and the number of ranks."""

TEXTS_AT = 64
CALLS_AT = 24 << 10
"""Between them: lines of JSON, each the word of a table, a place in it, and what is there."""

FILE, GROUP, TYPE = "file", "group", "type"
"""The tables: the user's files, the groups with their names and ranks, the types of elements."""

NUM_CALLS = 1024
"""A power of two: the newest calls of some hundred steps, or of a few of a sharded model."""

CALL = struct.Struct("<QIIIqHHHBB4x")
"""The number of the call in the process, from 1; its number in the group, from 1; the line; the
file; the elements of its tensor, -1 where that is not known; the group; the type; the operation;
its state; whether the caller waits for it later."""

STATE_AT = 34
ENTERED, RETURNED = 0, 1

SIZE = CALLS_AT + NUM_CALLS * CALL.size


def calls_file_start(run: str) -> str:
    """Return what the names of all files of a run begin with."""
    name = os.fsencode(run)
    return f"steptime-{zlib.crc32(name):08x}{zlib.adler32(name):08x}-"


def calls_file(run: str, pid: int) -> str:
    """Return the path of a process's file.

    Args:
        run: the path of the run's folder, as the guest was given it.
        pid: id of the process.
    """
    return f"{FOLDER}/{calls_file_start(run)}{pid}"
