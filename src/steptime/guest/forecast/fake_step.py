"""Follows one step on fakes: which storages are held at its peak, and what operators take besides.

In: models, optimizers, and the moments of a step. Out: the facts of a `MemoryForecast`. It books
parts as the memory anatomy does (`memory/storages.py`, `memory/holdings.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..count.tensor_facts import tensors_in
from ..memory.holdings import (
    StorageLedger,
    storage_of,
    take_models,
    take_optimizers,
    tensors_alive,
    tensors_within,
)
from ..memory.live_graphs import take_kept, with_graph
from ..memory.storages import INPUTS, Storages
from .corrections import Workspace, workspace_of
from .fake_mode import Fakes
from .fake_operators import FakeOperators
from .measured_operators import MeasuredOperators

COMMUNICATION = "communication"

MARGIN = 0.01
"""What an allocator rounds, and small things that are not seen, are worth this much of a peak."""


class FakeStep:
    """One step that is followed.

    Args:
        torch: the module.
        device_type: only storages on such devices are followed.
        measured: knows what operators take for themselves, having run them; None for formulas.
        see: is shown each operator; None where nobody asks.
    """

    def __init__(
        self,
        torch: Any,
        device_type: str,
        measured: MeasuredOperators | None = None,
        *,
        see: Callable[[Any], None] | None = None,
    ) -> None:
        self.torch = torch
        self.see = see
        self.measured = measured
        self.storages = Storages(torch, device_type)
        self.storages.workspaces = None  # what is freed before an operator returns is not seen
        self.workspaces: dict[int, Workspace] = {}  # by the operator's number
        self.outputs: list[Any] = []
        self.exchanged: Any = ()

    def begin(
        self,
        models: Iterable[Any],
        optimizers: Iterable[Any],
        *,
        batch: Any = None,
        takes_others: bool = False,
        exchanged: Iterable[Any] = (),
    ) -> None:
        """Book what is there before the step.

        Args:
            models: those that are trained or called.
            optimizers: those that step.
            batch: what the models are called with.
            takes_others: whether every other tensor of the process belongs to the training.
            exchanged: storages that are exchanged between ranks; those to come are looked up here.
        """
        self.storages.open("forward")
        self.exchanged = exchanged
        ledger = self._take_states(models, optimizers)
        for storage in list(exchanged):
            self.storages.own(COMMUNICATION, storage, self.storages.device_type)
        ledger.take(INPUTS, tensors_within(self.torch, batch))
        if takes_others:
            alive = tensors_alive(self.torch)
            take_kept(ledger, with_graph(alive))
            ledger.take("others", alive)

    def _take_states(self, models: Iterable[Any], optimizers: Iterable[Any]) -> StorageLedger:
        ledger = StorageLedger(self.torch, self._own)
        take_models(ledger, models, optimizers)
        take_optimizers(ledger, optimizers)
        return ledger

    def _own(self, name: str, storage: Any, device: str) -> None:
        """Give a storage to a part; a gradient may lie in what was exchanged."""
        storages = self.storages
        storages.own(name, storage, device)
        number = storages.ids.get(storage._cdata)
        if name == "gradients" and number is not None and storages.parts[number] == COMMUNICATION:
            storages.parts[number] = name

    def see_operator(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take an operator that has run."""
        if self.see is not None:
            self.see(func)
        number = len(self.storages.operators)
        if self.measured is None:
            found = workspace_of(str(func), args, result)
        else:
            found = self.measured.workspace(func, args, kwargs)
        if found is not None:
            self.workspaces[number] = found
        self.storages.add(func, args, kwargs, result)
        if self.exchanged:
            for storage in map(storage_of, tensors_in(result)):
                if storage in self.exchanged:
                    self.storages.own(COMMUNICATION, storage, self.storages.device_type)

    def see_resize(self, storage: Any, size: int) -> None:
        """Take a storage that is about to change its size: the old one ends, a new one begins."""
        storages = self.storages
        now, key = len(storages.operators), storage._cdata
        number = storages.ids.get(key)
        if number is None:
            if key not in {one._cdata for one in self.exchanged}:
                return
            storages.own(COMMUNICATION, storage, storages.device_type)
            number = storages.ids[key]
        storages.change_size(number, storage, now, size)

    def see_result(self, result: Any) -> None:
        """Note what a model returned: it becomes logits if it is kept until the backward."""
        self.outputs = [
            one for one in tensors_within(self.torch, result) if one.requires_grad and one.ndim
        ]

    def see_backward(self, roots: Any, models: Iterable[Any], optimizers: Iterable[Any]) -> None:
        """Book what is kept as a backward begins."""
        ledger = self._take_states(models, optimizers)
        ledger.take("logits", self.outputs)
        self.outputs = []
        take_kept(ledger, roots)
        self.storages.open("backward")

    def see_gradients(self, models: Iterable[Any], optimizers: Iterable[Any]) -> None:
        """Book gradients as a backward ends, and open the optimizer's phase."""
        self._take_states(models, optimizers)
        self.storages.open("optimizer")

    def see_next(self, batch: Any = None) -> None:
        """Open the forward of the next micro-batch; note what the model is called with."""
        self.storages.open("forward")
        given = [
            one for one in tensors_within(self.torch, batch) if one.grad_fn is None and one.is_leaf
        ]
        StorageLedger(self.torch, self.storages.own).take(INPUTS, given)

    def facts(self, models: Iterable[Any], optimizers: Iterable[Any]) -> dict[str, Any] | None:
        """Return the peak and what it consists of; None where nothing was followed."""
        self._take_states(models, optimizers)
        peaks = {}
        for name in ("low", "high", "estimate"):
            self.storages.extras = {
                number: getattr(one, name) for number, one in self.workspaces.items()
            }
            peaks[name] = self.storages.peak()
        table = self.storages.table()
        if table is None or peaks["estimate"] is None:
            return None
        sizes = {name: peak["bytes"] for name, peak in peaks.items() if peak is not None}
        sizes["low"] = round(sizes["low"] * (1 - MARGIN))
        sizes["high"] = round(sizes["high"] * (1 + MARGIN))
        return {
            "peak": sizes,
            "by_category": table["peak"]["by_part"],
            "phase": table["peak"]["phase"],
            "operator": table["operator"],
        }


def make_mode(torch: Any, operators: FakeOperators, step: Any) -> Any:
    """Return a dispatch mode that runs operators on fakes and shows them to a step.

    Args:
        torch: the module.
        operators: runs them.
        step: `step()` is the `FakeStep` that is followed now, or None.
    """
    aten, fakes = torch.ops.aten, operators.fakes

    class FakeRunner(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            space = getattr(func, "namespace", "")
            if space == "prim":
                return func(*args, **kwargs)
            if any(kind.__name__ == "DTensor" for kind in types):
                return NotImplemented
            is_plain = not any(one.is_nested for one in tensors_in(list(args)))
            if space == "aten" and is_composite(torch, func) and is_plain:
                with self:
                    result = func.decompose(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            if func is aten.add.Tensor and sums_in_place(torch, fakes, args):
                return args[0]
            result = operators.run(func, args, kwargs)
            followed = step()
            if followed is not None:
                followed.see_operator(func, args, kwargs, result)
            return result

    return FakeRunner()


COMPOSITE: dict[Any, bool] = {}


def is_composite(torch: Any, func: Any) -> bool:
    """Return whether an operator computes by others alone, with no kernel of its own.

    Autograd takes such operators apart before a mode sees them; without gradients they arrive
    whole.
    """
    known = COMPOSITE.get(func)
    if known is None:
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        known = has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), "CPU")
        COMPOSITE[func] = known
    return known


def sums_in_place(torch: Any, fakes: Fakes, args: Any) -> bool:
    """Return whether autograd's engine, without a mode, would add to the first of two gradients.

    It does so if nobody else holds the first one (`can_accumulate_inplace` in its C++ code), but
    while a mode is on, or for a subclass of tensors, it makes a third.
    """
    if len(args) < 2 or torch.is_grad_enabled() or torch._C._current_autograd_node() is None:
        return False
    first, second = args[:2]
    if not (fakes.is_fake(first) and fakes.is_fake(second)) or first.dtype != second.dtype:
        return False
    if sys._getframe(2).f_code.co_name != ENGINE:
        return False  # a backward that somebody wrote in Python
    count = getattr(torch._C, "_storage_Use_Count", None)
    if count is None or first.shape != second.shape or not is_dense(first):
        return False
    return bool(count(first.untyped_storage()._cdata) <= ALONE)


def is_dense(tensor: Any) -> bool:
    """Return whether its elements fill a piece of memory, each place once, in any order."""
    expected = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True


ENGINE = "_engine_run_backward"
"""The function of torch's whose frame is the last one of Python's while its engine computes."""

ALONE = 2
"""Uses of a storage that one tensor has: its own, and that of whoever asks."""


def device_of(tensors: Iterable[Any]) -> str:
    """Return the type of device that most bytes are on."""
    sizes: dict[str, int] = {}
    for tensor in tensors_in(list(tensors)):
        storage = storage_of(tensor)
        size = 0 if storage is None else storage.nbytes()
        sizes[tensor.device.type] = sizes.get(tensor.device.type, 0) + size
    return max(sizes, key=lambda name: sizes[name], default="cpu")
