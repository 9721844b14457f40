"""A backend of torch.compile that counts, and runs what it is given as it is."""

from __future__ import annotations

from typing import Any


class CountedGraphs:
    """Counts graphs, the operators in them, and their calls."""

    def __init__(self) -> None:
        self.num_graphs = self.num_operators = self.num_calls = 0
        self.num_sizes = 0
        """Inputs that are sizes: a graph that serves several has some."""

    def __call__(self, graph: Any, inputs: Any) -> Any:
        """Take a graph; return what runs it."""
        self.num_graphs += 1
        self.num_operators += sum(node.op.startswith("call_") for node in graph.graph.nodes)
        self.num_sizes += sum(type(one).__name__ in ("SymInt", "int") for one in inputs)

        def run(*args: Any) -> Any:
            self.num_calls += 1
            return graph.forward(*args)

        return run
