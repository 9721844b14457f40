"""Norms of gradients, weights and updates by layer, in one update of several.

A layer is a module with weights of its own. The update is what the optimizer's step changed: of
large weights it is taken from every n-th element, so that the copy stays small. All norms are
computed without a graph and fetched together, from a device without a wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from json import dumps
from typing import Any, NamedTuple

from ...record import kinds
from .bracket import ModuleNames
from .number_fetch import NumberFetch

SAMPLE_EVERY = 16
"""In updates of an optimizer; doubled after each `MAX_SAMPLES` samples."""

MAX_SAMPLES = 128
MAX_LAYERS = 512
MAX_ELEMENTS = 65_536
"""Of a larger weight so many elements, evenly spaced, are copied to see how far it moves."""

QUIET_SAMPLES = 4
"""A unit is dead if its weights got a gradient of exactly zero in so many samples in a row."""

SPARSE = ("Embedding", "EmbeddingBag")
"""Their rows get gradients in turn, so that zeros say nothing."""


class WeightLayer:
    """A module with weights of its own.

    `quiet` counts, for each unit of each weight, the samples in a row without a gradient.
    """

    __slots__ = ("has_units", "index", "kind", "model", "name", "num_elements", "quiet")

    def __init__(self, index: int, name: str, kind: str, model: str) -> None:
        self.index = index
        self.name = name
        self.kind = kind
        self.model = model
        self.num_elements = 0
        self.has_units = kind not in SPARSE
        self.quiet: dict[int, Any] = {}


class Taken(NamedTuple):
    """A weight before its update, and every n-th of its elements then."""

    layer: WeightLayer
    weight: Any
    stride: int
    elements: Any
    gradient_norm: Any
    weight_norm: Any


Kept = tuple[WeightLayer, bool, float]
"""Of a weight: its layer, whether it had a gradient, and its elements for each copied one."""


class LayerNorms:
    """Samples the norms of each optimizer's layers."""

    def __init__(self, torch: Any, names: ModuleNames, fetch: NumberFetch) -> None:
        self.torch = torch
        self.names = names
        self.fetch = fetch
        self.reset()

    def reset(self) -> None:
        """Forget what was sampled: this is a new process."""
        self.layers: list[WeightLayer] = []
        self.layer_of: dict[int, WeightLayer | None] = {}
        self.num_told = self.num_samples = 0
        self.num_steps: dict[int, int] = {}
        self.every = SAMPLE_EVERY
        self.taken: list[Taken] = []
        self.lines: list[str] = []

    # -- around an optimizer's step

    def begin_step(self, optimizer: Any) -> bool:
        """Take the weights before a step, if it is one to sample; return whether it is."""
        self.taken = []
        count = self.num_steps[id(optimizer)] = self.num_steps.get(id(optimizer), 0) + 1
        if (count - 1) % self.every:
            return False
        weights = [weight for weight in weights_of(optimizer) if is_plain(self.torch, weight)]
        weights = [weight for weight in weights if weight.device == weights[0].device]
        self._name(weights)
        with self.torch.no_grad():
            self.taken = [one for weight in weights if (one := self._take(weight)) is not None]
        return bool(self.taken)

    def _take(self, weight: Any) -> Taken | None:
        layer, gradient = self.layer_of.get(id(weight)), weight.grad
        if layer is None:
            return None
        norm, values = self.torch.linalg.vector_norm, weight.detach()
        float32 = self.torch.float32
        if gradient is not None and not is_plain(self.torch, gradient):
            gradient = None
        gradient_norm = None
        if gradient is not None:
            gradient_norm = norm(gradient.detach(), dtype=float32)
            self._count_quiet(layer, id(weight), gradient.detach())
        stride = max(1, -(-weight.numel() // MAX_ELEMENTS))
        elements = values.reshape(-1)[::stride].clone()
        return Taken(layer, weight, stride, elements, gradient_norm, norm(values, dtype=float32))

    def _count_quiet(self, layer: WeightLayer, key: int, gradient: Any) -> None:
        if not layer.has_units or gradient.dim() < 2:
            return
        is_alive = gradient.reshape(gradient.shape[0], -1).count_nonzero(dim=1) > 0
        quiet = layer.quiet.get(key)
        if quiet is None or quiet.shape != is_alive.shape:
            quiet = is_alive.to(self.torch.int16).zero_()
        layer.quiet[key] = (quiet + 1).clamp_(max=QUIET_SAMPLES).masked_fill_(is_alive, 0)

    def end_step(self, update: int) -> None:
        """Take the weights after the step, and write the norms by layer."""
        taken, self.taken = self.taken, []
        if not taken:
            return
        torch, numbers = self.torch, []
        layers = list(dict.fromkeys(one.layer for one in taken))
        with torch.no_grad():
            zero = torch.zeros_like(taken[0].weight_norm)
            for one in taken:
                moved = one.weight.detach().reshape(-1)[:: one.stride] - one.elements
                moved_norm = torch.linalg.vector_norm(moved, dtype=torch.float32)
                gradient_norm = zero if one.gradient_norm is None else one.gradient_norm
                numbers += [gradient_norm, one.weight_norm, moved_norm]
            quiet = [self._num_dead(layer, zero) for layer in layers]
            kept = [(one.layer, one.gradient_norm is not None, scale_of(one)) for one in taken]
            self.fetch.begin(
                [*numbers, *quiet], lambda found: self._write(update, kept, layers, found)
            )
        self.num_samples += 1
        if self.num_samples % MAX_SAMPLES == 0:
            self.every *= 2

    def _num_dead(self, layer: WeightLayer, zero: Any) -> Any:
        for quiet in layer.quiet.values():
            zero = zero + (quiet >= QUIET_SAMPLES).sum()
        return zero

    def _write(self, update: int, kept: list[Kept], layers: list[Any], found: list[float]) -> None:
        sums: dict[int, list[float | None]] = {}
        for place, (layer, has_gradient, scale) in enumerate(kept):
            gradient, weight, moved = found[3 * place : 3 * place + 3]
            row = sums.setdefault(layer.index, [None, 0.0, 0.0])
            if has_gradient:
                row[0] = (row[0] or 0.0) + gradient * gradient
            row[1] = (row[1] or 0.0) + weight * weight
            row[2] = (row[2] or 0.0) + moved * moved * scale
        numbers = (layer.index for layer in layers)
        dead = dict(zip(numbers, found[3 * len(kept) :], strict=True))
        rows = [
            [index, *(None if n is None else short(n**0.5) for n in row), int(dead[index])]
            for index, row in sorted(sums.items())
        ]
        self.lines.append(dumps({"k": kinds.LAYER_NORMS, "n": update, "rows": rows}) + "\n")

    # -- names

    def _name(self, weights: Iterable[Any]) -> None:
        """Give each weight that is new the layer it belongs to."""
        if all(id(weight) in self.layer_of for weight in weights):
            return
        wanted = {id(weight) for weight in weights}
        self.layer_of = {}
        known = {(layer.model, layer.name): layer for layer in self.layers}
        for model, name, module in self.names.modules():
            own = [w for w in module.parameters(recurse=False) if id(w) in wanted]
            if not own:
                continue
            layer = known.get((model, name))
            if layer is None and len(self.layers) < MAX_LAYERS:
                layer = WeightLayer(len(self.layers), name, type(module).__name__, model)
                self.layers.append(layer)
                known[model, name] = layer
            for weight in own:
                if layer is not None and id(weight) not in self.layer_of:
                    layer.num_elements += weight.numel()
                self.layer_of.setdefault(id(weight), layer)
        self.layer_of = dict.fromkeys(wanted) | self.layer_of

    def pop(self) -> list[str]:
        """Return the lines since the last call: the names of new layers first."""
        lines, self.lines = self.lines, []
        new = self.layers[self.num_told :]
        if not new or not lines:
            return lines
        self.num_told = len(self.layers)
        rows = [
            [one.index, one.name, one.kind, one.model, one.num_elements, num_units(one)]
            for one in new
        ]
        return [dumps({"k": kinds.LAYERS, "rows": rows}) + "\n", *lines]


def weights_of(optimizer: Any) -> Iterator[Any]:
    """Yield the weights that an optimizer updates."""
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]


def is_plain(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor is torch's own, dense and of real numbers."""
    return bool(
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and (tensor.is_cpu or tensor.is_cuda)
        and tensor.layout is torch.strided
        and tensor.is_floating_point()
        and tensor.numel()
    )


def scale_of(one: Taken) -> float:
    """Return for how many elements of a weight each copied one stands."""
    return float(one.weight.numel() / max(1, one.elements.numel()))


def num_units(layer: WeightLayer) -> int:
    """Return the units of a layer whose gradients are watched; 0 if there are none."""
    return sum(int(quiet.shape[0]) for quiet in layer.quiet.values())


def short(number: float) -> float | str:
    """Return a number with four digits, or the word for one that JSON does not know."""
    if number - number == 0.0:
        return float(f"{number:.4g}")
    return "nan" if number != number else "inf"


TAKE_TENSORS = (weights_of, is_plain, scale_of, num_units)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
