"""A network while its nodes are read."""

from __future__ import annotations

from typing import Any

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
        self.input = ""
