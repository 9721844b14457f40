"""Brings the channels between two layers to like sizes, which changes nothing of what is computed.

What a layer gives has one step for all of its channels. A factor of each channel goes into the
weights before, and its inverse into those after; clamps at 0, and pooling between pass it on.

Source: M. Nagel et al., ICCV 2019, section 4.1; with what the channels were seen to hold in the
place of the weights before, as in G. Xiao et al., SmoothQuant, ICML 2023.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steptime.quantize.observers import watch
from steptime.quantize.trained_network import (
    Convolution,
    Matmul,
    Network,
    Operator,
    Pooling,
    Reshape,
)

_LEAST = 2.0**-10
"""Of a factor over the largest of its layer: channels that are nearly empty count as this."""


def equalized(
    network: Network, program: Any, batches: Iterable[Any]
) -> tuple[Network, Mapping[str, Any]]:
    """Return the network with channels of like sizes, and by what each value was divided.

    Args:
        network: in floats.
        program: what `torch.export` made of it.
        batches: inputs (batch, ...), from which the sizes of the channels are taken.

    Returns:
        The network, and divisors by the name of a value, of a shape that spreads to it in torch.
    """
    operators, divisors = {one.output: one for one in network.operators}, dict[str, Any]()
    chains = list(_chains(network))
    sizes = _channel_sizes(network, program, batches, {first for first, _ in chains})
    for first, last in chains:
        before: Any = operators[first]
        after: Any = operators[last]
        factors = _factors(sizes[first].ravel(), after)
        shape = (-1,) + (1,) * (before.weight.ndim - 1)
        weight, bias = before.weight / factors.reshape(shape), before.bias / factors
        operators[first] = replace(before, weight=weight, bias=bias)
        operators[last] = replace(after, weight=after.weight * _columns(after, factors))
        divisors[first] = factors.reshape(sizes[first].shape)
    return replace(network, operators=tuple(operators.values())), divisors


def _chains(network: Network) -> Iterator[tuple[str, str]]:
    """Yield the outputs of two layers between which a factor of each channel passes."""
    readers: dict[str, list[Operator | None]] = {network.output: [None]}
    for one in network.operators:
        for name in one.inputs:
            readers.setdefault(name, []).append(one)
    for one in network.operators:
        if not isinstance(one, Convolution | Matmul) or one.low not in (None, 0.0) or one.high:
            continue
        (next_, *more) = readers.get(one.output, [None])
        while next_ is not None and not more and _passes(next_, network, len(one.bias)):
            (next_, *more) = readers.get(next_.output, [None])
        if isinstance(next_, Convolution | Matmul) and not more:
            yield one.output, next_.output


def _passes(one: Operator, network: Network, num_channels: int) -> bool:
    """Return whether factors above 0 of the channels can as well be taken after an operator."""
    if isinstance(one, Reshape):
        before, after = (network.shapes[name][-1] for name in (one.inputs[0], one.output))
        return before == num_channels and after % num_channels == 0
    return isinstance(one, Pooling)


def _channel_sizes(
    network: Network, program: Any, batches: Iterable[Any], wanted: set[str]
) -> dict[str, Any]:
    """Return the largest number of each channel without its sign, of a shape that spreads."""
    found: dict[str, Any] = {}

    def see(name: str, values: Any) -> None:
        if name in wanted:
            axis = 1 if name in network.pictures else values.ndim - 1
            others = tuple(each for each in range(values.ndim) if each != axis)
            most = np.abs(values).max(axis=others, keepdims=True)
            found[name] = np.maximum(found.get(name, 0.0), most)

    watch(program, batches, see)
    return found


def _factors(sizes: Any, after: Any) -> Any:
    """Return the factor (num_channels,) of each channel, the largest being 1.

    A depthwise layer has a step for each channel anyway. Of others the weights have one for all
    channels, too, so both sides bear half.
    """
    found = np.asarray(sizes)
    if not (isinstance(after, Convolution) and after.groups == len(sizes)):
        weight = np.abs(after.weight)
        rows = weight.reshape(len(weight), -1).max(axis=1)
        share = weight / np.maximum(rows, 1e-30).reshape(-1, *(1,) * (weight.ndim - 1))
        groups = after.groups if isinstance(after, Convolution) else 1
        each = len(sizes) // groups
        most = share.reshape(groups, len(share) // groups, -1, each).max(axis=(1, 2)).ravel()
        found = np.sqrt(found / np.maximum(most, _LEAST))
    whole = float(found.max())
    return np.maximum(found / whole, _LEAST) if whole > 0 else np.ones(len(sizes))


def _columns(after: Convolution | Matmul, factors: Any) -> Any:
    """Return the factor of each weight, of the shape of weights or one that spreads to it."""
    if isinstance(after, Matmul):
        return np.tile(factors, after.weight.shape[1] // len(factors))
    split = factors.reshape(after.groups, -1)
    return np.repeat(split, len(after.weight) // after.groups, axis=0)[:, None, None, :]
