"""Watches frozen modules whose inputs come again, and data sets whose samples do.

A module is frozen if it is in evaluation mode, none of its parameters needs a gradient, and their
values stay: a teacher that follows the weights, or a target network, moves, and is left alone. What
a look costs is compared with what it looks at; a module that takes too little is left alone too.
A frozen part within a model that trains is followed from the model's first call with gradients on.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from json import dumps
from time import perf_counter_ns, thread_time_ns
from typing import Any

from ...record import kinds
from ..hooks.module_tree import modules_of, parameters_of
from ..hooks.patching import pass_as_torchs
from ..order.row_digests import leaves_of
from ..sites.frames import innermost
from .row_book import TAKE_TENSORS as READ_TENSORS
from .row_book import RowBook, read_whole

MAX_KNOWN = 8
"""Modules and data sets that are looked at."""

MAX_SHARE = 0.1
"""What looks may cost: of the calls of a module, or of the time between the batches."""

MAX_NS, MAX_OF_ALL = 100_000_000, 0.002
"""And in all: a tenth of a second, and so much of the time, where nothing comes again."""

NUM_FREE = 8
"""Looks before their cost is judged; the first one loads what it needs."""

SELDOM = 8
"""Calls between two looks at a module's weights, and at rows that are known to come again."""

MAX_WEIGHTS = 8
DUE_NS = 2_000_000_000


class Followed:
    """One module or data set, and the rows that went through it."""

    def __init__(self, torch: Any, owner: Any, name: str, place: tuple[str, int]) -> None:
        self.owner = weakref.ref(owner)
        self.name = name
        self.place = place
        self.book = RowBook(torch)
        self.calls = self.ns = self.looks = self.look_ns = 0
        self.first_ns = perf_counter_ns()
        self.result_bytes = 0
        self.weights: list[int] | None = None
        self.is_dropped = False  # it is not frozen, or no look is worth its cost

    @property
    def is_told(self) -> bool:
        """Whether its rows come again."""
        return not self.is_dropped and self.book.comes_again

    def elapsed_ns(self) -> int:
        """Return the time since it was met."""
        return perf_counter_ns() - self.first_ns

    def is_dear(self, allowed_ns: float) -> bool:
        """Return whether looks cost more than they may, once there were some."""
        most_ns = min(allowed_ns, MAX_NS + MAX_OF_ALL * self.elapsed_ns())
        return self.looks > NUM_FREE and self.look_ns > most_ns

    def row(self, what: str) -> list[Any]:
        """Return the row of the line `ag`."""
        book = self.book
        counts = [self.calls, self.ns, book.num_rows, book.num_distinct]
        return [what, self.name, *self.place, *counts, book.row_bytes, self.result_bytes]


class Repeats:
    """What comes again in this process; a watcher of the recorder's writes."""

    place = "again"

    def __init__(self, context: Any) -> None:
        self.context = context
        self.parts: dict[int, Followed] = {}
        """Frozen parts of models that train: one dictionary, that nested calls ask."""
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.modules: dict[int, Followed | None] = {}
        self.parts.clear()
        self.data_sets: dict[int, Followed] = {}
        self.told = ""
        self.due_ns = 0
        self.is_off = False

    def stop(self) -> None:
        """Look at nothing more."""
        self.is_off = True
        self.parts.clear()

    # -- frozen modules

    def see_call(self, module: Any, args: Any, kwargs: Any, result: Any, ns: int) -> None:
        """Take an outermost call of a module in evaluation mode that took `ns`."""
        if self.is_off or self._is_watched():
            return
        key = id(module)
        known = self.modules.get(key)
        if key not in self.modules or (known is not None and known.owner() is not module):
            known = self._meet(module)
        if known is not None and not known.is_dropped:
            self._take_call(known, module, (args, kwargs), result, ns)

    def _take_call(self, known: Followed, module: Any, given: Any, result: Any, ns: int) -> None:
        known.calls += 1
        known.ns += ns
        is_due = known.calls % SELDOM == 0
        if known.is_told and not is_due:
            return
        began = thread_time_ns()
        torch = self.context.torch
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self._look(known, given, result)
            if is_due and not self._is_still(known, module):
                known.is_dropped = True
        known.look_ns += thread_time_ns() - began
        known.looks += 1
        if not known.is_told and known.is_dear(MAX_SHARE * known.ns):
            known.is_dropped = True

    def _is_watched(self) -> bool:
        """Return whether operators are counted now, by us or by a mode: ours are none of it."""
        return self._is_in_mode() or self.context.local.journal.probe is not None

    def _is_in_mode(self) -> bool:
        c = self.context.torch._C
        return bool(c._len_torch_dispatch_stack() or c._len_torch_function_stack())

    def _meet(self, module: Any) -> Followed | None:
        """Return the entry of a module; None for one that is not frozen."""
        if len(self.modules) > 64:
            self.modules.clear()
        num = sum(one is not None for one in self.modules.values())
        found = None
        if num < MAX_KNOWN and is_frozen(module):
            found = Followed(self.context.torch, module, type(module).__name__, self._place())
        self.modules[id(module)] = found
        return found

    def _place(self) -> tuple[str, int]:
        """Return the line of the script that is running."""
        spot = innermost(self.context.frames.stack(sys._getframe(2)))
        return ("", 0) if spot is None else (str(spot[0]), int(spot[1]))

    # -- frozen parts within a model that trains

    def find_parts(self, model: Any) -> None:
        """Follow the outermost frozen parts of a model that was called with gradients."""
        if self.is_off or self._is_in_mode():
            return
        inside: set[int] = set()
        for path, part in modules_of(model):
            if id(part) in inside or part is model or not is_frozen(part):
                continue
            inner = [one for _, one in modules_of(part)]
            inside.update(map(id, inner))
            if len(self.parts) < MAX_KNOWN and not any(one.training for one in inner):
                name = f"{type(model).__name__}.{path}"
                self.parts[id(part)] = Followed(self.context.torch, part, name, ("", 0))

    def see_part(self, part: Any, given: Any, result: Any, ns: int) -> None:
        """Take a call of a part within the forward of a model that trains."""
        known = self.parts.get(id(part))
        if known is None or self._is_watched():
            return
        if not known.place[1]:
            known.place = self._place()
        known.is_dropped |= part.training or known.owner() is not part
        if not known.is_dropped:
            self._take_call(known, part, given, result, ns)
        if known.is_dropped:
            del self.parts[id(part)]

    def _look(self, known: Followed, given: Any, result: Any) -> None:
        torch = self.context.torch
        tensors, outputs = (
            [one for one in leaves_of(torch, value) if is_plain(torch, one)]
            for value in (given, result)
        )
        needs = any(one.requires_grad for one in (*tensors, *outputs))
        salt = hash(tuple(plain_in(given))) & 0x7FFFFFFF
        if needs or not outputs or not tensors or not known.book.see(tensors, salt):
            known.is_dropped = True
            return
        rows = max(1, int(tensors[0].shape[0]))
        known.result_bytes = sum(one.nbytes for one in outputs) // rows

    def _is_still(self, known: Followed, module: Any) -> bool:
        """Return whether some elements of some weights are what they were at the first look."""
        own = [p for _, p in parameters_of(module)]
        own = [p for p in own if p.numel() and is_plain(self.context.torch, p)]
        some = own[:: max(1, len(own) // MAX_WEIGHTS)]
        ends = [p.detach().reshape(-1)[k].double() for p in some for k in (0, -1)]
        found = read_whole(self.context.torch.stack(ends).view(self.context.torch.int64))
        before, known.weights = known.weights, found
        needs = any(p.requires_grad for p in own)
        return not needs and before in (None, found)

    # -- samples of data sets

    def see_batch(self, data_set: Any, batch: Any) -> None:
        """Take a batch of a loader that trains."""
        if self.is_off or self._is_watched():
            return
        known = self.data_sets.get(id(data_set))
        if known is None or known.owner() is not data_set:
            if len(self.data_sets) >= MAX_KNOWN or not is_referable(data_set):
                return
            name = type(data_set).__name__
            known = Followed(self.context.torch, data_set, name, ("", 0))
            self.data_sets[id(data_set)] = known
        known.calls += 1
        if known.is_dropped or (known.is_told and known.calls % SELDOM):
            return
        began = thread_time_ns()
        torch = self.context.torch
        with torch._C.DisableTorchFunction(), torch.no_grad():
            leaves = [one for one in leaves_of(torch, batch) if is_plain(torch, one)]
            if not leaves or not known.book.see(leaves):
                known.is_dropped = True
        known.look_ns += thread_time_ns() - began
        known.looks += 1
        if not known.is_told and known.is_dear(MAX_SHARE * known.elapsed_ns()):
            known.is_dropped = True

    # -- what came of it

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return what comes again, every other second, if that has changed."""
        now = perf_counter_ns()
        if now < self.due_ns and not is_last:
            return ""
        self.due_ns = now + DUE_NS
        rows = [one.row("module") for one in self.modules.values() if one and one.is_told]
        rows += [one.row("part") for one in self.parts.values() if one.is_told]
        rows += [one.row("data_set") for one in self.data_sets.values() if one.is_told]
        text = dumps({"k": kinds.AGAIN, "rows": rows}) + "\n"
        if text == self.told or not (rows or self.told):
            return ""
        self.told = text
        return text


def is_frozen(module: Any) -> bool:
    """Return whether a module has parameters, none of which needs a gradient."""
    own = [weight for _, weight in parameters_of(module)]
    return bool(own) and not any(weight.requires_grad for weight in own)


def is_referable(owner: Any) -> bool:
    """Return whether an object can be known without being kept: a list cannot."""
    return bool(getattr(type(owner), "__weakrefoffset__", 0))


def is_plain(torch: Any, value: Any) -> bool:
    """Return whether a value is a tensor whose elements can be read at once."""
    kind = type(value)
    is_tensor = kind is torch.Tensor or kind is torch.nn.Parameter
    return is_tensor and value.is_cpu and value.layout is torch.strided and not value.is_quantized


def plain_in(value: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the numbers and words of what a call was given."""
    if isinstance(value, (int, float, str, bool)):
        yield value
    elif isinstance(value, Mapping) and depth:
        for one in value.values():
            yield from plain_in(one, depth - 1)
    elif isinstance(value, (tuple, list)) and depth:
        for one in value:
            yield from plain_in(one, depth - 1)


TAKE_TENSORS = (
    *(Repeats.see_call, Repeats._meet, Repeats._look, Repeats._is_still, Repeats.see_batch),
    *(Repeats.see_part, Repeats._take_call, Repeats.find_parts, is_frozen),
    *(is_plain, is_referable, plain_in, *READ_TENSORS),
)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""


def watch_repeats(context: Any) -> Repeats:
    """Watch what comes again in this process."""
    pass_as_torchs(context.torch, *TAKE_TENSORS)
    repeats = Repeats(context)
    context.recorder.watchers.append(repeats)
    return repeats
