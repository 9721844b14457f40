"""Reads a trained network by `torch.export` into a `Network`.

In: a module in evaluation mode, and an example input. Out: the operators, or one error that names
all that is not in the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from steptime.errors import UsageError
from steptime.quantize.exported_nodes import constants
from steptime.quantize.node_readers import NodeReaders
from steptime.quantize.plain_attention import with_plain_attention
from steptime.quantize.trained_network import Network, NotTaken, Operator

_EXPORT_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, AssertionError)
"""What torch's exporter and the forward of a network raise; its own errors are RuntimeErrors."""


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Keep a module in evaluation mode, and give each of its parts back in the mode it had."""
    modes = [(one, one.training) for one in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for one, was in modes:
            one.training = was


def capture(model: Any, example: Any) -> tuple[Network, Any]:
    """Return the network of a module, and torch's exported program of it.

    Args:
        model: a `torch.nn.Module` in evaluation mode.
        example: an input with a batch of two or more.

    Raises:
        UsageError: torch cannot export it, or an operator is not in the table.
    """
    import torch

    batch = torch.export.Dim.AUTO
    model = with_plain_attention(model.eval())
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own modules, such as its LSTM
            program = torch.export.export(model, (example,), dynamic_shapes=({0: batch},))
    except _EXPORT_ERRORS as error:
        told = str(error).strip().splitlines()
        raise UsageError(
            f"torch cannot export the network: {told[0] if told else type(error).__name__}",
            hint="Its forward must not depend on the values of its input.",
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)
    return _network_of(program), program


def _network_of(program: Any) -> Network:
    found, known = NodeReaders(), constants(program)
    given = [
        one.arg.name for one in program.graph_signature.input_specs if one.kind.name == "USER_INPUT"
    ]
    if len(given) != 1:
        raise UsageError(f"the network has {len(given)} inputs; one is expected.")
    output = None
    for node in program.graph.nodes:
        if node.op == "placeholder":
            found.read_placeholder(node, known)
        elif node.op == "output":
            (output,) = node.args[0] if len(node.args[0]) == 1 else (None,)
        else:
            found.read(node)
    if output is None:
        raise UsageError("the network has several outputs; one is expected.")
    if found.refused:
        raise _refusal(found.refused, len(found.operators.keys() | found.unknown))
    name = found.values[output.name]
    axes = (1, 2, 0) if found.input in found.pictures else ()
    kept = _needed(found.operators, name)
    return Network(
        input=found.input,
        output=name,
        input_axes=axes or tuple(range(len(found.shapes[found.input]))),
        shapes={key: found.shapes[key] for key in (found.input, *(x.output for x in kept))},
        pictures=frozenset(found.pictures),
        operators=tuple(kept),
    )


def _needed(operators: Mapping[str, Operator], output: str) -> list[Operator]:
    """Return the operators on which the output rests, in order."""
    wanted = {output}
    kept = []
    for name in reversed(list(operators)):
        if name in wanted:
            kept.append(operators[name])
            wanted.update(operators[name].inputs)
    return kept[::-1]


def _refusal(refused: Sequence[NotTaken], num_operators: int) -> UsageError:
    by_kind: dict[str, list[str]] = {}
    for one in refused:
        by_kind.setdefault(one.operator, []).append(f"`{one.name}`")
    names = ", ".join(
        f"{kind} ({where[0]}{f' and {len(where) - 1} more' if where[1:] else ''})"
        for kind, where in by_kind.items()
    )
    return UsageError(
        f"{len(refused)} of {num_operators} operators cannot be made integer: {names}.",
        hint="docs/how-to/quantize.md has the table of operators.",
    )
