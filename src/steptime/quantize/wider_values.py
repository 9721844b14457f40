"""Says which values of a network are kept wider than a byte, where layers are.

A layer that is kept in 16 bits reads and writes values of 16 bits; one in floats writes floats, and
reads what there is. What lies between carries the bits of its input. Before what cannot read so
wide a value stands a `Requantization`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from steptime.errors import UsageError
from steptime.quantize.scheme import FLOAT, WIDE
from steptime.quantize.trained_network import (
    Addition,
    AxisPart,
    Concatenation,
    Convolution,
    Matmul,
    Network,
    Operator,
    Pooling,
    Reorder,
    Requantization,
    Reshape,
    Selection,
)

FORMS: Mapping[str, int] = {"int16": WIDE, "fp32": FLOAT}
LAYERS = (Convolution, Matmul)
_CARRIERS = (Reshape, Pooling, Reorder, Selection, AxisPart)
_READERS = (*LAYERS, Addition, Concatenation)
"""What reads values of 16 bits beside carriers."""
_WRITERS = (*LAYERS, Addition)


def kept_layers(network: Network, keep: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the bits of each layer that is kept wider, by the name of its output.

    Args:
        network: in which they are.
        keep: names of layers, or patterns as of the shell, each with `int16` or `fp32`; of several
            that fit a layer the last one counts.

    Raises:
        UsageError: a name is unknown, or of what can only be in bytes, or a form is unknown.
    """
    found = dict[str, int]()
    for pattern, form in keep:
        if form not in FORMS:
            raise UsageError(
                f"--keep: `{pattern}={form}` names no form that a layer can be kept in.",
                hint=f"Write `{pattern}=int16` or `{pattern}=fp32`.",
            )
        named = [one for one in network.operators if fnmatchcase(one.name, pattern)]
        layers = [one for one in named if isinstance(one, LAYERS)]
        if not layers:
            kinds = ", ".join(dict.fromkeys(type(one).__name__.lower() for one in named))
            odd = f"`{pattern}` is no convolution and no linear layer ({kinds})"
            known = {f"`{one.name}`": 0 for one in network.operators if isinstance(one, LAYERS)}
            raise UsageError(
                f"--keep: {odd}, so it cannot be kept in {form}."
                if named
                else f"--keep: the network has no layer `{pattern}`.",
                hint=f"These can be kept: {', '.join(known) or 'none'}.",
            )
        found |= {one.output: FORMS[form] for one in layers}
    return found


def widened(network: Network, kept: Mapping[str, int]) -> Network:
    """Return the network with the bits of its values, and with roundings between them.

    Args:
        network: all of whose values are bytes.
        kept: the bits of layers that are kept wider, by the name of their output.
    """
    bits = _bits(network, kept)
    operators, shapes = list[Operator](), dict(network.shapes)
    pictures, known = set(network.pictures), set[str]()
    for one in network.operators:
        inputs = []
        for name in one.inputs:
            if bits[name] > _most_bits(one, kept):
                most = WIDE if kept.get(one.output) == WIDE else 8
                made = f"{name}_{most}_bits"
                if made not in known:
                    operators.append(Requantization(name=one.name, inputs=(name,), output=made))
                    shapes[made], bits[made] = shapes[name], most
                    pictures |= {made} if name in pictures else set()
                    known.add(made)
                name = made  # noqa: PLW2901
            inputs.append(name)
        operators.append(replace(one, inputs=tuple(inputs)))
    return replace(
        network,
        shapes=shapes,
        pictures=frozenset(pictures),
        operators=tuple(operators),
        bits=bits,
    )


def _most_bits(one: Operator, kept: Mapping[str, int]) -> int:
    """Return how wide a value an operator can read."""
    if isinstance(one, _CARRIERS) or kept.get(one.output) == FLOAT:
        return FLOAT
    return WIDE if isinstance(one, _READERS) else 8


def _bits(network: Network, kept: Mapping[str, int]) -> dict[str, int]:
    wide = _wanted(network, kept, WIDE)
    bits = {network.input: WIDE if network.input in wide else 8}
    if network.input in _wanted(network, kept, FLOAT):
        bits[network.input] = FLOAT
    for one in network.operators:
        bits[one.output] = 8
        if kept.get(one.output) == FLOAT:
            bits[one.output] = FLOAT
        elif isinstance(one, _CARRIERS):
            bits[one.output] = bits[one.inputs[0]]
        elif isinstance(one, _WRITERS) and one.output in wide:
            bits[one.output] = WIDE
    return bits


def _wanted(network: Network, kept: Mapping[str, int], most: int) -> set[str]:
    """Return the values that layers of so many bits read and write, also through carriers."""
    names = {one.output for one in network.operators if kept.get(one.output) == most}
    for one in reversed(network.operators):
        is_read = kept.get(one.output) == most
        if is_read or (isinstance(one, _CARRIERS) and one.output in names):
            names.add(one.inputs[0])
    return names
