"""Is the graph of an update still alive many updates later: something keeps it, and it grows.

A loss that is summed without `.item()`, or a state that is carried on without `detach`, keeps the
graph of each update. In four updates some nodes of the graph get a pre-hook that does nothing;
it lives as long as its node does, which a weak reference shows. Of later graphs, only nodes count
that were made since the last marked update: what is made once from an input is in every graph.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from json import dumps
from typing import TYPE_CHECKING, Any

from ...record import kinds
from .tensor_bounds import is_autograd_compiled

if TYPE_CHECKING:
    from ..timeline.recorder import Recorder

NUM_MARKED = 4
MARK_EVERY = 8
"""Updates between the graphs that are marked; the first one is that of update 9."""

CHECK_AT = (64, 256, 1024, 4096)
"""Updates. A training that ends earlier is checked at its end."""

MIN_AGE = 12
"""Updates after the last mark, below which nothing is said: some loops run a few updates ahead."""

MAX_TRIES = 16
NEVER = sys.maxsize

MAX_NODES = 2_000
"""Nodes of a graph that are walked."""

MAX_MARKS = 48
"""Nodes of a graph that are marked, evenly spaced in the order of the walk."""


class GraphMark:
    """A pre-hook that does nothing; only its life is of interest."""

    __slots__ = ("__weakref__",)

    def __call__(self, gradients: Any) -> None:
        """Leave the gradients as they are."""


class GraphMarks:
    """Marks the graphs of a few updates, and tells which of them are still alive.

    `due` is the number of updates at which there is something to do next.
    """

    place = "graphs"

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.marks: dict[int, list[Any]] = {}
        self.newest = -1  # autograd's number of the root that was marked last
        self.line = ""
        self.num_tries = 0
        self.due = MARK_EVERY

    def see(self, args: Any, num_updates: int) -> None:
        """Take the arguments of a backward call before which so many updates have ended."""
        if len(self.marks) < NUM_MARKED:
            self.num_tries += 1
            self.due = num_updates + MARK_EVERY if self.num_tries < MAX_TRIES else NEVER
            self._mark(args[0] if args else None, num_updates)
        else:
            self._check(num_updates)
        if len(self.marks) == NUM_MARKED:
            self.due = next((number for number in CHECK_AT if number > num_updates), NEVER)

    def _mark(self, root: Any, number: int) -> None:
        torch = self.torch
        if type(root) is not torch.Tensor or torch._C._len_torch_function_stack():
            return
        if root.grad_fn is None or is_autograd_compiled():
            return
        nodes = [one for one in nodes_of(root.grad_fn) if one._sequence_nr() > self.newest]
        self.newest = root.grad_fn._sequence_nr()
        every = max(1, -(-len(nodes) // MAX_MARKS))
        marks = []
        for node in nodes[::every]:
            mark = GraphMark()
            node.register_prehook(mark)
            marks.append(weakref.ref(mark))
        self.marks[number] = marks

    def _check(self, number: int) -> None:
        """Make the line that says whether all marked graphs are alive.

        One graph alone may be kept on purpose, that of the best update for example.
        """
        alive = [any(ref() is not None for ref in marks) for marks in self.marks.values()]
        facts = {"n": number, "marked": list(self.marks), "is_kept": all(alive)}
        self.line = dumps({"k": kinds.GRAPHS_KEPT, **facts}) + "\n"

    def give_up(self) -> None:
        """Mark no more: each step is compared with others."""
        self.due = NEVER

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the line, if there is a new one; the last one counts."""
        journals = self.recorder.journals
        if is_last and len(self.marks) == NUM_MARKED and journals:
            number = journals[0].num_updates
            if number >= max(self.marks) + MIN_AGE:
                self._check(number)
        line, self.line = self.line, ""
        return line


def nodes_of(root: Any) -> list[Any]:
    """Return nodes of a graph, from its root on, without those of weights, which always live."""
    found: list[Any] = []
    waiting, known = deque([root]), {id(root)}
    kept = [root]  # an id is good only as long as its object lives
    while waiting and len(found) < MAX_NODES:
        node = waiting.popleft()
        if type(node).__name__ == "AccumulateGrad":
            continue
        found.append(node)
        for below, _ in node.next_functions:
            if below is not None and id(below) not in known:
                known.add(id(below))
                kept.append(below)
                waiting.append(below)
    return found


TAKE_TENSORS = (GraphMark.__call__,)
"""Functions that autograd calls with tensors (`hooks/patching.py` says why that matters)."""
