"""Adds up the work of operators: by pass, by class, by module, by dtype.

A dispatch mode hands over each operator once it has run. In: operators with arguments, results and
times. Out: plain tables. `flops.py` knows how much work an operator is.

Modules are followed through `Module._call_impl` on the class. The work of a backward call goes to
the module whose call made its graph node: nodes are numbered in the order in which they are made.
Nothing is attached to an object of the user's.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable
from threading import get_ident
from typing import Any

from ..hooks.patching import drop_frame
from .flops import OperatorWork, bytes_moved, find_work, is_view, tensors_in
from .fp32_precision import is_tf32
from .operator_names import CLASSES, RECURRENT

FORWARD, BACKWARD, RECOMPUTED = "forward", "backward", "recomputed"
PASSES = (FORWARD, BACKWARD, RECOMPUTED)

MAX_MODULES = 100
"""This many modules are written, those with most work, so that lines stay short."""

MAX_UNCOVERED, MAX_NAME = 10, 80

TINY_NS = 20_000
"""Below this, an operator's own work takes about as long as Python and the dispatcher take to call
it."""


class ModuleCall:
    """One call of a module: which module, inside which call, and the graph nodes it made."""

    __slots__ = ("began", "ended", "key", "parent")

    def __init__(self, key: int, parent: ModuleCall | None, began: int) -> None:
        self.key = key
        self.parent = parent
        self.began = began
        self.ended = sys.maxsize


class Tally:
    """The work so far.

    Args:
        torch: the module.
        times: times operators on a device, where there is one (`OperatorTimes`).
    """

    def __init__(self, torch: Any, times: Any = None) -> None:
        self.torch = torch
        self.times = times
        self.passes = dict.fromkeys(PASSES, 0)
        self.macs = self.masked = self.again = self.outside = 0
        self.classes = {name: [0] * NUM_SUMS for name in CLASSES}
        self.by_dtype: dict[str, dict[str, int]] = {name: {} for name in CLASSES}
        self.groups: dict[tuple[str, str | None, bool, int], list[int]] = {}
        self.uncovered: dict[str, list[int]] = {}  # num, ns
        self.names: dict[int, tuple[str, str]] = {}
        self.by_module: dict[int, dict[str, int]] = {}
        self.calls: list[ModuleCall] = []
        self.begins: list[int] = []
        self.stacks: dict[int, list[ModuleCall]] = {}
        self.recurrent: set[int] = set()
        self.original: Any = None
        self.following: Any = None
        self._number_of_node = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)
        self._node_now = torch._C._current_autograd_node
        self._checkpoint_codes = find_checkpoint_codes()
        self._kept: list[Any] = []  # modules, because Python reuses the id of one that is gone

    # -- modules

    def name_modules(self, root: Any) -> None:
        """Learn the names of a model's modules before it is called."""
        if id(root) in self.names:
            return
        first = type(root).__name__
        taken = {name for name, _ in self.names.values()}
        number = 2
        while first in taken:
            first, number = f"{type(root).__name__}#{number}", number + 1
        recurrent = (self.torch.nn.RNNBase, self.torch.nn.RNNCellBase)
        for name, module in root.named_modules():
            self.names.setdefault(
                id(module), (f"{first}.{name}" if name else first, type(module).__name__)
            )
            self._kept.append(module)
            if isinstance(module, recurrent):
                self.recurrent.add(id(module))

    def follow_modules(self) -> None:
        """Note every call of a module until `unfollow_modules`, within one call frame."""
        module_class = self.torch.nn.Module
        original = self.original = module_class._call_impl

        def _call_impl(module: Any, *args: Any, **kwargs: Any) -> Any:
            call, stack = self._begin(module)
            try:
                return original(module, *args, **kwargs)
            except BaseException as error:
                drop_frame(error)
                raise
            finally:
                call.ended = self._number_of_node()
                stack.pop()

        code = getattr(original, "__code__", None)
        if code is not None:  # a warning that names its caller then names torch's file, as always
            _call_impl.__code__ = _call_impl.__code__.replace(co_filename=code.co_filename)
        self.following = module_class._call_impl = _call_impl

    def unfollow_modules(self) -> None:
        """Put the original back, unless somebody else has replaced ours since."""
        module_class = self.torch.nn.Module
        if module_class._call_impl is self.following:
            module_class._call_impl = self.original

    def _begin(self, module: Any) -> tuple[ModuleCall, list[ModuleCall]]:
        stack = self.stacks.setdefault(get_ident(), [])
        if not stack:
            self.name_modules(module)
        call = ModuleCall(id(module), stack[-1] if stack else None, self._number_of_node())
        stack.append(call)
        self.calls.append(call)
        self.begins.append(call.began)
        return call, stack

    def call_of_node(self, number: int) -> ModuleCall | None:
        """Return the innermost call in which the graph node of this number was made."""
        at = bisect_right(self.begins, number) - 1
        call = self.calls[at] if at >= 0 else None
        while call is not None and call.ended <= number:
            call = call.parent
        return call

    # -- operators

    def add(self, func: Any, args: Any, kwargs: Any, result: Any, ns: int) -> tuple[list[int], ...]:
        """Count one operator that has run in `ns`; return the rows that it was added to."""
        try:
            work = find_work(func, args, kwargs, result)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            work = OperatorWork("other", None)
        which, call = self._place(work)
        kind = work.kind
        if call is not None and kind == "matmul" and call.key in self.recurrent:
            kind = RECURRENT
        dtype = self._dtype(args, work.kind) if work.flops else None
        moved = bytes_moved(func, args, kwargs, result)
        # Operators without a product are grouped by their size, in steps of 16.
        alike = _power_of_two(work.flops, moved) if work.flops else moved.bit_length() // 4
        key = (kind, dtype, self.times is None and ns < TINY_NS, alike)
        rows = (self.classes[kind], self.groups.setdefault(key, [0] * NUM_SUMS))
        for row in rows:
            row[0] += 1
            row[1] += work.flops or 0
            row[2] += work.pointwise
            row[3] += moved
            row[4] += ns
        if work.flops is None:
            missed = self.uncovered.setdefault(str(func), [0, 0])
            missed[0] += 1
            missed[1] += ns
        elif dtype is not None:
            self._add_flops(work, which, call)
            if which == BACKWARD and call is None:
                self.outside += work.flops
            sums = self.by_dtype[kind]
            sums[dtype] = sums.get(dtype, 0) + work.flops
        return rows

    def _add_flops(self, work: OperatorWork, which: str, call: ModuleCall | None) -> None:
        flops = work.flops or 0
        self.passes[which] += flops
        self.macs += work.macs
        self.masked += work.masked
        self.again += work.again
        seen = set()
        while call is not None:
            if call.key not in seen:
                seen.add(call.key)
                sums = self.by_module.setdefault(call.key, dict.fromkeys(PASSES, 0))
                sums[which] += flops
            call = call.parent

    def _place(self, work: OperatorWork) -> tuple[str, ModuleCall | None]:
        """Return the pass and the module call that an operator belongs to."""
        node = self._node_now()
        stack = self.stacks.get(get_ident())
        call = stack[-1] if stack else None
        if node is None:
            return FORWARD, call
        if not work.flops:  # walking frames for each of these would take longer than they do
            return BACKWARD, call
        if self._is_recomputing():
            return RECOMPUTED, call or self.call_of_node(node._sequence_nr())
        return BACKWARD, self.call_of_node(node._sequence_nr()) or call

    def _is_recomputing(self) -> bool:
        """Return whether a checkpoint runs its forward again, with no backward call in between."""
        recomputing, running = self._checkpoint_codes
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code in recomputing:
                return True
            if code in running:
                return False
            frame = frame.f_back
        return False

    def _dtype(self, args: Any, kind: str) -> str:
        """Return the dtype that an operator of that kind multiplies."""
        tensor = next(tensors_in(list(args)), None)
        if tensor is None:
            return "unknown"
        name = str(tensor.dtype).removeprefix("torch.")
        if name == "float32" and is_tf32(self.torch, kind, tensor.device):
            return "tf32"
        return SHORT.get(name, name)

    # -- what came of it

    def _sum_by_dtype(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for sums in self.by_dtype.values():
            for dtype, flops in sums.items():
                found[dtype] = found.get(dtype, 0) + flops
        return found

    @property
    def num(self) -> int:
        """The number of operators so far."""
        return sum(row[0] for row in self.classes.values())

    def table(self, *, is_executed: bool, is_timed: bool = True) -> dict[str, Any]:
        """Return everything as the JSON of `Count` in measure/values/work.py.

        Args:
            is_executed: what ran is the program as it always runs.
            is_timed: operators really ran, so their times count.
        """
        modules = sorted(self.by_module.items(), key=lambda item: -sum(item[1].values()))
        missed = sorted(self.uncovered.items(), key=lambda item: (-item[1][1], -item[1][0]))
        at = 4 if is_timed and any(row[4] for row in self.classes.values()) else 0
        whole = sum(row[at] for row in self.classes.values())
        without = sum(row[1 if at else 0] for row in self.uncovered.values())
        on_device = self.times is not None and self.times.read(DEVICE_NS)

        def sums_of(name: str, row: list[int]) -> dict[str, Any]:
            host_s = row[4] * 1e-9 if is_timed else None
            device_s = row[DEVICE_NS] * 1e-9 if on_device else None
            return dict(zip(COLUMNS, (name, *row[:4], host_s, device_s)))

        return {
            **self.passes,
            "macs": self.macs,
            "classes": [
                sums_of(name, row) | {"by_dtype": self.by_dtype[name]}
                for name, row in self.classes.items()
                if row[0]
            ],
            "groups": [
                sums_of(name, row) | {"dtype": dtype, "is_tiny": is_timed and is_tiny}
                for (name, dtype, is_tiny, _), row in sorted(
                    self.groups.items(), key=lambda item: -item[1][4]
                )
            ],
            "modules": [
                dict(zip(("name", "kind"), self.names.get(key, ("?", "?")))) | sums
                for key, sums in modules[:MAX_MODULES]
            ],
            "by_dtype": self._sum_by_dtype(),
            "covered_fraction": 1.0 - without / whole if whole else None,
            "uncovered": [name[:MAX_NAME] for name, _ in missed[:MAX_UNCOVERED]],
            "masked_flops": self.masked,
            "again_flops": self.again,
            "outside_flops": self.outside,
            "is_executed": is_executed,
        }


COLUMNS = (
    *("name", "num", "flops", "pointwise_flops", "moved_bytes"),
    *("time_s", "device_time_s"),
)
NUM_SUMS, DEVICE_NS = 6, 5  # of a row: all but the name, times in ns


def _power_of_two(flops: int, moved: int) -> int:
    """The arithmetic intensity, rounded down to a power of two."""
    return (flops // moved).bit_length() if moved else 0


SHORT = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
"""Types of torch by the words of a datasheet."""


def find_checkpoint_codes() -> tuple[set[Any], set[Any]]:
    """Code that runs a checkpoint's forward again, and code that starts a backward call."""
    recomputing: set[Any] = set()
    checkpoint = sys.modules.get("torch.utils.checkpoint")  # else nobody uses it
    if checkpoint is not None:
        hooks = getattr(checkpoint, "_checkpoint_hook", None)
        recomputing.update(codes_in(hooks, "__init__", "unpack_hook"))
        recomputing.update(codes_in(checkpoint, REENTRY_FREE, "recompute_fn"))
        recomputing.update(codes_of(getattr(checkpoint, "CheckpointFunction", None), "backward"))
    return recomputing, codes_of(sys.modules.get("torch.autograd.graph"), "_engine_run_backward")


REENTRY_FREE = "_checkpoint_without_reentrant_generator"


def codes_of(owner: Any, name: str) -> set[Any]:
    """Return the code of a function of that name, if there is one."""
    code = getattr(getattr(owner, name, None), "__code__", None)
    return set() if code is None else {code}


def codes_in(owner: Any, name: str, inner: str) -> set[Any]:
    """Return the code of functions called `inner` that a function of that name defines."""
    return {
        constant
        for code in codes_of(owner, name)
        for constant in code.co_consts
        if getattr(constant, "co_name", None) == inner
    }


def make_mode(
    torch: Any,
    add: Callable[[Any, Any, Any, Any, int], tuple[list[int], ...] | None],
    clock: Callable[[], int],
    *,
    decomposes: bool = False,
    takes_fakes: bool = False,
    workspaces: Any = None,
    times: Any = None,
) -> Any:
    """Return a dispatch mode that runs each operator unchanged and then reports it.

    Args:
        torch: the module.
        add: takes an operator, its positional and named arguments, its result, and its time [ns].
        clock: [ns].
        decomposes: whether composite operators are decomposed, as autograd does it; without
            gradients they arrive whole.
        takes_fakes: whether the model has shapes only. Otherwise fake tensors are torch's own: it
            tries an operator of several ranks on shapes before it runs it.
        workspaces: sees the memory that operators take for themselves (`Workspaces`), if allowed.
        times: times operators on a device (`OperatorTimes`), for the rows that `add` returns.
    """

    class OperatorCounter(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch wraps the method below, at more than its own cost

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names = [kind.__name__ for kind in types]
            if "DTensor" in names:
                return NotImplemented  # it calls again with this rank's part
            if getattr(func, "namespace", "") == "prim" or (
                "FakeTensor" in names and not takes_fakes
            ):
                return func(*args, **(kwargs or {}))
            if decomposes and getattr(func, "namespace", None) == "aten":
                with self:
                    result = func.decompose(*args, **(kwargs or {}))
                if result is not NotImplemented:
                    return result
            is_watched = workspaces is not None and workspaces.begin(func, args)
            event = None if times is None or is_view(func) else times.mark()
            try:
                began = clock()
                result = func(*args, **(kwargs or {}))
                ns = clock() - began
            finally:
                if is_watched:
                    workspaces.end()
            pair = None if event is None else (event, times.mark())
            rows = add(func, args, kwargs or {}, result, ns)
            if pair is not None and rows is not None:
                times.book(pair, tensors_in([*args, result]), rows)
            return result

    return OperatorCounter()
