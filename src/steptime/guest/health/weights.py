"""Are the weights themselves still finite: looked at once when a loss is not.

If they were bad before the forward, the update before this one broke them. Reading them changes
nothing, and happens in one update of a training that is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .bracket import MAX_NAMES, is_bad, is_readable

_SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "square_avg")
"""States that cannot be below zero: their root would be NaN."""


def look_at_weights(torch: Any, optimizers: Iterable[Any]) -> dict[str, int] | None:
    """Return how many weights and states there are, and how many hold a bad number.

    `num_broken` counts the weights of which no number is finite. None where nothing can be looked
    at: on a device that would wait, and under a mode of the user's it would be seen.
    """
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return None
    found = dict.fromkeys(("num", "num_bad", "num_broken", "num_states", "num_bad_states"), 0)
    with torch.no_grad():
        for name, tensor in _tensors_of(optimizers):
            if is_readable(torch, tensor):
                _book(torch, found, name, tensor)
    return found if found["num"] else None


def name_bad_weights(torch: Any, optimizers: Iterable[Any], names: Mapping[int, str]) -> list[str]:
    """Return the names of the bad weights that `names` knows by id, where others are sound.

    An update changes each weight by its own gradient, so these had a bad one.
    """
    with torch.no_grad():
        weights = [one for name, one in _tensors_of(optimizers) if name is None]
        bad = [one for one in weights if is_bad(torch, one)]
    known = [names[id(one)] for one in bad if id(one) in names]
    return known[:MAX_NAMES] if len(bad) < len(weights) else []


def _book(torch: Any, found: dict[str, int], name: str | None, tensor: Any) -> None:
    least, most = torch.aminmax(tensor)
    low, high = float(least), float(most)
    is_bad = low - low != 0.0 or high - high != 0.0
    if name is None:
        found["num"] += 1
        found["num_bad"] += is_bad
        found["num_broken"] += is_bad and not bool(torch.isfinite(tensor).any())
    else:
        found["num_states"] += 1
        found["num_bad_states"] += is_bad or (name in _SQUARES and low < 0)


def _tensors_of(optimizers: Iterable[Any]) -> Iterator[tuple[str | None, Any]]:
    """Yield the weights, and the states that have the shape of a weight with their names."""
    for optimizer in optimizers:
        for group in getattr(optimizer, "param_groups", ()):
            for weight in group["params"]:
                yield None, weight
                for name, state in optimizer.state.get(weight, {}).items():
                    if getattr(state, "shape", None) == weight.shape:
                        yield str(name), state


TAKE_TENSORS = (look_at_weights, name_bad_weights, _book, _tensors_of, is_readable)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
