"""Leaves everything as it was: models, inputs, gradients, random numbers, torch's settings.

In: a model and its inputs, then each operator that runs. Out: nothing has changed, also where the
model raises or is interrupted. What a function does to files, or to objects that are neither
tensors nor modules, is its own.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any

from steptime.counting.kept_attributes import KeptAttributes, live_modules
from steptime.counting.kept_gradients import KeptGradients
from steptime.counting.kept_switches import keep_random_states, keep_switches
from steptime.counting.kept_tensors import KeptTensors
from steptime.counting.open_values import has_attributes, opened
from steptime.counting.suitable import check_tensors
from steptime.errors import UsageError
from steptime.guest.count.tensor_facts import tensors_in


class LeftAsItWas:
    """What a call may change, and how it was before.

    Args:
        torch: the module.
        undo: takes the calls that put it back.
    """

    def __init__(self, torch: Any, undo: ExitStack) -> None:
        self.torch = torch
        keep_switches(torch, undo)
        keep_random_states(torch, undo)
        every = live_modules(torch)
        self.tensors, self.attributes = KeptTensors(torch), KeptAttributes(torch)
        self.gradients = KeptGradients()
        self.has_backward = False  # an operator ran in a backward
        # Undone in this order: modules have their tensors again, these their elements and then
        # their gradients.
        undo.callback(self.gradients.put_back)
        undo.callback(self._put_tensors_back)
        undo.callback(self.attributes.put_back)
        self.attributes.note(every)
        held = list({id(one): one for one in self.attributes.tensors}.values())
        self.attributes.note(held)  # frameworks hang flags and buffers on weights
        with _without_modes():
            self.tensors.note(held)
        _watch(torch, undo)

    def note_model(self, modules: list[Any]) -> None:
        """Set aside the gradients of the modules that will be called, and copy their buffers.

        Raises:
            UsageError: they have tensors that cannot be counted.
        """
        every = list({id(one): one for root in modules for one in root.modules()}.values())
        named = held_by(every)
        check_tensors(self.torch, named)
        self.note_tensors([one for _, one in named])
        with _without_modes():
            self.tensors.copy_now([one for _, one in held_by(every, BUFFERS)])

    def note_inputs(self, value: Any) -> None:
        """Note the tensors, the collections and the objects of a model's inputs."""
        parts = opened(self.torch, value)
        is_tensor = self.torch.Tensor
        self.note_tensors([one for one in parts if isinstance(one, is_tensor)])
        self.attributes.note_values(parts)
        self.attributes.note(one for one in parts if has_attributes(self.torch, one))

    def note_tensors(self, tensors: list[Any]) -> None:
        """Note where tensors have their elements, and set the gradients of leaves aside."""
        with _without_modes():
            self.tensors.note(tensors)
        self.gradients.set_aside(tensors)

    def see_before(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note what an operator is about to use."""
        self.tensors.see_before(func, args, kwargs)
        for one in tensors_in([*args, *kwargs.values()]):
            is_leaf = one.requires_grad and one.is_leaf
            if is_leaf and id(one) not in self.gradients.leaves and self.tensors.was_there(one):
                self.note_tensors([one])

    def see_after(self, args: Any, kwargs: Any, result: Any) -> None:
        """Learn what an operator has made: that need not be kept."""
        self.has_backward |= self.torch._C._current_autograd_node() is not None
        is_real = self.tensors.is_real
        taken = filter(is_real, tensors_in([*args, *kwargs.values()]))
        self.tensors.see_after(list(taken), list(filter(is_real, tensors_in(result))))

    def _put_tensors_back(self) -> None:
        with _without_modes():
            missed = self.tensors.put_back()
        if missed:
            warnings.warn(
                f"steptime.count: {len(missed)} tensors of the model were written to in a way "
                "that no operator shows, and are not as they were; the first has the shape "
                f"{list(missed[0].shape)}",
                RuntimeWarning,
                stacklevel=2,
            )


def _without_modes() -> Any:
    """Leave the caller's own modes for a while: fakes would take no real tensor."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def held_by(modules: list[Any], *places: str) -> list[tuple[str, Any]]:
    """Return the tensors that modules hold there, and what to call each; the default is both."""
    return [
        (f"the {HELD_AT[place]} `{name}` of a {type(module).__name__}", one)
        for module in modules
        for place in places or HELD_AT
        for name, one in list(getattr(module, place, {}).items())
        if one is not None
    ]


PARAMETERS, BUFFERS = "_parameters", "_buffers"
HELD_AT = {PARAMETERS: "parameter", BUFFERS: "buffer"}


def _watch(torch: Any, undo: ExitStack) -> None:
    """Refuse what cannot be put back before it happens: a lazy module's first call, a step."""
    from torch.nn.modules.lazy import LazyModuleMixin
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def refuse_lazy(module: Any, args: Any) -> None:
        if isinstance(module, LazyModuleMixin):
            check_tensors(torch, held_by([module]))

    undo.callback(register_module_forward_pre_hook(refuse_lazy).remove)
    undo.callback(register_optimizer_step_pre_hook(_refuse_step).remove)


def _refuse_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    raise UsageError(
        f"the function steps an optimizer ({type(optimizer).__name__}), whose state could not be "
        "put back. Count what comes before: steptime.count(lambda: loss of the model's output)."
    )
