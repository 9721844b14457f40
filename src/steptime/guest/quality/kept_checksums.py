"""Keeps checksums of a run at updates 1, 2, 4, 8 …: batch, loss, gradients, weights.

`steptime run --checksums` asks for it, and `compare --first-difference` reads them. At level 2 each
module has its own, and those of what it returned; at level 1 there is one for all; level 3 is level
2 in each of the first updates. What is read is left as it is: nothing is drawn, and no graph is
touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from json import dumps
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from ...record import kinds
from ...record.files import MAX_RANKS, checksum_file
from ..frameworks.torch.layer_hooks import hook_modules
from ..health.weight_check import weights_of
from ..hooks.patching import without_dynamo
from ..timeline.recorder import append
from .checksums import crc_of, crc_of_tensor, leaves
from .quality_lines import find_rank

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext

BY_MODULE, EACH_UPDATE = 2, 3
MAX_EACH = 2_000
"""Updates of level 3: a line of 100 modules has some 10 kB."""

MAX_ROWS = 20_000
"""Calls of modules in one update; a recurrent cell that is called in a loop has thousands."""


class KeptChecksums:
    """Takes checksums in updates whose number is a power of two; sleeps in all others."""

    def __init__(self, context: TorchContext, level: int) -> None:
        self.context = context
        self.by_module = level >= BY_MODULE
        self.num_each = MAX_EACH if level >= EACH_UPDATE else 0
        self.unhook: Callable[[], None] | None = None
        self.names: dict[int, str] = {}
        self.depth = self.num = self.spent_ns = 0
        self.is_open = False
        self.path = ""
        self.row: dict[str, Any] = {}
        self.begin()

    # -- the calls of modules, as `hook_modules` wants them

    def takes(self, journal: Any) -> bool:
        """Return whether a call is looked at: of the training, with gradients."""
        return self.is_open and self.context.is_grad_enabled()

    def begin_call(self, module: Any, args: Any, kwargs: Any) -> None:
        """Take the batch: what the outermost call of a model is given."""
        self.depth += 1
        if self.depth == 1:
            began = perf_counter_ns()
            self.row["batch"] = crc32(str(crc_of((args, kwargs))).encode(), self.row["batch"])
            self._learn(module)
            self.spent_ns += perf_counter_ns() - began

    def see_result(self, module: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take what a module returned, in the order in which they return."""
        if self.by_module and len(self.row["outputs"]) < MAX_ROWS:
            began = perf_counter_ns()
            self.row["outputs"].append([self._name(module), crc_of(list(_tensors(result)))])
            self.spent_ns += perf_counter_ns() - began

    def end_call(self) -> None:
        """End a call, however it ended."""
        self.depth -= 1

    # -- updates

    def begin(self) -> None:
        """Begin to look: the next update is one whose checksums are kept."""
        self.row = {"batch": 0, "loss": [], "outputs": []}
        self.depth, self.is_open = 0, True
        self.unhook = hook_modules(self.context, cast("Any", _AsLook(self)))

    def see_loss(self, args: Any) -> None:
        """Take what the script goes backward from."""
        for root in leaves(args[:1]) if self.is_open else ():
            if hasattr(root, "detach"):
                self.row["loss"].append(float(root.detach().double().sum()).hex())

    def before_step(self, optimizer: Any) -> None:
        """Take gradients, and the weights from which the update starts."""
        if self.is_open:
            began = perf_counter_ns()
            weights = list(weights_of((optimizer,)))
            self.row["before"] = self._of(weights)
            found = [one for one in weights if one.grad is not None]
            self.row["gradients"] = self._of(found, lambda one: one.grad)
            norms = [float(one.grad.detach().double().norm()) for one in found if _is_dense(one)]
            self.row["norm"] = sum(norm * norm for norm in norms) ** 0.5
            self.spent_ns += perf_counter_ns() - began

    def after_step(self, optimizer: Any) -> None:
        """Write the line of an update that is kept; then see whether the next one is."""
        self.num += 1
        if self.is_open:
            began = perf_counter_ns()
            self.row["weights"] = self._of(list(weights_of((optimizer,))))
            self.spent_ns += perf_counter_ns() - began
            self._write()
        if (self.num + 1) & self.num == 0 or self.num < self.num_each:
            self.begin()

    def _write(self) -> None:
        self.is_open = False
        if self.unhook is not None:
            self.unhook()
            self.unhook = None
        row = {"k": kinds.CHECKSUMS, "n": self.num, "ns": self.spent_ns, **self.row}
        append(self.path or self._claim(), dumps(row) + "\n")
        self.row, self.spent_ns = {}, 0

    def _claim(self) -> str:
        """Make the file of this rank; a process without a rank takes the first free number."""
        rank, _ = find_rank(self.context.torch)
        for number in range(MAX_RANKS) if rank is None else (rank,):
            self.path = os.path.join(self.context.recorder.run, checksum_file(number))
            with suppress(FileExistsError):
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
                os.close(os.open(self.path, flags, 0o644))
                break
        return self.path

    # -- names and sums

    def _of(self, weights: list[Any], part: Callable[[Any], Any] = lambda one: one) -> Any:
        """Return rows of names with their checksum; at level 1 a single row of all."""
        if not self.by_module:
            total = 0
            for one in weights:
                total = crc_of_tensor(_whole(part(one)), total)
            return [["", total]]
        return [[self._name(one), crc_of_tensor(_whole(part(one)))] for one in weights]

    def _learn(self, model: Any) -> None:
        for name, module in model.named_modules():
            self.names.setdefault(id(module), name)
        for name, weight in model.named_parameters():
            self.names.setdefault(id(weight), name)

    def _name(self, thing: Any) -> str:
        return self.names.get(id(thing), type(thing).__name__)


class _AsLook:
    """Gives `hook_modules` the names that it calls."""

    def __init__(self, kept: KeptChecksums) -> None:
        self.takes, self.end = kept.takes, kept.end_call
        torch, guarded = kept.context.torch, kept.context.guarded
        begin = without_dynamo(torch, kept.begin_call)
        see = without_dynamo(torch, kept.see_result)
        self.begin = lambda *args: guarded("checksums", begin, *args)
        self.see_result = lambda *args: guarded("checksums", see, *args)


def _tensors(result: Any) -> Any:
    return (leaf for leaf in leaves(result) if hasattr(leaf, "data_ptr"))


def _whole(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _is_dense(weight: Any) -> bool:
    return str(weight.grad.layout) == "torch.strided"


def install_checksums(context: TorchContext, level: int) -> None:
    """Keep checksums from the first update on: the user asked for that."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    kept = KeptChecksums(context, level)
    context.checksums, guarded = kept, context.guarded
    context.see_loss = lambda args: guarded("checksums", kept.see_loss, args)
    first: list[Any] = []

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if len(context.journal.optimizers) == 1 and (not first or first[0] == id(optimizer)):
            first[:] = [id(optimizer)]
            guarded("checksums", kept.before_step, optimizer)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not context.journal.optimizers and first == [id(optimizer)]:
            guarded("checksums", kept.after_step, optimizer)

    for hook in (before, after):
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    context.undo += [
        register_optimizer_step_pre_hook(before).remove,
        register_optimizer_step_post_hook(after).remove,
    ]
