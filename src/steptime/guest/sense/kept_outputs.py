"""Outputs of a model that an evaluation keeps: how many are alive at once, and their bytes.

Only the outermost calls of an evaluation are seen. A storage is followed by a weak reference, so
that nothing lives longer; a copy on another device is another storage, and is not known.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

MIN_ALIVE = 8
"""Outputs of fewer batches may wait in a script's variables."""

MIN_EACH = 16 << 10
"""Bytes: of smaller ones, an evaluation keeps no memory that counts."""

MIN_BYTES = 64 << 20
"""Bytes in all from which on they are told."""

MAX_KNOWN = 4096


class OutputWatch:
    """The outputs of the evaluation that runs; what is told is that of the largest one."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.known: dict[int, tuple[Any, int, tuple[int, ...]]] = {}
        self.number = -1  # updates that had ended when the evaluation began
        self.num_calls = self.due = 0
        self.found: dict[str, Any] | None = None

    def see_call(self, module: Any, given: Iterable[Any], result: Any, number: int) -> None:
        """Take what an outermost call returned; `given` are its arguments."""
        if self.torch._C._len_torch_function_stack():
            return  # a mode of the script's would see it
        if number != self.number:
            self.number, self.num_calls, self.due = number, 0, MIN_ALIVE
            self.known.clear()
        self.num_calls += 1
        if len(self.known) < MAX_KNOWN:
            self._follow(given, result)
        if self.num_calls >= self.due:
            self._count(module)

    def _follow(self, given: Iterable[Any], result: Any) -> None:
        made = max(self._tensors_in(result), key=lambda one: int(one.nbytes), default=None)
        if made is None or made.nbytes < MIN_EACH:
            return
        storage = made.untyped_storage()
        inputs = (self._tensors_in(one) for one in given)
        if all(one.untyped_storage()._cdata != storage._cdata for own in inputs for one in own):
            entry = weakref.ref(storage), storage.nbytes(), tuple(made.shape)
            self.known[storage._cdata] = entry

    def _tensors_in(self, value: Any) -> Iterator[Any]:
        """Yield the plain tensors that a value is, or holds as a sequence or a dictionary."""
        torch = self.torch
        if isinstance(value, dict):
            values: Iterable[Any] = dict.values(value)
        else:
            values = value if type(value) in (tuple, list) else (value,)
        for one in values:
            is_plain = type(one) is torch.Tensor and one.layout is torch.strided
            if is_plain and one.device.type != "meta":
                yield one

    def _count(self, module: Any) -> None:
        self.due = self.num_calls + max(MIN_ALIVE // 2, self.num_calls // 8)
        self.known = {key: one for key, one in self.known.items() if one[0]() is not None}
        num, total = len(self.known), sum(one[1] for one in self.known.values())
        if num < max(MIN_ALIVE, self.num_calls // 2) or total < MIN_BYTES:
            return
        if self.found is None or total > self.found["bytes"]:
            shape = next(iter(self.known.values()))[2]
            name = type(module).__name__
            self.found = {"model": name, "num": num, "bytes": total, "shape": shape}
