"""Counts the operators of one early eager update, and their work, under a dispatch mode.

The mode is entered and left within one call frame, around the outermost call of a model and around
a backward call, and it passes each operator on unchanged. Where it might not leave the training as
it is, nothing is counted, and one word says why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from json import dumps
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any

from ....record import kinds
from ...hooks.patching import drop_frame
from ...memory.storages import Storages
from ...watchers.inputs import Shapes
from ..completeness import CompletenessProof
from ..counting_mode import UNKNOWN, leave_mode, make_mode
from ..first_look import FirstLook
from ..tally import TINY_NS, Tally
from .attention_calls import AttentionCalls
from .operator_names import IDLE
from .operator_times import operator_times

PROBE_AT = 12
"""The update that is probed: after the first window of walked frames and before the second, when
states and caches are there, and early enough for short runs to reach it."""

MAX_NODES = 50_000
"""A larger graph is not searched: that would take longer than the step."""

COMPILERS = ("torch._inductor.compile_fx", "torch._dynamo.backends.debugging")
"""Imported once `torch.compile` is called; dynamo alone says nothing, as optimizers import it."""

INEXACT = (
    *("ProdBackward", "CumprodBackward", "MaskedFillBackward1", "Linalg", "CtcLoss"),
    *("MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0", "EmbeddingBag"),
    "CheckpointFunctionBackward",
)
"""While any dispatch mode is on, torch computes these or their gradients by another formula
(`isTensorSubclassLike` in its C++ code), so the last bits may differ. `prod` and `masked_fill` do
differ; the others are left out as a precaution, and so is what a reentrant checkpoint hides."""


CLOCKS: Mapping[str, Callable[[], int]] = {"cpu": thread_time_ns, "wall": perf_counter_ns}


class OperatorProbe:
    """The operators of one update of the thread that steps, and of threads that only call models.

    Args:
        torch: the module.
        fail: counts a failure of ours by place.
        clocks: [ns], by name. Where torch has one thread, it is CPU time of that thread, because
            an operator that lost its core is not large. A thread that waits for others sleeps, so
            with more threads it is wall time.
        completeness: follows what the matrices of models meet, over all updates that are counted.
    """

    def __init__(
        self,
        torch: Any,
        fail: Callable[[str], None],
        clocks: Mapping[str, Callable[[], int]] = CLOCKS,
        completeness: CompletenessProof | None = None,
    ) -> None:
        self.torch = torch
        self.completeness = completeness
        self.fail = fail
        self.clocks = clocks
        self.thread = get_ident()
        self.tally: Tally | None = None
        self.uncounted: str | None = (
            None  # why the work is unknown although the operators are known
        )
        self.durations: list[int] = []
        self.missing: str | None = None
        self.is_scouting = False  # the update before the probed one: only its graph is searched
        self.open_threads: set[int] = set()
        self.open_modes: dict[int, Tally] = {}
        self.is_done = False
        self.has_guests = False  # a part of the graph was made by another thread, or before
        self.first_node = 0
        self.num_nodes = 0  # nodes of the update's graphs, up to its last backward call
        self.used_nodes: set[int] = set()  # those that its backward calls ran through
        autograd = getattr(torch, "autograd", None)
        self._next_node = getattr(autograd, "_get_sequence_nr", lambda: 0)
        self.storages: Storages | None = None  # set where the storages of the update are followed
        self.is_like_others = False  # an update that is counted to see whether nothing changes
        self.dispatch_code: Any = None
        self.shapes = Shapes(torch)
        self.attention: AttentionCalls | None = None  # in the first counted update
        self.look: FirstLook | None = None  # likewise

    def begin(self, *, is_scouting: bool) -> None:
        """Scout or count the update that begins here."""
        self.is_scouting = is_scouting
        if not (is_scouting or self.is_done):
            self._follow_attention()
        self.first_node = self._next_node()
        self.num_nodes = 0
        self.used_nodes = set()

    @property
    def is_worth_following(self) -> bool:
        """Whether an update begins that is counted, and whose storages may show something new."""
        return not (self.is_scouting or self.is_like_others)

    @property
    def is_open(self) -> bool:
        """Whether the calling thread is inside our mode."""
        return get_ident() in self.open_threads

    def pass_plain(self) -> None:
        """Note that a call without gradients is not counted, so the count would be partial."""
        if not self.is_scouting:
            self.uncounted = "without_gradients"

    def run(
        self,
        disturb: Callable[[], None],
        function: Any,
        args: Any,
        kwargs: Any,
        *,
        is_call: bool,
    ) -> Any:
        """Run a backward call, or the outermost call of the model `args[0]`."""
        if is_call:
            self._see_shapes(args, kwargs)
        mode = self._enter(disturb, args, kwargs, is_call=is_call)
        completeness = self.completeness if is_call and mode is not None else None
        try:
            if completeness is not None:
                completeness.see_inputs((*args[1:], *kwargs.values()))
            result = function(*args, **kwargs)
            if completeness is not None:
                completeness.see_results((result,))
            return result
        except BaseException as error:
            self._drop_ours(error, mode)
            raise
        finally:
            self._leave(mode)

    def follow(self, phase: str, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a loss or an optimizer's step: follow its storages without counting its work."""
        mode = self._enter_following(phase)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            self._drop_ours(error, mode)
            raise
        finally:
            self._leave(mode)

    def line(self, num_updates: int) -> str:
        """Return the line on operators, or why there is none, and the one on attention.

        The probe is over with it.
        """
        self.is_done = True
        attention, self.attention = self.attention, None
        look, self.look = self.look, None
        facts: dict[str, Any] = {"k": kinds.OPERATORS, "n": num_updates}
        if self.missing is not None or not self.durations:
            return dumps(facts | {"missing": self.missing or "too_few_updates"}) + "\n"
        tiny = [ns for ns in self.durations if ns < TINY_NS]
        facts |= {"num": len(self.durations), "num_tiny": len(tiny), "tiny_ns": sum(tiny)}
        if self.num_nodes and not self.has_guests:
            facts |= {"nodes": self.num_nodes, "nodes_used": len(self.used_nodes)}
        facts |= {"large_ns": sum(self.durations) - sum(tiny)}
        line = dumps(facts | (look.facts() if look is not None else {})) + "\n"
        return line if attention is None else line + attention.line(num_updates)

    def take(self) -> tuple[Tally | None, str | None]:
        """Return what was counted since the last call, or why it may not be; or neither."""
        tally, self.tally = self.tally, None
        missing, self.uncounted = self.missing or self.uncounted, None
        return tally if tally is not None and tally.num else None, missing

    def table_of(self, tally: Tally) -> dict[str, Any]:
        """Return the work that a tally holds, as a line has it."""
        return tally.table(is_executed=not is_compiling_at_all())

    def _see_shapes(self, args: Any, kwargs: Any) -> None:
        try:
            if not self.is_open:
                values = (*args[1:], *kwargs.values())
                self.shapes.see(values, is_second=not self.is_scouting)
        except BaseException:
            self.fail("shapes")

    # -- the mode

    def _enter(self, disturb: Callable[[], None], args: Any, kwargs: Any, *, is_call: bool) -> Any:
        """Return the mode, entered; None if nothing may be counted here."""
        if self.is_open or self.missing or (is_call and self.is_scouting):
            return None
        try:
            self.missing = self._why_not()
            if self.missing is not None:
                return None
            disturb()
            why_not = self._why_not_call if is_call else self._why_not_graph
            self.missing = why_not(args, kwargs)
            if self.missing is not None or self.is_scouting:
                return None
            mode, tally = self._make_mode()
            if self.storages is not None and get_ident() == self.thread:
                self.storages.open("forward" if is_call else "backward", tally)
            if self.attention is not None and is_call:
                self.attention.open()
            tally.follow_modules()
            try:
                mode.__enter__()
            except BaseException:
                tally.unfollow_modules()
                raise
            self.open_threads.add(get_ident())
            self.open_modes[id(mode)] = tally
            return mode
        except BaseException:
            self.fail("operators")
            self.missing = "failed"
            return None

    def _leave(self, mode: Any) -> None:
        if mode is None:
            return
        try:
            self.open_threads.discard(get_ident())
            if (tally := self.open_modes.pop(id(mode), None)) is not None:
                tally.unfollow_modules()
            if self.attention is not None:
                self.attention.close()
            leave_mode(self.torch, mode)
            if mode.foreign:
                self.missing = "failed" if UNKNOWN in mode.foreign else "subclass"
        except BaseException:
            self.fail("operators")

    def _enter_following(self, phase: str) -> Any:
        """Return a mode for `storages` alone, entered; None where none may be entered."""
        try:
            if self.storages is None or self.is_open or self.missing or self._why_not() is not None:
                return None
            follow, workspaces = self._follow_operator, self.storages.workspaces
            mode = make_mode(self.torch, follow, lambda: 0, workspaces=workspaces)
            self.dispatch_code = type(mode).__torch_dispatch__.__code__
            self.storages.open(phase)
            mode.__enter__()
            self.open_threads.add(get_ident())
            return mode
        except BaseException:
            self.fail("operators")
            return None

    def _follow_operator(self, func: Any, args: Any, kwargs: Any, result: Any, ns: int = 0) -> None:
        if self.storages is not None and get_ident() == self.thread:
            try:
                self.storages.add(func, args, kwargs, result)
            except BaseException:
                self.fail("storages")
                self.storages = None

    def _follow_attention(self) -> None:
        try:
            self.attention = AttentionCalls(self.torch, self.fail)
            self.look = FirstLook(self.torch)
        except BaseException:
            self.fail("attention")

    def _see_attention(self, func: Any, args: Any, result: Any) -> None:
        if self.attention is not None and self.attention.wrapped:
            try:
                self.attention.see_operator(func, args, result)
            except BaseException:
                self.fail("attention")
                self.attention.weights.clear()

    def _look_at(self, func: Any, args: Any, ns: int, tally: Tally) -> None:
        if self.look is not None and get_ident() == self.thread:
            try:
                self.look.see(func, args, ns, tally)
            except BaseException:
                self.fail("look")
                self.look = None

    def _make_mode(self) -> tuple[Any, Tally]:
        durations, fail, see_attention = self.durations, self.fail, self._see_attention
        if self.tally is None:
            self.tally = Tally(
                self.torch, operator_times(self.torch), self.completeness, fail=self.fail
            )
            self.tally.first_node = self.first_node
            self.tally.clock = "cpu" if self.torch.get_num_threads() == 1 else "wall"
        tally, follow = self.tally, self._follow_operator

        def add(func: Any, args: Any, kwargs: Any, result: Any, ns: int) -> Any:
            try:
                if getattr(func, "namespace", None) not in IDLE:
                    durations.append(ns)
                see_attention(func, args, result)
                self._look_at(func, args, ns, tally)
                follow(func, args, kwargs, result)
                return tally.add(func, args, kwargs, result, ns)
            except BaseException:
                fail("count")
                self.uncounted = "failed"

        is_followed = self.storages is not None and get_ident() == self.thread
        workspaces = self.storages.workspaces if is_followed and self.storages else None
        clock = self.clocks[tally.clock or "cpu"]
        mode = make_mode(self.torch, add, clock, workspaces=workspaces, times=tally.times)
        self.dispatch_code = type(mode).__torch_dispatch__.__code__
        return mode, tally

    def _drop_ours(self, error: BaseException, mode: Any) -> None:
        """Take the caller's frame and the frames of a mode out of a traceback."""
        try:
            if mode is not None:
                self._drop_dispatch(error)
            drop_frame(error)
        except BaseException:
            self.fail("traceback")

    def _drop_dispatch(self, error: BaseException) -> None:
        """Take the mode's frames and torch's frames right behind them out of a traceback."""
        before, entry, is_ours = None, error.__traceback__, False
        while entry is not None:
            code = entry.tb_frame.f_code
            is_ours = code is self.dispatch_code or (
                is_ours and code.co_filename == self.torch._ops.__file__
            )
            if is_ours and before is not None:
                before.tb_next = entry.tb_next
            else:
                before = entry
            entry = entry.tb_next

    # -- where it may not be

    def _why_not(self) -> str | None:
        """Return a reason that now holds for the whole thread."""
        torch, of_c = self.torch, self.torch._C
        if torch.compiler.is_compiling() or of_c._get_tracing_state() is not None:
            return "compiled"
        if is_compiling_at_all():
            return "compiled"
        if of_c._len_torch_dispatch_stack() or of_c._len_torch_function_stack():
            return "mode_active"
        if of_c._are_functorch_transforms_active() or of_c._autograd._profiler_enabled():
            return "mode_active"
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return "captured"
        return None

    def _why_not_call(self, args: Any, kwargs: Any) -> str | None:
        """Return a reason in the model or its inputs; `args[0]` is the model."""
        torch = self.torch
        pending, seen = [args[0]], set()
        while pending:
            part = pending.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if issubclass(type(part), torch.jit.ScriptModule):
                return "compiled"
            if part.__dict__.get("_compiled_call_impl") is not None or is_compiled(part):
                return "compiled"
            for held in ("_parameters", "_buffers"):
                if not all(map(self.is_plain, part.__dict__[held].values())):
                    return "subclass"
            pending += [child for child in part.__dict__["_modules"].values() if child is not None]
        return None if self._are_plain((*args[1:], *kwargs.values()), 3) else "subclass"

    def _are_plain(self, values: Iterable[Any], depth: int) -> bool:
        for value in values:
            if type(value) in (list, tuple, dict) and depth:
                inner = value.values() if type(value) is dict else value
                if not self._are_plain(inner, depth - 1):
                    return False
            elif not self.is_plain(value):
                return False
        return True

    def is_plain(self, value: Any) -> bool:
        """Return whether a value is no tensor, or a tensor with a storage of its own."""
        torch, kind = self.torch, type(value)
        if not issubclass(kind, torch.Tensor):
            return True
        if kind.__name__ == "DTensor":  # its operators come again, with this rank's plain part
            return bool(self.is_plain(value._local_tensor))
        plain = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor))
        return kind in plain and value.layout == torch.strided and not value.is_nested

    def _why_not_graph(self, args: Any, kwargs: Any) -> str | None:
        """Return a reason in the graph that a backward call will run through."""
        named = kwargs.get("tensors", kwargs.get("outputs"))
        given = args[0] if args else named
        roots = given if isinstance(given, (list, tuple)) else (given,)
        if given is None or not roots:
            return "inexact"  # passed by a name that we do not read
        if not self._are_plain(roots, 1):
            return "subclass"
        pending = [root.grad_fn for root in roots]
        seen: dict[int, Any] = {}
        numbers: set[int] = set()
        ours = range(self.first_node, self._next_node())
        while pending:
            node = pending.pop()
            if node is None or id(node) in seen:
                continue
            seen[id(node)] = node  # kept alive, because Python reuses the id of a node that is gone
            name = type(node).__name__
            if name.startswith(INEXACT) or len(seen) > MAX_NODES:
                return "inexact"
            if name.startswith("NllLoss") and node._saved_weight is not None:
                return "inexact"  # with smoothed labels: a sum of another length
            if name != "AccumulateGrad":
                number = node._sequence_nr()
                self.has_guests |= number not in ours or number in numbers
                numbers.add(number)
            pending += [following for following, _ in node.next_functions]
        self.num_nodes = len(ours)
        self.used_nodes.update(number for number in numbers if number in ours)
        return None


def is_compiling_at_all() -> bool:
    """Return whether the script calls `torch.compile`."""
    return any(name in sys.modules for name in COMPILERS)


def is_compiled(module: Any) -> bool:
    """Return whether `torch.compile` returned it; dynamo is not imported to find out."""
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and issubclass(type(module), dynamo.OptimizedModule)


TAKE_TENSORS = (OperatorProbe.run, OperatorProbe._enter)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
