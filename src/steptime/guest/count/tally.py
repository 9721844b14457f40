"""Adds up the work of operators: by pass, by class, by module, by dtype.

A dispatch mode hands over each operator once it has run. In: operators with arguments, results and
times. Out: plain tables. `flops.py` knows how much work an operator is.

Modules are followed through `Module._call_impl` on the class. The work of a backward call goes to
the module whose call made its graph node: nodes are numbered in the order in which they are made.
Nothing is attached to an object of the user's.
"""

from __future__ import annotations

import sys
import weakref
from bisect import bisect_right
from collections.abc import Callable
from itertools import count
from threading import Lock, get_ident
from typing import Any

from ..hooks.module_tree import modules_of
from ..hooks.patching import drop_frame
from ..timeline.interrupts import raise_bursts
from .completeness import CompletenessProof
from .module_call import ModuleCall
from .operators.flops import OperatorWork, find_work
from .operators.fp32_precision import is_tf32
from .operators.operator_names import CLASSES, MARKS, RECURRENT
from .tensor_facts import bytes_moved, tensors_in
from .time_sums import TimeSums

FORWARD, BACKWARD, RECOMPUTED = "forward", "backward", "recomputed"
PASSES = (FORWARD, BACKWARD, RECOMPUTED)

MAX_MODULES = 100
"""This many modules are written, those with most work, so that lines stay short."""

MAX_UNCOVERED, MAX_NAME = 10, 80

TINY_NS = 20_000
"""Below this, an operator's own work takes about as long as Python and the dispatcher take to call
it."""


class Tally:
    """The work so far.

    Args:
        torch: the module.
        times: times operators on a device, where there is one (`OperatorTimes`).
        completeness: follows what the matrices of models meet (`CompletenessProof`).
        products: learns the weights of modules (`ProductBook`).
        fail: counts a failure of ours by place.
    """

    def __init__(
        self,
        torch: Any,
        times: Any = None,
        completeness: CompletenessProof | None = None,
        products: Any = None,
        fail: Callable[[str], None] = raise_bursts,
    ) -> None:
        self.torch = torch
        self.fail = fail
        self.products = products
        self.times = times
        self.completeness = completeness
        self.passes = dict.fromkeys(PASSES, 0)
        self.macs = self.masked = self.again = 0
        self.outside = [0, 0]  # in the update, and elsewhere
        self.first_node = 0  # smaller graph nodes were made before, or by other threads
        self.classes = {name: [0] * NUM_SUMS for name in CLASSES}
        self.by_dtype: dict[str, dict[str, int]] = {name: {} for name in CLASSES}
        self.groups: dict[tuple[str, str | None, bool, int], list[int]] = {}
        self.by_device: dict[Any, int] = {}
        self.time_sums = TimeSums(NUM_SUMS)
        self.uncovered: dict[str, list[int]] = {}  # num, ns
        self.names: dict[int, tuple[str, str]] = {}
        self.by_module: dict[int, dict[str, int]] = {}
        self.calls: list[ModuleCall] = []
        self.begins: list[int] = []
        self.stacks: dict[int, list[ModuleCall]] = {}
        self.recurrent: set[int] = set()
        self.original: Any = None
        self.following: Any = None
        self.num_following = 0
        self.has_guests = False  # other threads took part
        self.is_double = False  # gradients of gradients are computed
        self.clock: str | None = None  # how operators are timed: `cpu` or `wall`
        self.home: int | None = None  # the thread whose graph nodes are numbered as ours are
        self.lock = Lock()
        self._number_of_node = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)
        self._node_now = torch._C._current_autograd_node
        self._checkpoint_codes = find_checkpoint_codes()
        self._numbers: dict[int, tuple[Any, int]] = {}
        self._next_number = count()

    # -- modules

    def name_modules(self, root: Any) -> None:
        """Learn the names of a model's modules before it is called."""
        if self._number_of(root) in self.names:
            return
        first = type(root).__name__
        taken = {name for name, _ in self.names.values()}
        nth = 2
        while first in taken:
            first, nth = f"{type(root).__name__}#{nth}", nth + 1
        recurrent = (self.torch.nn.RNNBase, self.torch.nn.RNNCellBase)
        for name, module in modules_of(root):
            path = f"{first}.{name}" if name else first
            number = self._number_of(module)
            self.names.setdefault(number, (path, type(module).__name__))
            if self.completeness is not None:
                self.completeness.name(path, module)
            if self.products is not None:
                self.products.name(path, module)
            if isinstance(module, recurrent):
                self.recurrent.add(number)

    def _number_of(self, module: Any) -> int:
        """Return a module's own number: Python reuses the id of one that is gone."""
        known = self._numbers.get(id(module))
        if known is None or known[0]() is not module:
            known = self._numbers[id(module)] = (weakref.ref(module), next(self._next_number))
        return known[1]

    def follow_modules(self) -> None:
        """Note every call of a module until `unfollow_modules`, within one call frame.

        Threads may do so at the same time; the first one is at home.
        """
        with self.lock:
            self.num_following += 1
            if self.home is None:
                self.home = get_ident()
            if self.num_following == 1:
                self._wrap_calls()

    def _wrap_calls(self) -> None:
        module_class = self.torch.nn.Module
        original = self.original = module_class._call_impl

        def _call_impl(module: Any, *args: Any, **kwargs: Any) -> Any:
            call = None
            try:
                call, stack = self._begin(module)
            except BaseException:
                self.fail("modules")
            try:
                return original(module, *args, **kwargs)
            except BaseException as error:
                drop_frame(error)
                raise
            finally:
                if call is not None:
                    call.ended = self._number_of_node()
                    stack.pop()

        code = getattr(original, "__code__", None)
        if code is not None:  # a warning that names its caller then names torch's file, as always
            _call_impl.__code__ = _call_impl.__code__.replace(co_filename=code.co_filename)
        self.following = module_class._call_impl = _call_impl

    def unfollow_modules(self) -> None:
        """Put the original back, unless somebody else has replaced ours since."""
        module_class = self.torch.nn.Module
        with self.lock:
            self.num_following -= 1
            is_last = not self.num_following
        if is_last and module_class._call_impl is self.following:
            module_class._call_impl = self.original

    def _begin(self, module: Any) -> tuple[ModuleCall, list[ModuleCall]]:
        stack = self.stacks.setdefault(get_ident(), [])
        if not stack:
            self.name_modules(module)
        call = ModuleCall(
            self._number_of(module), stack[-1] if stack else None, self._number_of_node()
        )
        stack.append(call)
        if get_ident() == self.home:
            self.calls.append(call)
            self.begins.append(call.began)
        else:  # each thread numbers its own nodes, so a number does not say whose call made it
            self.has_guests = True
        return call, stack

    def call_of_node(self, number: int) -> ModuleCall | None:
        """Return the innermost call in which the graph node of this number was made."""
        if self.has_guests:
            return None
        at = bisect_right(self.begins, number) - 1
        call = self.calls[at] if at >= 0 else None
        while call is not None and call.ended <= number:
            call = call.parent
        return call

    # -- operators

    def add(self, func: Any, args: Any, kwargs: Any, result: Any, ns: int) -> tuple[list[int], ...]:
        """Count one operator that has run in `ns`; return the rows that it was added to."""
        if getattr(func, "namespace", None) == MARKS:
            return ()
        try:
            work = find_work(func, args, kwargs, result)
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError):
            work = OperatorWork("other", None)
        with self.lock:
            if self.completeness is not None:
                is_covered = work.flops is not None
                self.completeness.add(func, args, kwargs, result, is_covered=is_covered)
            return self._add(work, func, args, kwargs, result, ns)

    def _add(
        self, work: OperatorWork, func: Any, args: Any, kwargs: Any, result: Any, ns: int
    ) -> tuple[list[int], ...]:
        which, call, inner = self._place(work)
        kind = work.kind
        if call is not None and kind == "matmul" and call.key in self.recurrent:
            kind = RECURRENT
        dtype = self._dtype(args, work.kind) if work.flops else None
        moved = bytes_moved(func, args, kwargs, result)
        # Operators without a product are grouped by their size, in steps of 16.
        alike = _power_of_two(work.flops, moved) if work.flops else moved.bit_length() // 4
        key = (kind, dtype, self.times is None and ns < TINY_NS, alike)
        of_time = self.time_sums.row(func, kind, None if inner is None else inner.key)
        rows = (self.classes[kind], self.groups.setdefault(key, [0] * NUM_SUMS), of_time)
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
            device = next((one.device for one in tensors_in(list(args))), None)
            self.by_device[device] = self.by_device.get(device, 0) + work.flops
            if which == BACKWARD and call is None and not self.has_guests:
                is_before = self._node_now()._sequence_nr() < self.first_node
                self.outside[is_before] += work.flops
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

    def place_of_product(self) -> tuple[str, ModuleCall | None]:
        """Return the pass and the module call that a product which has just run belongs to."""
        return self._place(OperatorWork("matmul", 1))[:2]

    def _place(self, work: OperatorWork) -> tuple[str, ModuleCall | None, ModuleCall | None]:
        """Return the pass and the module call of an operator, and the innermost call for its time.

        The two calls differ for operators of a backward that have no work.
        """
        node = self._node_now()
        stack = self.stacks.get(get_ident())
        call = stack[-1] if stack else None
        if node is None:
            self.has_guests |= self.home not in (None, get_ident())
            return FORWARD, call, call
        made = self.call_of_node(node._sequence_nr())
        if not work.flops:  # walking frames for each of these would take longer than they do
            return BACKWARD, call, made or call
        if self._is_recomputing():
            return RECOMPUTED, call or made, call or made
        self.is_double |= self.torch.is_grad_enabled()  # as in a backward call with create_graph
        return BACKWARD, made or call, made or call

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
        """Return everything as the JSON of `Count` in measure/values/model/work.py.

        Args:
            is_executed: what ran is the program as it always runs.
            is_timed: operators really ran, so their times count.
        """
        modules = sorted(self.by_module.items(), key=lambda item: -sum(item[1].values()))
        missed = sorted(self.uncovered.items(), key=lambda item: (-item[1][1], -item[1][0]))
        at = 4 if is_timed and any(row[4] for row in self.classes.values()) else 0
        whole = sum(row[at] for row in self.classes.values())
        without = sum(row[1 if at else 0] for row in self.uncovered.values())
        completeness = None if self.completeness is None else self.completeness.table()
        on_device = self.times is not None and self.times.read(DEVICE_NS)
        largest_by = DEVICE_NS if on_device else at

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
            **(self.time_sums.tables(self.names, sums_of, largest_by) if at else {}),
            "by_dtype": self._sum_by_dtype(),
            "devices": [
                {"name": name_of_device(self.torch, one), "flops": flops}
                for one, flops in self.by_device.items()
                if one is not None
            ],
            "covered_fraction": self._covered_fraction(without, whole),
            "completeness": completeness,
            "uncovered": [name[:MAX_NAME] for name, _ in missed[:MAX_UNCOVERED]],
            "masked_flops": self.masked,
            "again_flops": self.again,
            "outside_flops": self.outside[0],
            "before_flops": self.outside[1],
            "is_double": self.is_double,
            "clock": self.clock if is_timed else None,
            "is_executed": is_executed,
        }

    def _covered_fraction(self, without: int, whole: int) -> float | None:
        """Return the covered share of the operators, or of the trained elements if that is less."""
        if not whole:
            return None
        share = 1.0 - without / whole
        met = 1.0 if self.completeness is None else self.completeness.met_fraction()
        return None if met is None else min(share, met)


def name_of_device(torch: Any, device: Any) -> str:
    """Return the name of a device's part, as the datasheets have it; else that of its kind."""
    if device.type != "cuda":
        return str(device.type)
    return str(torch.cuda.get_device_name(device))


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
