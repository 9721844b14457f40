"""PyG's convolutions, found in a model and computed with MaxK in their classes.

In: a model of the script, or PyG's module. Out: the widths of their inputs, or the classes with
another `forward`. The guest asks with this file too, so it knows the standard library alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

MODULE = "torch_geometric.nn"
SUMS = ("add", "sum", "mean")
LEAST_FACTOR = 3
"""Of k: in narrower rows the product with whole rows is as fast."""


def width_of(layer: Any) -> int | None:
    """Return the width of a convolution's input; None where MaxK cannot take its place."""
    pyg = sys.modules.get(MODULE)
    kind = type(layer)
    if pyg is None or getattr(layer, "aggr", None) not in SUMS:
        return None
    if getattr(layer, "flow", None) != "source_to_target":
        return None
    if kind is pyg.GCNConv:
        width = layer.in_channels
    elif kind is pyg.SAGEConv:
        width = None if layer.project else layer.in_channels
        width = min(width) if isinstance(width, tuple) else width
    elif kind is pyg.GINConv:
        inner = layer.nn.modules() if hasattr(layer.nn, "modules") else ()
        widths = [getattr(one, "in_features", None) or getattr(one, "in_channels", None)
                  for one in inner]  # fmt: skip
        width = next((one for one in widths if one), None)
    else:
        return None
    return width if isinstance(width, int) and width > 0 else None


def widths_in(models: list[Any]) -> list[int]:
    """Return the widths of the inputs of all such convolutions."""
    layers = {id(layer): layer for model in models for layer in model.modules()}.values()
    return [width for layer in layers if (width := width_of(layer)) is not None]


def with_maxk(torch: Any, layers: Any, layer: Any, k: int) -> Any:
    """Return our layer for one of PyG's, with its parameters.

    It is made without memory, so that no random number is drawn for parameters it does not keep.
    """
    kind, found = type(layer).__name__, None
    with torch.device("meta"):
        if kind == "GCNConv":
            found = layers.MaxKGCNConv(
                layer.in_channels,
                layer.out_channels,
                k=k,
                improved=layer.improved,
                cached=layer.cached,
                add_self_loops=layer.add_self_loops,
                normalize=layer.normalize,
                bias=layer.bias is not None,
            )
        elif kind == "SAGEConv":
            found = layers.MaxKSAGEConv(
                layer.in_channels,
                layer.out_channels,
                k=k,
                aggr=layer.aggr,
                normalize=layer.normalize,
                root_weight=layer.root_weight,
                bias=layer.lin_l.bias is not None,
            )
        else:
            found = layers.MaxKGINConv(layer.nn, layer.initial_eps, k=k)
    for name in ("lin", "bias", "lin_l", "lin_r", "eps"):
        if getattr(found, name, None) is not None:
            setattr(found, name, getattr(layer, name))
    return found


class MaxKInstead:
    """The convolutions of a process that are computed with MaxK.

    The first convolution of a model reads the data, which stays whole: only inputs that are
    trained through count, so a layer is decided upon in its first call that has gradients.
    """

    def __init__(self, torch: Any, layers: Any, k: int, count: Callable[[str], None]) -> None:
        self.torch, self.layers, self.k, self.count = torch, layers, k, count
        self.made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def put_under(self, kind: Any) -> Callable[[], None]:
        """Give a class of PyG another `forward`; return what takes that back."""
        original = kind.forward

        def forward(layer: Any, x: Any, edge_index: Any, *args: Any, **kwargs: Any) -> Any:
            found = self._of(layer, x) if type(layer) is kind else None
            if found is None:
                return original(layer, x, edge_index, *args, **kwargs)
            self.count("calls")
            return found(x, edge_index, *args, **kwargs)

        kind.forward = forward
        return partial(setattr, kind, "forward", original)

    def _of(self, layer: Any, x: Any) -> Any:
        if layer not in self.made:
            rows = x[0] if isinstance(x, tuple | list) else x
            if not self.torch.is_grad_enabled() or not isinstance(rows, self.torch.Tensor):
                return None
            width = width_of(layer)
            fits = rows.requires_grad and width is not None and width >= LEAST_FACTOR * self.k
            made = with_maxk(self.torch, self.layers, layer, self.k) if fits else None
            self.made[layer] = made
        return self.made[layer]


def modules() -> tuple[Any, Any]:
    """Return PyG's layers and ours.

    Raises:
        ImportError: the script's Python lacks one of them.
    """
    return import_module(MODULE), import_module("steptime.graph.maxk_layers")
