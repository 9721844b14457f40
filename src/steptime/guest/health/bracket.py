"""Describes a number that is not finite: which module, which of its weights, which rows of a batch.

It is asked once an episode, when something is bad already, so it may take its time. Only names,
counts and the largest numbers are kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from ..hooks.module_tree import modules_of, parameters_of

MAX_ROWS = 32
MAX_NAMES = 8
MAX_MODELS = 16
MAX_TENSORS = 8
"""Tensors that are looked at in one call: some modules return the states of all their layers."""

MAX_DEPTH = 3

WRAPPERS = ("module.", "_orig_mod.")
"""What DDP and torch.compile put in front of each name."""


class ModuleNames:
    """The outermost modules that were called, which name the modules inside them."""

    def __init__(self) -> None:
        self.models: dict[int, tuple[Any, str]] = {}
        self.current: tuple[int, str] | None = None

    def meet(self, module: Any) -> None:
        """Note the outermost module of a call."""
        self.current = id(module), type(module).__name__
        known = self.models.get(id(module))
        if known is None or known[0]() is not module:
            if len(self.models) >= MAX_MODELS:
                self.models.clear()
            kind = kind_of(module)
            num = sum(label.split(" ")[0] == kind for _, label in self.models.values())
            label = kind if not num else f"{kind} {num + 1}"
            self.models[id(module)] = weakref.ref(module), label

    def find(self, where: tuple[int, str] | None) -> dict[str, str] | None:
        """Return name, class and model of a module; the name of a model itself is empty."""
        if where is None:
            return None
        key, kind = where
        for label, name, module in self.modules():
            if id(module) == key:
                return {"name": name, "kind": kind if name else label, "model": label}
        return {"name": "", "kind": kind, "model": kind}

    def modules(self) -> Iterator[tuple[str, str, Any]]:
        """Yield the modules of all models: the model's label, the name in it, and the module."""
        for model, label in self._living():
            for name, module in modules_of(model):
                yield label, bare(name) if is_wrapper(model) else name, module

    def bad_weights(self, torch: Any) -> dict[str, Any]:
        """Return how many weights and gradients on the CPU are bad by now, and the first names."""
        names: dict[str, list[str]] = {"bad_weights": [], "bad_gradients": []}
        seen: set[int] = set()
        for model, _ in self._living():
            for full_name, weight in parameters_of(model):
                if id(weight) in seen:
                    continue
                seen.add(id(weight))
                name = bare(full_name) if is_wrapper(model) else full_name
                if is_bad(torch, weight):
                    names["bad_weights"].append(name)
                if weight.grad is not None and is_bad(torch, weight.grad):
                    names["bad_gradients"].append(name)
        found: dict[str, Any] = {key: value[:MAX_NAMES] for key, value in names.items()}
        found |= {f"num_{key}": len(value) for key, value in names.items()}
        return found | {"num_weights": len(seen)}

    def _living(self) -> Iterator[tuple[Any, str]]:
        for reference, label in list(self.models.values()):
            model = reference()
            if model is not None:
                yield model, label


def kind_of(module: Any) -> str:
    """Return the name of a module's class, or of the module inside a wrapper's."""
    while is_wrapper(module):
        parts = list(module._modules.values())
        if len(parts) != 1:
            break
        module = parts[0]
    return type(module).__name__


def is_wrapper(module: Any) -> bool:
    """Return whether a module does nothing but wrap another one."""
    return type(module).__name__ in ("DistributedDataParallel", "DataParallel", "OptimizedModule")


def bare(name: str) -> str:
    """Return a name without what wrappers put in front."""
    while name.startswith(WRAPPERS):
        name = name.removeprefix(WRAPPERS[0]).removeprefix(WRAPPERS[1])
    return "" if f"{name}." in WRAPPERS else name


def tensors_of(tensor_class: Any, value: Any) -> Iterator[Any]:
    """Yield the first tensors of a value of tuples, lists and dicts, without code of the user's."""
    left = MAX_TENSORS
    for tensor in _walk(tensor_class, value, MAX_DEPTH):
        yield tensor
        left -= 1
        if not left:
            return


def _walk(tensor_class: Any, value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, tensor_class):
        yield value
    elif depth and isinstance(value, tuple):
        for part in tuple.__iter__(value):
            yield from _walk(tensor_class, part, depth - 1)
    elif depth and isinstance(value, list):
        for part in list.__iter__(value):
            yield from _walk(tensor_class, part, depth - 1)
    elif depth and isinstance(value, dict):
        for part in dict.values(value):
            yield from _walk(tensor_class, part, depth - 1)


def is_readable(torch: Any, tensor: Any) -> bool:
    """Return whether the numbers of a tensor lie in this process's memory, and can be infinite."""
    return bool(
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_floating_point()
        and tensor.numel()
    )


def is_bad(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor on the CPU holds a number that is not finite."""
    return is_readable(torch, tensor) and not bool(torch.isfinite(tensor.detach()).all())


def bad_own(torch: Any, module: Any) -> list[str]:
    """Return the names of a module's own weights and buffers that are bad."""
    own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    return [name for name, tensor in own if is_bad(torch, tensor)][:MAX_NAMES]


def largest_of(torch: Any, tensors: Iterable[Any]) -> float | None:
    """Return the largest absolute number of tensors; None where none can be read."""
    sizes = [float(t.detach().abs().max()) for t in tensors if is_readable(torch, t)]
    largest = max(sizes, default=None)
    return largest if largest is not None and largest - largest == 0.0 else None


def find_rows(torch: Any, tensor: Any, num_rows: int | None) -> dict[str, Any]:
    """Return the rows of a batch whose numbers are bad; nothing where a row is no sample."""
    if num_rows is None or not tensor.dim() or tensor.shape[0] != num_rows:
        return {}
    are_finite = torch.isfinite(tensor.detach()).reshape(num_rows, -1).all(1)
    rows = (~are_finite).nonzero().flatten().tolist()
    return {"rows": rows[:MAX_ROWS], "num_bad_rows": len(rows), "num_rows": num_rows}


TAKE_TENSORS = (tensors_of, _walk, is_readable, is_bad, bad_own, largest_of, find_rows)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
