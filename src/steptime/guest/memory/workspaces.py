"""What an operator on the CPU takes for itself and gives back before it returns.

Torch's allocator tells a profiler about each allocation in its thread. The profiler used here
writes nothing, needs no library, and is on for single operators only: then every free belongs to an
allocation it has seen. Torch would print a message about any other free.
"""

from __future__ import annotations

from typing import Any

from ..count.tensor_facts import tensors_in
from ..timeline.interrupts import let_through

MIN_BYTES = 4096
MIN_FRACTION = 0.002
"""Operators on less than this, or on less than this share of what stays, take next to nothing;
watching them would make tiny operators seem longer."""

RESIZING = ("resize", "set_", ".out", "_out")
"""Operators that may free a storage that was there before."""


class Workspaces:
    """Watches single operators; `taken` is the most that the last one took besides its results.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self.taken = 0
        self.min_bytes = MIN_BYTES
        self.is_off = False
        try:
            profiler, autograd = torch._C._profiler, torch._C._autograd
            self._config = profiler.ProfilerConfig(
                profiler.ProfilerState.CPU,
                False,
                True,
                False,
                False,
                False,
                profiler._ExperimentalConfig(),
            )
            self._options = autograd._ProfilerDisableOptions(True, True)
            self._enable = autograd._enable_profiler_legacy
            self._disable = autograd._disable_profiler_legacy
        except (AttributeError, TypeError):
            self.is_off = True  # another release of torch

    def expect(self, held_bytes: int) -> None:
        """Set how much stays from step to step; what is small next to it is not watched."""
        self.min_bytes = max(MIN_BYTES, round(MIN_FRACTION * held_bytes))

    def begin(self, func: Any, args: Any) -> bool:
        """Begin an operator; return whether it is watched; not after a failure of ours."""
        try:
            return self._begin(func, args)
        except BaseException as error:
            let_through(error)
            self.is_off = True
            return False

    def _begin(self, func: Any, args: Any) -> bool:
        name = str(func)  # `aten.add.Tensor`
        if self.is_off or not name.startswith("aten.") or any(w in name for w in RESIZING):
            return False
        sizes = (one.numel() * one.element_size() for one in tensors_in(list(args)))
        if sum(sizes) < self.min_bytes:
            return False
        self._enable(self._config)
        return True

    def end(self) -> None:
        """End an operator that has run or raised."""
        try:
            self._end()
        except BaseException as error:
            let_through(error)
            self.is_off = True

    def _end(self) -> None:
        found = self._disable(self._options)
        held = peak = 0
        for events in found:
            for event in events:
                if event.kind() == "memory_alloc":
                    held += event.cpu_memory_usage()
                    peak = max(peak, held)
        self.taken = max(0, peak - max(0, held))
