"""Notes where each `tf.data` transformation was called, and tells the chain of a pipeline.

Nothing is put on a data set: the lines are kept beside, for as long as the data set lives.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..sites.file_owners import USERS, FileOwners

READERS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
"""Their inputs are lists of files that they make themselves."""

PYTHON_OPERATORS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
RANDOM_OPERATOR = re.compile(
    r"Random|Multinomial|StatelessMultinomial|TruncatedNormal|ParameterizedTruncated"
)
MAX_FRAMES = 200
MAX_CHAIN = 200
"""Longer chains are cut: somebody concatenates in a loop."""

Row = dict[str, Any]


class PipelineCalls:
    """Where the script made each data set; `owners` tells its files from those of libraries."""

    def __init__(self, owners: FileOwners) -> None:
        self.owners = owners
        self.places: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()

    def hook(self, dataset_class: Any, guarded: Callable[..., None]) -> None:
        """Note the script's line each time a data set is made."""
        original = dataset_class.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            guarded(note, self)

        note = self._note
        dataset_class.__init__ = functools.update_wrapper(__init__, original)

    def chain(self, dataset: Any) -> list[Row]:
        """Return what made a pipeline, its last transformation first, with lines and settings."""
        return [self._row(one) for one in _walk(dataset)][:MAX_CHAIN]

    def _note(self, dataset: Any) -> None:
        place = self._place()
        if place is not None:
            self.places[dataset] = place

    def _place(self) -> tuple[str, int] | None:
        frame = sys._getframe(3)
        for _ in range(MAX_FRAMES):
            file = frame.f_code.co_filename
            if self.owners.owner(file) == USERS:
                return os.path.abspath(file), frame.f_lineno
            if frame.f_back is None:
                return None
            frame = frame.f_back
        return None

    def _row(self, dataset: Any) -> Row:
        file, line = self.places.get(dataset, (None, None))
        operators = _operators(dataset)
        number = _number(dataset.cardinality())
        return {
            "class": type(dataset).__name__,
            "file": file,
            "line": line,
            "parallel": _number(getattr(dataset, "_num_parallel_calls", None)),
            "reads": _number(getattr(dataset, "_num_parallel_reads", None)),
            "batch": _number(getattr(dataset, "_batch_size", None)),
            "count": number if number is not None and number >= 0 else None,
            "draws": None if operators is None else any(map(RANDOM_OPERATOR.match, operators)),
            "python": None if operators is None else not operators.isdisjoint(PYTHON_OPERATORS),
        }


def _walk(dataset: Any) -> Iterator[Any]:
    yield dataset
    if not type(dataset).__name__.startswith(READERS):
        for one in dataset._inputs():
            yield from _walk(one)


def _operators(dataset: Any) -> set[str] | None:
    """Return the operators of a transformation's function; None where it has none."""
    function = getattr(dataset, "_map_func", None) or getattr(dataset, "_predicate", None)
    if function is None:
        return None
    graph = function.function.graph.as_graph_def()
    nodes = list(graph.node)
    for one in graph.library.function:
        nodes += one.node_def
    return {str(node.op) for node in nodes}


def _number(value: Any) -> int | None:
    """Return a setting as a number; None where there is none, or only a graph knows it."""
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
