"""How long the script's loggers take between its phases: TensorBoard, tensorboardX, W&B.

In: calls from wrappers on the libraries' own classes. Out: lines `lg` with sums by library; the
last line counts. What a logger does in a thread of its own costs the script nothing, and is not
seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from json import dumps
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ...record import kinds
from ...record.buckets import NUM_BUCKETS
from ..hooks.patching import drop_frame, replace

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext

LIBRARIES = (
    ("torch.utils.tensorboard.writer", "tensorboard", "SummaryWriter", ("add_", "flush")),
    ("tensorboardX.writer", "tensorboardX", "SummaryWriter", ("add_", "flush")),
    ("wandb.sdk.wandb_run", "wandb", "Run", ("log",)),
)
"""A module, the library's name, its class, and how the names of its methods begin."""

DUE_NS = 2_000_000_000


class LoggingWatcher:
    """Sums up the calls of loggers in the threads that step, outside of phases and spans."""

    place = "logging"

    def __init__(self, context: TorchContext, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.context = context
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.sums: dict[str, list[int]] = {}
        self.told: dict[str, list[int]] = {}
        self.due_ns = 0
        self.is_inside = False

    def is_awake(self) -> bool:
        """Return whether a call now is between the phases of a step, and not inside another."""
        journal = self.context.local.journal
        return journal.num_updates > 0 and not (self.is_inside or 0 < journal.top < NUM_BUCKETS)

    def add(self, library: str, spent_ns: int) -> None:
        """Take a call."""
        found = self.sums.setdefault(library, [0, 0])
        found[0] += 1
        found[1] += spent_ns

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the sums, if they have changed, every other second."""
        now = self.clock()
        if self.sums == self.told or (now < self.due_ns and not is_last):
            return ""
        self.due_ns = now + DUE_NS
        self.told = {name: list(values) for name, values in self.sums.items()}
        rows = [[name, *values] for name, values in sorted(self.told.items())]
        return dumps({"k": kinds.LOGGING, "rows": rows}) + "\n"


def hook_loggers(context: TorchContext, targets: dict[str, Callable[[Any], None]]) -> None:
    """Watch the loggers, once something imports them."""
    book = LoggingWatcher(context)
    context.recorder.watchers.append(book)
    for module_name, library, class_name, beginnings in LIBRARIES:
        hook = functools.partial(_hook_class, book, library, class_name, beginnings)
        targets[module_name] = functools.partial(context.guarded, "loggers", hook)


def _hook_class(
    book: LoggingWatcher, library: str, class_name: str, beginnings: tuple[str, ...], module: Any
) -> None:
    owner = getattr(module, class_name)
    for name, method in list(vars(owner).items()):
        if name.startswith(beginnings) and callable(method):
            replace(owner, name, _timed(book, method, library))


def _timed(book: LoggingWatcher, original: Any, library: str) -> Any:
    clock, context = book.clock, book.context
    is_compiling = context.torch.compiler.is_dynamo_compiling

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not book.is_awake():
            return original(*args, **kwargs)
        book.is_inside = True
        began = clock()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            book.is_inside = False
            context.guarded("logging", book.add, library, clock() - began)

    return wrapper
