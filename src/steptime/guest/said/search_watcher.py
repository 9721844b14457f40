"""What DDP's search for unused parameters finds, and how long it takes.

torch says on standard error that a search was for nothing, where nobody reads it. DDP's logging
data tells the same of each iteration; the time is that of DDP's own part after the model's forward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import dumps
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ...record import kinds
from ..hooks.patching import drop_frame, replace

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext

DUE_NS = 2_000_000_000


class SearchWatcher:
    """Counts the iterations of models that search, and those in which a parameter was unused."""

    place = "search"

    def __init__(self, context: TorchContext, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.context = context
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.num_iterations = self.num_with_unused = 0
        self.num_searches = self.total_ns = self.due_ns = 0

    def see(self, data: Mapping[str, Any]) -> None:
        """Take DDP's logging data of an iteration."""
        if data.get("find_unused_parameters") and not data.get("static_graph"):
            self.num_iterations += 1
            self.num_with_unused += bool(data.get("unused_parameter_size"))

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the sums every other second."""
        now = self.clock()
        if not self.num_iterations or (now < self.due_ns and not is_last):
            return ""
        self.due_ns = now + DUE_NS
        line = {
            "k": kinds.SEARCH,
            "iterations": self.num_iterations,
            "with_unused": self.num_with_unused,
            "searches": self.num_searches,
            "total_ns": self.total_ns,
        }
        return dumps(line) + "\n"


def watch_searches(context: TorchContext, ddp_class: Any) -> SearchWatcher:
    """Time what each model that searches does after its forward, from now on."""
    watcher = SearchWatcher(context)
    context.recorder.watchers.append(watcher)
    original = ddp_class._post_forward
    is_compiling, clock = context.torch.compiler.is_dynamo_compiling, watcher.clock

    def _post_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not self.find_unused_parameters:
            return original(self, *args, **kwargs)
        began = clock()
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        watcher.total_ns += clock() - began
        watcher.num_searches += 1
        return result

    replace(ddp_class, "_post_forward", _post_forward)
    return watcher
