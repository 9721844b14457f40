"""Reads an LSTM, whose node has three outputs, and what a network takes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from steptime.quantize.exported_nodes import module_of
from steptime.quantize.read_so_far import ReadSoFar
from steptime.quantize.trained_network import NotTaken, Recurrence, Selection

_STEPS, _LAST = 0, 1
"""Of the outputs: the last layer at all steps, and each layer at its last one."""


def _read_layers(readers: ReadSoFar, node: Any) -> bool:
    source, state, weights, has_bias, num_layers, _, _, is_twofold, is_batch_first = node.args
    name = readers.values.get(source.name)
    is_fresh = all(isinstance(readers.values.get(one.name), np.ndarray) for one in state)
    path = module_of(node) or node.name
    layers = readers.layers[node.name] = list[str]()
    if is_twofold or not is_batch_first or not is_fresh or not isinstance(name, str):
        readers.refused.append(NotTaken(operator="aten.lstm", name=path))
        readers.unknown.add(node.name)
        return True
    each = 4 if has_bias else 2
    for layer in range(num_layers):
        given = weights[layer * each : (layer + 1) * each]
        of = [readers.values[one.name] for one in given]
        output = f"{node.name}_{layer}"
        readers.operators[output] = Recurrence(
            name=path,
            inputs=(name,),
            output=output,
            weight=of[0],
            hidden=of[1],
            bias=of[2] + of[3] if has_bias else np.zeros(len(of[0])),
        )
        readers.shapes[output] = (readers.shapes[name][0], of[1].shape[1])
        layers.append(output)
        name = output
    return True


def _read_output(readers: ReadSoFar, node: Any) -> bool:
    source, index = node.args
    layers = readers.layers.get(source.name, [])
    readers.values[node.name] = None
    if source.name in readers.unknown:
        readers.unknown.add(node.name)
    if layers and index == _STEPS:
        readers.values[node.name] = layers[-1]
    if layers and index == _LAST:
        readers.layers[node.name] = layers
    return True


def _read_zeros(readers: ReadSoFar, node: Any) -> bool:
    """Read the state that an LSTM begins with."""
    readers.values[node.name] = np.zeros(())
    return True


def _read_selection(readers: ReadSoFar, node: Any) -> bool:
    """Read one step of a sequence, or the last one of a layer; return whether it is one."""
    source, axis, index = node.args
    layers = readers.layers.get(source.name)
    if layers and axis == 0:
        _select(readers, node, layers[index], -1)
        return True
    name = readers.values.get(source.name)
    if axis != 1 or not isinstance(name, str) or name in readers.pictures:
        return False
    _select(readers, node, name, index)
    return True


def _select(readers: ReadSoFar, node: Any, name: str, index: int) -> None:
    length, *rest = readers.shapes[name]
    readers.operators[node.name] = Selection(
        name=module_of(node) or node.name,
        inputs=(name,),
        output=node.name,
        index=index % length,
    )
    readers.values[node.name] = node.name
    readers.shapes[node.name] = tuple(rest)


RECURRENT_READERS: Mapping[str, Callable[[ReadSoFar, Any], bool]] = {
    "zeros": _read_zeros,
    "lstm": _read_layers,
    "getitem": _read_output,
    "select": _read_selection,
}
