"""What the ranks of a data-parallel model hold and get: a few weights, and the first inputs.

DDP makes weights equal when it wraps a model, and averages gradients; so weights stay equal, and
inputs differ. Each rank writes what it sees into its own file, and the parent compares: nothing is
exchanged. In: models that DDP wraps. Out: lines `rp` and `ri`.
"""

from __future__ import annotations

import sys
import weakref
from json import dumps
from typing import Any

from ...record import kinds
from ..health.weight_check import weights_of
from ..order.row_digests import leaves_of
from ..quality.checksums import crc_of
from .few_elements import Elements, ask_elements

MAX_MODELS = 4
MAX_SAMPLED = 4096
"""Weights are read at the start and after 1, 2, 4, … updates, up to this number."""

NUM_WEIGHTS, NUM_ELEMENTS = 4, 4
"""Weights of a model that are read, and elements of each: replicas that drift do so everywhere."""

NUM_INPUTS = 4
"""Forward calls whose inputs are compared."""

MIN_ELEMENTS = 8
"""Fewer may be the number of a step, which ranks share."""

MAX_BYTES = 1 << 20
FEW = 256
"""Elements of each input on a device, and of the large ones."""


class Replicas:
    """The data-parallel models of a process; a process without one pays for nothing."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.models: list[Any] = []  # weak references, as all others here
        self.calls: Any = None
        self.ranks: list[int] = []
        self.held: dict[int, Any] = {}  # their weights
        self.weights: list[Any] = []  # that are read; the first reading chooses them
        self.due = 0  # updates after which weights are read
        self.is_local = False  # the last backward call exchanges nothing
        self.num_updates = self.num_local = 0
        self.left: Elements | None = None  # what the last update left behind, where it is read
        self.pending: list[tuple[dict[str, Any], Elements, Elements | None]] = []
        self.inputs: list[Elements | str] = []
        self.awaits: Any = None  # the model whose inputs are compared, while they are
        self.num_calls = 0  # collectives before that call
        self.talks = False

    def meet(self, model: Any, calls: Any) -> None:
        """Take a model that DDP has wrapped, and the record of the collectives."""
        ranks = self.torch.distributed.get_process_group_ranks(model.process_group)
        is_known = not self.models or self.ranks == ranks
        if len(ranks) < 2 or calls is None or not is_known or len(self.models) == MAX_MODELS:
            return
        if not self.models:
            self.calls, self.ranks, self.awaits = calls, list(ranks), weakref.ref(model)
        self.models.append(weakref.ref(model))
        self.held |= {id(one): weakref.ref(one) for one in model._module_parameters}

    # -- weights

    def begin_backward(self, *, may_read: bool) -> None:
        """Take the beginning of a backward call; perhaps weights are read.

        The script may have averaged the weights of ranks since the last update, and may disturb
        those of its own later. So they are read where the first backward call after it begins.
        """
        models = living(self.models)
        self.is_local = any(
            not (one.require_backward_grad_sync or one.require_forward_param_sync) for one in models
        )
        num = self.num_updates
        if num >= self.due:
            self.due = 1 << num.bit_length() if num < MAX_SAMPLED else sys.maxsize
            if may_read and (self.left is not None or not num):
                self._read(models, num)
            self.left = None

    def end_step(self, optimizer: Any, *, may_read: bool) -> None:
        """Take the end of an update; one of other weights, on one rank perhaps, does not count."""
        first = next(weights_of((optimizer,)), None)
        if first is None or (known := self.held.get(id(first))) is None or known() is not first:
            return
        self.num_updates += 1
        self.num_local += self.is_local
        if self.num_updates == self.due and may_read and self.weights:
            self.left = self._ask_weights()

    def _ask_weights(self) -> Elements | None:
        weights = living(self.weights)
        is_whole = len(weights) == len(self.weights)
        return ask_elements(self.torch, weights, NUM_ELEMENTS) if is_whole else None

    def _read(self, models: list[Any], num_updates: int) -> None:
        if not self.weights:
            self.weights = [weakref.ref(each) for one in models for each in some_of(one)]
            self.calls.largest = 0
        asked = self._ask_weights()
        if asked is None:
            return
        logged = [one._get_ddp_logging_data() for one in models]
        facts = {
            "n": num_updates,
            "ranks": self.ranks,
            "largest": max(one.numel() for one in living(self.weights)),
            "moved": None if self.calls.is_off else self.calls.largest,
            "hooked": any(one._comm_hooks for one in models),
            "exchanges": max(int(one.get("iteration", 0)) for one in logged),
            "local": self.num_local,
        }
        self.pending.append((facts, asked, self.left))

    # -- inputs

    def begin_call(self, module: Any, args: Any, kwargs: Any, *, may_read: bool) -> None:
        """Take a call of that model, with gradients, that begins."""
        found = self._ask_inputs(args, kwargs) if may_read else None
        if found is None:
            self.awaits = None
            return
        self.num_calls = self.calls.num_calls
        self.inputs.append(found)

    def end_call(self, module: Any) -> None:
        """Take its end: ranks that exchange something in it may share a sample."""
        if self.awaits is not None and module is self.awaits():
            self.talks |= self.calls.num_calls != self.num_calls
            if len(self.inputs) == NUM_INPUTS:
                self.awaits = None

    def _ask_inputs(self, args: Any, kwargs: Any) -> Elements | str | None:
        torch = self.torch
        leaves = [one for one in leaves_of(torch, (args, kwargs)) if hasattr(one, "nbytes")]
        tensors = [one for one in leaves if isinstance(one, torch.Tensor) and one.dim()]
        if sum(one.numel() for one in tensors) < MIN_ELEMENTS:
            return None
        size = sum(int(one.nbytes) for one in leaves)
        if size > MAX_BYTES or not all(one.is_cpu for one in tensors):
            return ask_elements(torch, tensors, FEW)
        return f"{crc_of(tensors):08x}"

    # -- lines

    def poll(self) -> str:
        """Return the lines that are new."""
        if not self.models:
            return ""
        waiting, lines = self.pending, []
        self.pending = []
        for facts, asked, left in waiting:
            values, before = asked.take(), None if left is None else left.take()
            if values is None or (left is not None and before is None):
                self.pending.append((facts, asked, left))
                continue
            facts |= {"values": values, "written": before not in (None, values)}
            lines.append(dumps({"k": kinds.REPLICAS, **facts}) + "\n")
        if len(self.inputs) == NUM_INPUTS and self.awaits is None and (line := self._tell_inputs()):
            lines.append(line)
            self.inputs = []
        return "".join(lines)

    def _tell_inputs(self) -> str:
        taken = [one if isinstance(one, str) else one.take() for one in self.inputs]
        if None in taken:
            return ""
        told = [one if isinstance(one, str) else f"{crc_of(one):08x}" for one in taken]
        facts = {"ranks": self.ranks, "digests": told, "talks": self.talks}
        return dumps({"k": kinds.RANK_INPUTS, **facts}) + "\n"


def living(references: list[Any]) -> list[Any]:
    """Return the objects of weak references that still live."""
    return [found for one in references if (found := one()) is not None]


def some_of(model: Any) -> list[Any]:
    """Return a few of the weights whose gradients DDP averages, spread over the model."""
    weights = [one for one in model._module_parameters if one.requires_grad]
    last = len(weights) - 1
    places = {round(last * i / max(1, NUM_WEIGHTS - 1)) for i in range(NUM_WEIGHTS)}
    return [weights[place] for place in sorted(places)] if weights else []
