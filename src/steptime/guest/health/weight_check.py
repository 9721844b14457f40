"""Which weights do not learn: no gradient, a gradient of zero, or one that no optimizer uses.

A weight is suspected only if it was so in every sample: after 8, 32, 128, ... updates. A gradient
is read where its optimizer's step begins: as the optimizer gets it.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from json import dumps
from typing import Any

from ...record import kinds
from ..hooks.module_tree import has_shape, loose_parameters_of, parameters_of
from ..sense.embedding_rows import EmbeddingRows
from .bracket import is_readable
from .tensor_bounds import TensorBounds

FIRST_AT, FACTOR = 8, 4

MIN_SAMPLES = 2
MAX_NAMES = 8
MAX_ELEMENTS = 20_000_000
"""Elements of gradients that are read in one sample: some 4 ms."""

MAX_WAIT = 64
"""Updates in which each optimizer that was known must have stepped, until a sample is closed."""

FINE, NONE, ZERO, UNUSED, LOOSE = "fine", "none", "zero", "unused", "loose"


class Suspect:
    """What a weight was in every sample so far."""

    __slots__ = ("mark", "num", "reference", "state")

    def __init__(self, weight: Any) -> None:
        self.reference = weakref.ref(weight)
        self.state: str | None = None
        self.num = 0
        self.mark: Any = None

    def take(self, state: str) -> None:
        """Take what the weight is in this sample; a weight that was fine once is fine."""
        self.state = state if self.state in (None, state) else FINE
        self.num += 1


class WeightCheck:
    """Samples the weights of optimizers and models.

    `due` is the number of updates at which the next sample begins. `find_models` returns the
    models that were called with gradients.
    """

    place = "weights"

    def __init__(self, torch: Any, find_models: Callable[[], list[Any]]) -> None:
        self.torch = torch
        self.find_models = find_models
        self.bounds = TensorBounds(torch)
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.suspects: dict[int, Suspect] = {}
        self.rows = EmbeddingRows(self.torch)
        self.sampled: set[int] = set()
        self.began = FIRST_AT
        self.due = FIRST_AT
        self.line = ""

    def begin_step(self, optimizer: Any, others: Iterable[Any], num_updates: int) -> None:
        """Take the beginning of an optimizer's step.

        Args:
            optimizer: that begins to step.
            others: all optimizers that stepped before.
            num_updates: updates that have ended.
        """
        torch = self.torch
        if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
            return  # a mode of the user's would see it
        known = [one for one in others if one is not None]
        if id(optimizer) not in self.sampled:
            self.sampled.add(id(optimizer))
            self._take_gradients(optimizer)
        is_whole = all(id(one) in self.sampled for one in known)
        if is_whole or num_updates >= self.began + MAX_WAIT:
            self._take_unused(known)
            self.sampled = set()
            self.due = self.began = self.began * FACTOR
            self.line = self._make_line(num_updates)

    def _suspect(self, weight: Any) -> Suspect:
        found = self.suspects.get(id(weight))
        if found is None or found.reference() is not weight:
            found = self.suspects[id(weight)] = Suspect(weight)
        return found

    def _take_gradients(self, optimizer: Any) -> None:
        left = MAX_ELEMENTS
        self.rows.see(optimizer, self.find_models())
        weights = [weight for weight in weights_of([optimizer]) if weight.requires_grad]
        if all(weight.grad is None for weight in weights):
            return  # it gets its gradients in a way of its own
        for weight in weights:
            gradient = weight.grad
            if gradient is None:
                self._suspect(weight).take(NONE)
                continue
            left -= gradient.numel()
            is_zero = left >= 0 and is_readable(self.torch, gradient) and self._is_zero(gradient)
            self._suspect(weight).take(ZERO if is_zero else FINE)

    def _is_zero(self, gradient: Any) -> bool:
        return self.bounds.read(gradient) == (0.0, 0.0)

    def _take_unused(self, optimizers: list[Any]) -> None:
        """Take the weights of models that get gradients, but that no optimizer holds."""
        held = {id(weight) for weight in weights_of(optimizers)}
        for model in self.find_models():
            for weight in self._weights_of(model):
                if id(weight) in held or not weight.requires_grad:
                    continue
                held.add(id(weight))
                suspect = self._suspect(weight)
                mark = self._mark(weight)
                is_same = suspect.mark is not None and suspect.mark == mark
                is_first, suspect.mark = suspect.mark is None, mark
                has_gradient = weight.grad is not None and mark is not None
                suspect.take(UNUSED if has_gradient and (is_same or is_first) else FINE)

    def _weights_of(self, model: Any) -> Iterator[Any]:
        """Yield the weights of a model, those last that it holds outside of its modules."""
        yield from (weight for _, weight in parameters_of(model) if has_shape(weight))
        loose = loose_parameters_of(self.torch, model)
        yield from (weight for _, _, weight in loose if has_shape(weight))

    def _mark(self, weight: Any) -> tuple[int, float, float] | None:
        """Return what changes when somebody writes to a weight; None where that is not known."""
        if not is_readable(self.torch, weight) or weight.dtype not in self.bounds.readers:
            return None
        if not weight.is_contiguous():
            return None
        read, size = self.bounds.readers[weight.dtype], weight.element_size()
        address = weight.data_ptr()
        return weight._version, read(address), read(address + (weight.numel() - 1) * size)

    def _make_line(self, num_updates: int) -> str:
        found: dict[str, list[Any]] = {NONE: [], ZERO: [], UNUSED: [], LOOSE: []}
        num = elements = 0
        for suspect in self.suspects.values():
            weight = suspect.reference()
            if weight is None:
                continue
            num, elements = num + 1, elements + weight.numel()
            if suspect.num >= MIN_SAMPLES and suspect.state in found:
                found[suspect.state].append(weight)
        if found[UNUSED]:
            held = {id(weight) for weight in weights_of(living_optimizers(self.torch))}
            found[UNUSED] = [weight for weight in found[UNUSED] if id(weight) not in held]
        names = self.find_names() if any(found.values()) or self.rows.tables else {}
        facts: dict[str, Any] = {"n": num_updates, "num": num, "elements": elements}
        facts["tables"] = self.rows.tell(names)
        if found[UNUSED]:
            loose = self.find_loose(names)
            found[LOOSE] = [weight for weight in found[UNUSED] if id(weight) in loose]
            found[UNUSED] = [weight for weight in found[UNUSED] if id(weight) not in loose]
            holders = [loose[id(weight)][0] for weight in found[LOOSE]]
            facts["holders"] = list(dict.fromkeys(holders))[:MAX_NAMES]
            names |= {key: name for key, (_, name) in loose.items()}
        facts["replaced"] = num_replaced(found[UNUSED], found[NONE], names)
        for state, weights in found.items():
            facts[state] = {
                "num": len(weights),
                "elements": sum(weight.numel() for weight in weights),
                "names": [names.get(id(weight), "?") for weight in weights[:MAX_NAMES]],
            }
        return dumps({"k": kinds.WEIGHTS, **facts}) + "\n"

    def find_names(self) -> dict[int, str]:
        """Return the names of the weights of all models, by id."""
        return {
            id(weight): name
            for model in reversed(self.find_models())
            for name, weight in parameters_of(model)
        }

    def find_loose(self, names: dict[int, str]) -> dict[int, tuple[str, str]]:
        """Return holder and name, by id, of the weights that no model has registered."""
        return {
            id(weight): (holder, name)
            for model in self.find_models()
            for holder, name, weight in loose_parameters_of(self.torch, model)
            if id(weight) not in names
        }

    def give_up(self) -> None:
        """Sample no more: each step is compared with others."""
        self.due = sys.maxsize

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the line, if there is a new one; the last one counts."""
        line, self.line = self.line, ""
        return line


def num_replaced(unused: list[Any], idle: list[Any], names: dict[int, str]) -> int:
    """Return how many unused weights have the shape of one that an optimizer holds for no model."""
    outside = Counter(tuple(weight.shape) for weight in idle if id(weight) not in names)
    return (outside & Counter(tuple(weight.shape) for weight in unused)).total()


def weights_of(optimizers: Iterable[Any]) -> Iterator[Any]:
    """Yield the weights that optimizers hold."""
    for optimizer in optimizers:
        for group in getattr(optimizer, "param_groups", ()):
            yield from group["params"]


def living_optimizers(torch: Any) -> list[Any]:
    """Return all optimizers of the process: one may step only once in a thousand updates."""
    kind = torch.optim.Optimizer
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]
