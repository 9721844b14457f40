"""Writes each collective that is called from Python into shared memory, before it is entered.

Nobody can ask a rank that hangs, and torch's own record cannot be read with its lines from inside:
to name them it imports the compiler. So the operation, the size, the type, the group and the line
of the newest calls are in a small file of shared memory, which outlives the process and which the
parent reads. No descriptor is kept, and the memory is allocated before it is mapped: a disk that is
full must not reach the training. `record.call_ring` has the layout.
"""

from __future__ import annotations

import os
import sys
from json import dumps
from typing import Any, NamedTuple

from ...record.live.call_ring import (
    CALL,
    CALLS_AT,
    ENTERED,
    FILE,
    GROUP,
    HEAD,
    MAGIC,
    NUM_CALLS,
    RETURNED,
    SIZE,
    STATE_AT,
    TEXTS_AT,
    TYPE,
    calls_file,
)
from ..sites.file_owners import USERS, FileOwners

MAX_FRAMES = 12
"""Frames between a collective and the user's line; a library that calls from deeper has none."""

MAX_TABLE = 1000
_READ_WRITE, _SHARED = 3, 1  # PROT_READ | PROT_WRITE and MAP_SHARED of mmap(2)
_MASK, _CALL_BYTES, _pack, _getframe = NUM_CALLS - 1, CALL.size, CALL.pack_into, sys._getframe
_TENSORS = ("tensor", "input_tensor", "input", "output")


class Arguments(NamedTuple):
    """Where a collective takes its tensor and its group; a place of 99 is in no call.

    `is_sent` says that it is between two ranks: the others of the group do not count it.
    """

    tensor: int
    tensor_name: str
    group: int
    is_sent: bool = False


def find_arguments(function: Any) -> Arguments:
    """Return where a collective of torch's takes its tensor and its group."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    name = next((one for one in _TENSORS if one in names), "")
    return Arguments(
        tensor=names.index(name) if name else 99,
        tensor_name=name,
        group=names.index("group") if "group" in names else 99,
        is_sent=function.__name__ in ("send", "recv"),
    )


class CallRecord:
    """The record of this process; `begin` and `end` are called around each collective.

    `largest` is the most elements that a call had since somebody set it to zero.
    """

    def __init__(self, torch: Any, run: str, places: FileOwners) -> None:
        self.distributed = torch.distributed
        self.kinds = (torch.Tensor, torch.nn.Parameter)
        self.num_modes = torch._C._len_torch_function_stack
        self.tracing = torch._C._get_tracing_state
        self.run = run
        self.places = places
        self.is_wanted = True
        self.reset()

    def reset(self) -> None:
        """Start from nothing: this is a new process, or a forked child."""
        self.block: Any = None
        self.is_off = not self.is_wanted
        self.num_calls = self.largest = 0
        self.numbers: list[int] = [0]  # calls so far, by group
        self.sent: list[int] = [0]  # the same of those between two ranks
        self.groups: dict[str, int] = {}
        self.world: int = 0
        self.files: dict[str, int] = {}
        self.types: dict[Any, int] = {}
        self.text_at = TEXTS_AT

    def switch_off(self) -> None:
        """Write nothing in this process and its children."""
        self.is_wanted, self.is_off = False, True

    def begin(self, operation: int, where: Arguments, args: Any, kwargs: Any) -> int:
        """Write a call that is about to be entered; return its place, or 0 if it is left out.

        It is called by the wrapper, whose caller's line is the line of the call.
        """
        block = self.block
        if block is None and (self.is_off or (block := self.open()) is None):
            return 0
        num = len(args)
        group = args[where.group] if num > where.group else kwargs.get("group")
        index = self.world if group is None else self.find_group(group)
        if not index:
            return 0
        tensor = args[where.tensor] if num > where.tensor else kwargs.get(where.tensor_name)
        elements, kind = -1, 0
        if type(tensor) in self.kinds and not self.num_modes() and self.tracing() is None:
            elements = tensor.numel()
            if elements > self.largest:
                self.largest = elements
            dtype = tensor.dtype
            kind = self.types.get(dtype) or self.add_type(dtype)
        counts = self.sent if where.is_sent else self.numbers
        number = counts[index] = counts[index] + 1
        file, line = self.find_line(_getframe(2))
        serial = self.num_calls = self.num_calls + 1
        place = CALLS_AT + (serial & _MASK) * _CALL_BYTES
        later = 1 if kwargs and kwargs.get("async_op") else 0
        # fmt: off
        _pack(
            block, place, serial, number, line, file, elements, index, kind, operation,
            ENTERED, later,
        )
        # fmt: on
        return place

    def end(self, place: int) -> None:
        """Mark a call that the process is back from."""
        self.block[place + STATE_AT] = RETURNED

    def find_line(self, frame: Any) -> tuple[int, int]:
        """Return the file's place and the line of the innermost frame of the user's."""
        files = self.files
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            name = frame.f_code.co_filename
            file = files.get(name)
            if file is None:
                file = self.add_file(name)
            if file:
                return file, frame.f_lineno or 0
            frame = frame.f_back
        return 0, 0

    # -- rare: what is seen for the first time

    def open(self) -> Any:
        """Make the file and map it; return the memory, None where that is not possible."""
        self.is_off = True
        try:
            address = map_file(calls_file(self.run, os.getpid()))
        except OSError:
            return None
        import ctypes

        block = (ctypes.c_ubyte * SIZE).from_address(address)
        distributed = self.distributed
        HEAD.pack_into(
            block, 0, MAGIC, int(distributed.get_rank()), int(distributed.get_world_size())
        )
        self.block = block
        self.world = self.find_group(distributed.distributed_c10d._get_default_group())
        self.is_off = False
        return block

    def find_group(self, group: Any) -> int:
        """Return the place of a group in its table; 0 for one that this rank is not in."""
        name = getattr(group, "group_name", None)
        if not isinstance(name, str):
            return 0
        index = self.groups.get(name)
        if index is None:
            ranks = [int(rank) for rank in self.distributed.get_process_group_ranks(group)]
            index = self.add(GROUP, len(self.groups) + 1, name[:100], ranks)
            self.groups[name] = index
            if index:
                self.numbers.append(0)
                self.sent.append(0)
        return index

    def add_file(self, name: str) -> int:
        """Return the place of a file that was not seen before; 0 for one that is not the user's."""
        if self.places.owner(name) != USERS:
            if not name.startswith("<"):
                self.files[name] = 0
            return 0
        num = sum(map(bool, self.files.values()))
        index = self.files[name] = self.add(FILE, num + 1, os.path.abspath(name))
        return index

    def add_type(self, dtype: Any) -> int:
        """Return the place of a type that was not seen before."""
        name = str(dtype).removeprefix("torch.")
        index = self.types[dtype] = self.add(TYPE, len(self.types) + 1, name)
        return index

    def add(self, table: str, index: int, *values: Any) -> int:
        """Add a line to the texts; return its place in the table, or 0 if there is no room."""
        text = (dumps([table, index, *values]) + "\n").encode()
        end = self.text_at + len(text)
        if end > CALLS_AT or index > MAX_TABLE:
            return 0
        self.block[self.text_at : end] = text
        self.text_at = end
        return index


def make_call_record(torch: Any, run: str, places: FileOwners) -> CallRecord | None:
    """Return the record of this process; None where torch has no collectives."""
    return CallRecord(torch, run, places) if torch.distributed.is_available() else None


def map_file(path: str) -> int:
    """Make a file of shared memory; return the address of its memory in this process.

    Raises:
        OSError: it cannot be made, or there is no memory for it.
    """
    import ctypes

    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, SIZE)  # writing to it must never find the memory full
        call = ctypes.CDLL(None, use_errno=True).mmap
        call.restype = ctypes.c_void_p
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        address = call(None, SIZE, _READ_WRITE, _SHARED, descriptor, 0)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap failed")
        return int(address)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
