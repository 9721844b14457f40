"""A network while its nodes are read."""

from __future__ import annotations

from typing import Any

from steptime.quantize.exported_nodes import shape_of
from steptime.quantize.trained_network import NotTaken, Operator, Shape


class ReadSoFar:
    """What was read.

    Attributes:
        values: of a node: an array, or the name of a value.
        operators: by the name of what they make, in order.
        shapes: of each value, without the batch.
        pictures: values whose channels are last here, and first in training.
        refused: what is in no table.
        unknown: values that rest on what was refused.
        input: the name of the input.
        layers: of an LSTM, the output of each layer.
        num_users: how many nodes read a value.
        splits: of a split, what is split, and along which axis.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.operators: dict[str, Operator] = {}
        self.shapes: dict[str, Shape] = {}
        self.pictures: set[str] = set()
        self.layers: dict[str, list[str]] = {}
        self.splits: dict[str, tuple[str, int]] = {}
        self.refused: list[NotTaken] = []
        self.unknown: set[str] = set()
        self.num_users: dict[str, int] = {}
        self.input = ""

    def put(self, node: Any, made: Operator | None, *, is_picture: bool = False) -> None:
        """Keep what makes the value of a node; None for a value that nothing here makes."""
        shape = shape_of(node)
        if is_picture:
            shape = (shape[1], shape[2], shape[0]) if len(shape) == 3 else (1, shape[1], shape[0])
            self.pictures.add(node.name)
        self.values[node.name] = node.name
        self.shapes[node.name] = shape
        self.num_users[node.name] = len(node.users)
        if made is not None:
            self.operators[node.name] = made


class NotInTable(Exception):  # noqa: N818
    """Something that no operator of the table does."""
