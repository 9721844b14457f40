"""Puts the nodes of tf.data's model to the calls of the script that made them.

tf.data rewrites a pipeline before it runs: it fuses `map` and `batch`, adds a `prefetch`, drops
what does nothing. So nodes and calls are walked together, both from the pipeline's end, and
matched by the kind of transformation; what matches no call is part of the stage that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

READERS = ("TFRecord", "TextLine", "FixedLengthRecord")
_READER_NODES = ("FlatMap", "Interleave", *READERS)
_MAKERS = ("FlatMap", "Interleave")
_FUSED = {
    "MapAndBatch": ("Batch", "Map"),
    "ShuffleAndRepeat": ("Repeat", "Shuffle"),
    "MapAndFilter": ("Filter", "Map"),
}
_FORM = re.compile(r"^_|^Parallel|^Padded|^Memory|^File|^Forever|^Finite|Dataset$|V\d+$|Impl$")
_METHODS = {
    "TensorSlice": "from_tensor_slices",
    "Tensor": "from_tensors",
    "Range": "range",
    "Generator": "from_generator",
}


class Node(NamedTuple):
    """A node of tf.data's model, as the guest writes it."""

    id: int
    name: str
    elements: int
    work_ns: int
    num_bytes: int
    num_parallel: float | None
    is_tuned: bool
    inputs: list[int]


@dataclass(slots=True)
class Work:
    """What the nodes of one stage did; `call` is the number in the chain, None: tf.data's own."""

    call: int | None
    kind: str
    elements: int = 0
    work_ns: int = 0
    num_bytes: int = 0
    num_parallel: float | None = None


def kind_of(name: str) -> str:
    """Return what kind of transformation a class or node is: `Map` of `_ParallelMapDataset`."""
    for _ in range(4):
        shorter = _FORM.sub("", name)
        if shorter == name or not shorter:
            break
        name = shorter
    return "Interleave" if name == "LegacyParallelInterleave" else name


def method_of(kind: str) -> str:
    """Return how a script calls it: `flat_map`, `TFRecordDataset`."""
    if kind in READERS:
        return f"{kind}Dataset"
    return _METHODS.get(kind) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()


def latest_nodes(readings: Iterable[Mapping[str, Any]]) -> dict[int, Node]:
    """Return each node of one iterator as it was seen last: at an epoch's end some are gone."""
    found: dict[int, Node] = {}
    for reading in readings:
        for row in reading["nodes"]:
            node = Node(*row)
            known = found.get(node.id)
            if known is not None:
                more = [one for one in node.inputs if one not in known.inputs]
                node = node._replace(inputs=known.inputs + more)
            found[node.id] = node
    return found


def find_work(nodes: Mapping[int, Node], output: int, chain: list[dict[str, Any]]) -> list[Work]:
    """Return the stages of one iterator, the last transformation first.

    Args:
        nodes: by id.
        output: the id of the last one.
        chain: the script's calls, the last transformation first, as the guest wrote them.
    """
    walk = Walk(nodes, chain)
    walk.take(output)
    return walk.stages


class Walk:
    """Goes through the nodes from the output, and through the calls beside."""

    def __init__(self, nodes: Mapping[int, Node], chain: list[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.chain = chain
        self.kinds = [kind_of(row["class"]) for row in chain]
        self.stages: list[Work] = []
        self.following = 0  # the next call that may match

    def take(self, number: int) -> None:
        """Put a node, and what it reads from, to stages."""
        node = self.nodes.get(number)
        if node is None:
            return
        stage = None if node.name == "Root" else self._stage(node)
        for i, one in enumerate(node.inputs):
            # What stands behind the first input was made by its function, element by element.
            if i and stage is not None and kind_of(node.name) in _MAKERS:
                self._take_inner(one, stage)
            else:
                self.take(one)

    def _take_inner(self, number: int, stage: Work) -> None:
        node = self.nodes.get(number)
        if node is None:
            return
        stage.work_ns += node.work_ns
        if node.name == "Generator":
            stage.kind = node.name
        for one in node.inputs:
            self._take_inner(one, stage)

    def _stage(self, node: Node) -> Work:
        """Return the stage of a node, which may be that of the node before."""
        wanted = _FUSED.get(_plain(node.name)) or (kind_of(node.name),)
        matched = [_find(self.kinds, one, self.following) for one in wanted]
        calls = [one for one in matched if one is not None]
        stages = self.stages
        if not calls and stages and "Prefetch" not in (wanted[-1], stages[-1].kind):
            stages[-1].work_ns += node.work_ns
            return stages[-1]
        stages += [Work(call, self.kinds[call]) for call in calls] or [Work(None, wanted[-1])]
        self.following = calls[-1] + 1 if calls else self.following
        last = stages[-1]
        last.work_ns, last.num_bytes = node.work_ns, node.num_bytes
        last.elements, last.num_parallel = node.elements, node.num_parallel
        if len(calls) == 2 and stages[-2].kind == "Batch":  # the node counts batches
            stages[-2].elements = node.elements
            last.elements *= self.chain[calls[0]].get("batch") or 1
        return last


def _find(kinds: list[str], wanted: str, start: int) -> int | None:
    for number in range(start, len(kinds)):
        kind = kinds[number]
        if kind == wanted:
            return number
        # A reader of files becomes a node that goes through the files, with readers below.
        if kind in READERS:
            return number if wanted in _READER_NODES else None
    return None


def _plain(name: str) -> str:
    return re.sub(r"V\d+$", "", name)
