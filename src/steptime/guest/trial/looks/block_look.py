"""Measures the repeated blocks of a model in some early calls of a trial: bytes kept, and seconds.

In: outermost calls of models. Out: a `BlockFacts` of levers/base.py for each block that is called
once in each call. Three kinds of calls are looked at, each apart so that no measure disturbs
another: what autograd saves, how long blocks take, and how long their operators take under a
dispatch mode. The mode stays out where torch computes other bits under one (`INEXACT`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns, thread_time_ns
from typing import Any

from ...count.counting_mode import leave_mode, make_mode
from ...count.operators.operator_probe import INEXACT, is_compiling_at_all
from ...count.tensor_facts import is_view, tensors_in
from ...memory.holdings import tensors_within
from ..trial_plan import lever_tool

BYTES, SECONDS, OPERATORS = "bytes", "seconds", "operators"

PASSES = (None, None, None, None, BYTES, SECONDS, SECONDS, OPERATORS, OPERATORS)
"""What is looked at in which call of a model. The first calls are cold, and are looked into for
attention; of two times the shorter one counts."""

MIN_BLOCKS = 4
"""As the levers on blocks have it."""

MAX_NODES = 20_000
"""Of a graph that is searched for operators that a mode would change."""


class SeenBlock:
    """What was measured of one block so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_calls = self.kept_bytes = self.input_bytes = 0
        self.ns: int | None = None
        self.operators: dict[str, list[Any]] = {}  # ns, bytes of results, calls, may be kept
        self.is_strange = False

    def describe(self) -> dict[str, Any]:
        """Return a `BlockFacts`."""
        rows = {} if self.is_strange else self.operators
        return {
            "name": self.name,
            "kept_bytes": self.kept_bytes,
            "input_bytes": self.input_bytes,
            "forward_s": (self.ns or 0) / 1e9,
            "operators": [
                {
                    "name": name,
                    "seconds": ns / 1e9,
                    "result_bytes": size,
                    "num": num,
                    "can_keep": can_keep,
                }
                for name, (ns, size, num, can_keep) in rows.items()
            ],
        }


class BlockLook:
    """What was found so far; `fail` counts a failure of ours by place."""

    def __init__(self, torch: Any, fail: Callable[[str], None]) -> None:
        self.torch = torch
        self.fail = fail
        self.models: weakref.WeakKeyDictionary[Any, ModelBlocks] = weakref.WeakKeyDictionary()
        self.measured: ModelBlocks | None = None
        self.num_looks = 0

    def run(self, model: Any, call: Callable[[], Any]) -> Any:
        """Make a call of a model, and measure its blocks if it is due."""
        found = None
        try:
            found = self._due(model)
        except BaseException:
            self.fail("blocks")
        if found is None:
            return call()
        blocks, kind = found
        self.num_looks += 1
        inner = lever_tool("tools/inner_calls")
        blocks.begin()
        with inner.called_instead(blocks.calls(kind, inner.call_module)):
            result = call()
        try:
            blocks.end(kind, result)
            self.measured = blocks if blocks.is_measured else self.measured
        except BaseException:
            self.fail("blocks")
        return result

    def _due(self, model: Any) -> tuple[ModelBlocks, str] | None:
        if not model.training or is_compiling_at_all() or hasattr(model, "_orig_mod"):
            return None
        blocks = self.models.get(model)
        if blocks is None:
            blocks = self.models[model] = ModelBlocks(self.torch, model, self.fail)
        kind = blocks.next_kind()
        return None if kind is None else (blocks, kind)

    def describe(self) -> dict[str, Any]:
        """Return `blocks` of levers/base.py; nothing where none were measured."""
        return {} if self.measured is None else {"blocks": self.measured.describe()}


class ModelBlocks:
    """The blocks of one model; it is not referred to."""

    def __init__(self, torch: Any, model: Any, fail: Callable[[str], None]) -> None:
        self.torch = torch
        self.fail = fail
        find = lever_tool("tools/blocks").find_blocks
        names = {id(one): f"{type(model).__name__}.{name}" for name, one in model.named_modules()}
        found = [one for group in find(torch, model) for one in group]
        self.blocks = {id(one): (weakref.ref(one), SeenBlock(names[id(one)])) for one in found}
        self.own = {one.untyped_storage().data_ptr() for one in (*model.parameters(),)}
        self.own |= {one.untyped_storage().data_ptr() for one in model.buffers()}
        device = next(model.parameters()).device
        self.wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        is_alone = device.type == "cpu" and torch.get_num_threads() == 1
        self.clock = thread_time_ns if is_alone else perf_counter_ns
        self.num_calls = 0
        self.order: list[SeenBlock] = []
        self.seen: set[int] = set()
        self.makers: dict[int, list[Any]] = {}  # by storage, the row of the operator that made it
        self.may_use_mode = True
        self.is_measured = False

    def next_kind(self) -> str | None:
        """Return what this call of the model is looked at for."""
        number, self.num_calls = self.num_calls, self.num_calls + 1
        if len(self.blocks) < MIN_BLOCKS or number >= len(PASSES):
            return None
        kind = PASSES[number]
        return None if kind == OPERATORS and not self.may_use_mode else kind

    def begin(self) -> None:
        """Begin a call of the model that is looked at."""
        self.order, self.seen = [], set()
        for _, seen in self.blocks.values():
            seen.num_calls = 0

    def calls(self, kind: str, call_module: Any) -> list[tuple[Any, Callable[..., Any]]]:
        """Return the blocks and what is called instead of each."""
        act = {BYTES: self._weigh, SECONDS: self._time, OPERATORS: self._split}[kind]
        found: list[tuple[Any, Callable[..., Any]]] = []
        for reference, seen in self.blocks.values():
            block = reference()
            if block is not None:
                found.append((block, partial(self._run, act, seen, partial(call_module, block))))
        return found

    def _run(self, act: Any, seen: SeenBlock, call: Any, *args: Any, **kwargs: Any) -> Any:
        seen.num_calls += 1
        if seen.num_calls > 1 or not self.torch.is_grad_enabled():
            return call(*args, **kwargs)
        self.order.append(seen)
        return act(seen, call, args, kwargs)

    def _weigh(self, seen: SeenBlock, call: Any, args: Any, kwargs: Any) -> Any:
        """Call a block, and add up what autograd saves of it."""
        seen.kept_bytes = 0
        seen.input_bytes = self._size_of((args, kwargs), set())

        def pack(tensor: Any) -> Any:
            seen.kept_bytes += self._size_of(tensor, self.seen)
            return tensor

        with self.torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            return call(*args, **kwargs)

    def _size_of(self, value: Any, seen: set[int]) -> int:
        size = 0
        try:
            for tensor in tensors_within(self.torch, value):
                storage = tensor.untyped_storage()
                pointer = storage.data_ptr()
                if pointer not in seen and pointer not in self.own:
                    seen.add(pointer)
                    size += storage.nbytes()
        except (RuntimeError, NotImplementedError):
            self.fail("blocks")  # a sparse tensor has no storage
        return size

    def _time(self, seen: SeenBlock, call: Any, args: Any, kwargs: Any) -> Any:
        """Call a block, and take its time."""
        self.wait()
        began = self.clock()
        result = call(*args, **kwargs)
        self.wait()
        ns = self.clock() - began
        seen.ns = ns if seen.ns is None else min(seen.ns, ns)
        return result

    def _split(self, seen: SeenBlock, call: Any, args: Any, kwargs: Any) -> Any:
        """Call a block under a mode that takes the time of each operator."""
        if self.torch._C._len_torch_dispatch_stack():
            return call(*args, **kwargs)
        before, seen.operators, self.makers = seen.operators, {}, {}
        mode = make_mode(self.torch, partial(self._add, seen), self._clock_of_operators)
        mode.__enter__()
        try:
            result = call(*args, **kwargs)
        finally:
            leave_mode(self.torch, mode)
        if mode.foreign:
            seen.is_strange = True  # what these tensors do was not seen
        for name, row in before.items():
            if (now := seen.operators.get(name)) is not None:
                now[0], now[3] = min(now[0], row[0]), now[3] and row[3]
        return result

    def _clock_of_operators(self) -> int:
        self.wait()
        return self.clock()

    def _add(
        self, seen: SeenBlock, func: Any, args: Any, kwargs: Any, result: Any, ns: int
    ) -> None:
        try:
            results = list(tensors_in([result]))
            is_new = not is_view(func) and not func._schema.is_mutable
            is_draw = self.torch.Tag.nondeterministic_seeded in func.tags
            row = seen.operators.setdefault(str(func), [0, 0, 0, True])
            row[0] += ns
            row[1] += sum(one.numel() * one.element_size() for one in results)
            row[2] += 1
            row[3] = row[3] and bool(results) and is_new and not is_draw
            if is_new:
                self.makers.update((one.untyped_storage().data_ptr(), row) for one in results)
            for tensor in written(func, args, kwargs):
                maker = self.makers.get(tensor.untyped_storage().data_ptr())
                if maker is not None:
                    maker[3] = False  # its result is changed later: a kept one would be, too
        except BaseException:
            seen.is_strange = True
            self.fail("blocks")

    def end(self, kind: str, result: Any) -> None:
        """Take the end of a call that was looked at."""
        if kind == BYTES:
            self.may_use_mode = self.may_use_mode and is_exact(self.torch, result)
        if kind == SECONDS:
            self.is_measured = True

    def describe(self) -> list[dict[str, Any]]:
        """Return the blocks that were called once, in the order of their calls."""
        once = [one for one in self.order if one.num_calls == 1 and one.ns is not None]
        return [one.describe() for one in once if not set(" [") & set(one.name)]


def written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors that an operator changes."""
    found = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[place] if place < len(args) else kwargs.get(argument.name))
    return list(tensors_in(found))


def is_exact(torch: Any, result: Any) -> bool:
    """Return whether a dispatch mode changes no bit of what the graph of a result computes."""
    dispatch = torch._C._len_torch_dispatch_stack()
    pending = [one.grad_fn for one in tensors_within(torch, result)]
    seen: dict[int, Any] = {}
    while pending:
        node = pending.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        if type(node).__name__.startswith(INEXACT) or len(seen) > MAX_NODES:
            return False
        pending += [following for following, _ in node.next_functions]
    return dispatch == 0 and bool(seen)
