"""Finds who holds the memory: at the first call of a model, backward and update, and once later.

The storages of the thirteenth update are followed, and those of a few more that are counted.
Parameters, gradients, states and graphs are read, never changed. Each line is written at once, so a
run that runs out of memory has left one. `holdings.py` knows the parts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import get_ident
from time import thread_time_ns
from typing import Any

from ...record import kinds
from ...record.numbers_told import whole_number_in
from ..count.operators.operator_probe import PROBE_AT
from ..hooks.module_tree import has_parameters
from .device_state import read_device
from .holdings import (
    StorageLedger,
    saved_in_graph,
    short_dtype,
    storage_of,
    take_models,
    take_optimizers,
    tensors_alive,
    tensors_within,
)
from .live_graphs import ACTIVATIONS, Kept, take_kept, with_graph
from .storages import Storages

MAX_RESULTS = 64
"""Results of models without a backward call: an update has fewer, and each one costs time."""

MAX_KINDS = 12
"""Kinds of graph nodes that are written: those that keep most."""

MAX_SEARCHES = 4
"""Backward calls at which Python's objects are searched for other graphs: it takes 20 ms where
there are 300,000. An update with more of them accumulates gradients, and its calls are alike."""

GROWTH_AT = 200
GROWTH, GROWTH_BYTES = 1.01, 8 << 20
"""Tensors are counted again only if the process holds this much more than it did at first."""

MAX_FOLLOWED = 6
"""So many updates are followed at most: where each begins, all objects of Python are looked at,
which takes 30 ms where there are 300,000."""

CHEAP_NS = 200_000_000
"""No further one is followed once a look took more CPU time: over a million tensors (PyG keeps
those of each sample) it takes more than a second."""

LOOK_AT = frozenset((1, PROBE_AT, PROBE_AT + 1, GROWTH_AT))
"""After so many updates a snapshot is due, or it is known why no step is followed."""

MAX_REST = 1_000

CALL, BACKWARD, UPDATE, DEATH = "call", "backward", "update", "death"


class MemoryProbe:
    """What is known about one process's memory.

    Only one thread counts: the first that calls a model, until one of them goes backward, which may
    be another where the script calls its model in threads.

    Args:
        torch: the module.
        write: takes a line's kind and facts.
        find_models: finds the models that were called with gradients so far.
        find_optimizers: finds the optimizers that have stepped so far.
        find_ddp: finds the models of DDP.
        read_held: reads the bytes that the process holds, on its device or resident.
    """

    def __init__(
        self,
        torch: Any,
        write: Callable[[str, dict[str, Any]], None],
        *,
        find_models: Callable[[], list[Any]],
        find_optimizers: Callable[[], list[Any]],
        find_ddp: Callable[[], list[Any]],
        read_held: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.torch = torch
        self.write = write
        self.find_models = find_models
        self.find_optimizers = find_optimizers
        self.find_ddp = find_ddp
        self.read_held = read_held
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.awaits_call = self.awaits_backward = self.awaits_batch = True
        self.num_results = 0  # results of models since the last backward call
        self.num_searches = 0  # for graphs beside that of the loss, in this update
        self.is_over = False
        self.num_followed = self.look_ns = 0
        self.operators: Any = None  # the probe of an update that is to be followed
        self.followed_by: Any = None
        self.storages: Storages | None = None
        self.groups: dict[str, list[int]] = {}  # tensors of no part at first, by kind
        self.held: int | None = None
        self.thread = 0
        self.has_trained = False  # the thread has gone backward: it stays
        self.num_updates = 0
        self.num_at_rest = self.num_granted = 0  # updates for which nothing is due, if unprobed
        self.model: Any = None  # weak: the first model; no other list has it during its call
        self.outputs: list[Any] = []  # weak references to storages that a model returned
        self.facts: dict[str, Any] = {}

    # -- moments

    def heeds(self, what: str) -> bool:
        """Return whether the calling thread is the one that counts, for this method."""
        return self.thread in (0, get_ident()) or (what == "see_backward" and not self.has_trained)

    def see_batch(self, iterator: Any, batch: Any) -> None:
        """Note the first batch of a loader: its size, and how many batches may wait at a time."""
        self.awaits_batch = False
        ledger = StorageLedger(self.torch)
        num_workers = int(getattr(iterator, "_num_workers", 0))
        waiting = num_workers * int(getattr(iterator, "_prefetch_factor", 0) or 0)
        self.facts["loader"] = {
            "batch_bytes": ledger.take("batch", tensors_within(self.torch, batch)),
            "num_workers": num_workers,
            "num_waiting": waiting,
            "is_pinned": bool(getattr(iterator, "_pin_memory", False)),
        }

    def see_call(self, model: Any) -> None:
        """Note the weights of a model that is called with gradients, before all else."""
        if not has_parameters(model):
            return
        self.awaits_call = False
        self.thread = get_ident()
        self.model = weakref.ref(model)
        ledger = StorageLedger(self.torch)
        self.facts |= take_models(ledger, [model], [])
        self.facts["parts"] = ledger.table()
        self._tell(CALL)

    def see_result(self, result: Any) -> None:
        """Note as logits what a model returned that needs a gradient and is no scalar."""
        self.num_results += 1
        if self.num_results > MAX_RESULTS:
            self.awaits_backward = False  # no backward call is seen: leave the steps alone
        self.outputs = [
            (weakref.ref(tensor.untyped_storage()), short_dtype(tensor.dtype), str(tensor.device))
            for tensor in tensors_within(self.torch, result)
            if tensor.requires_grad and tensor.ndim and storage_of(tensor) is not None
        ]
        if self.storages is not None:
            self._own_kept(result)

    def see_backward(self, args: Any) -> None:
        """Note what is held as a backward call begins, which is when most is kept."""
        if not args:
            return  # passed by a name that we do not read
        self.thread, self.has_trained = get_ident(), True
        roots = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
        self.num_results = 0
        self.awaits_backward = self.storages is not None  # for each micro-batch of a followed step
        ledger = self._take_states()
        self._take_outputs(ledger)
        kept = take_kept(ledger, roots)
        if self.num_searches < MAX_SEARCHES:
            self.num_searches += 1
            kept += take_kept(ledger, with_graph(tensors_alive(self.torch)))
        if self.storages is not None:
            self.storages.keep((node, size) for node, part, size in kept if part == ACTIVATIONS)
        ledger.take(ACTIVATIONS, ())
        self.facts["kinds"] = largest_kinds(kept)
        self._keep(ledger, ("activations", "logits"))
        self._tell(BACKWARD)

    def count_update(self, operators: Any) -> str | None:
        """Take the end of an update; return the method that is due.

        Args:
            operators: the operator probe of the update that begins, if there is one.
        """
        if self.thread not in (0, get_ident()):
            return None
        self.num_updates += 1 + self.num_granted - self.num_at_rest
        number = self.num_updates
        if self.storages is not None and number != PROBE_AT + 1:
            self._let_go()  # the plan has taken its peak
        is_open = self.num_followed < MAX_FOLLOWED and self.look_ns <= CHEAP_NS
        may_follow = number >= PROBE_AT and is_open
        is_counting = operators is not None and operators.is_worth_following
        self.operators = operators if is_counting and may_follow else None
        self.is_over = number > GROWTH_AT and not may_follow and self.storages is None
        is_followed = self.storages is not None or self.operators is not None
        self.num_at_rest = self.num_granted = 0 if is_followed else rest_after(number)
        return "see_end" if number in LOOK_AT or self.operators is not None else None

    @property
    def is_idle(self) -> bool:
        """Whether no step is followed now, and all looks at early updates are over."""
        number = self.num_updates + self.num_granted - self.num_at_rest
        return self.storages is None and number > GROWTH_AT

    def skip(self, num: int) -> None:
        """Pass over updates that nothing is known of."""
        self.num_updates += num

    def see_end(self) -> None:
        """Look at what an update left, and follow the one that begins here, if that is due."""
        number, operators = self.num_updates, self.operators
        if number in (1, PROBE_AT + 1):
            self.see_update()
        elif number == GROWTH_AT:
            self.see_growth()
        elif number == PROBE_AT:
            self.awaits_backward, self.num_searches = True, 0
            if operators is None or operators.missing is not None:
                missing = "not_followed" if operators is None else operators.missing
                self.facts["step_missing"] = missing
        if operators is not None and operators.missing is None:
            self._follow(operators)

    def _follow(self, operators: Any) -> None:
        """Follow the storages of the update that begins here."""
        self.num_followed += 1
        begun_ns = thread_time_ns()
        weights = self.facts["parts"]["weights"]["by_device"]
        device = max(weights, key=lambda name: weights[name], default="cpu").partition(":")[0]
        self.storages = operators.storages = Storages(self.torch, device)
        ledger = self._take_states()
        alive = tensors_alive(self.torch)
        take_kept(ledger, with_graph(alive))
        ledger.take("others", alive)
        if self.storages.workspaces is not None:
            self.storages.workspaces.expect(sum(part.bytes for part in ledger.parts.values()))
        self.followed_by = operators
        self.look_ns = thread_time_ns() - begun_ns

    def _let_go(self) -> Any:
        """Follow the storages no longer; return the probe that followed them to the end."""
        storages, operators = self.storages, self.followed_by
        self.storages = self.followed_by = None
        is_whole = operators is not None and operators.storages is storages
        if operators is not None:
            operators.storages = None
        return operators if is_whole else None

    def _end_step(self) -> None:
        """Keep what the followed storages show, once it is known which of them stay."""
        storages = self.storages
        if storages is None:
            return
        operators = self._let_go()
        missing = "failed" if operators is None else operators.missing
        step = storages.table() if missing is None else None
        if step is None:
            self.facts["step_missing"] = missing or "too_large"
        else:
            self.facts["step"] = step

    def see_update(self) -> None:
        """Note gradients and states, if the script still keeps them."""
        self.awaits_call = self.awaits_backward = self.awaits_batch = False
        ledger = self._take_states()
        if self.num_updates > PROBE_AT:
            self._end_step()
            self.held, self.groups = self.read_held(), self._group(ledger)
        self._keep(ledger, ("weights", "buffers", "gradients", "optimizer"))
        self.facts["optimizers"] = [type(one).__name__ for one in self.find_optimizers()]
        self.facts["buckets_bytes"] = self._bucket_bytes()
        self.facts["device"] = read_device(self.torch)
        self._tell(UPDATE)

    def see_growth(self) -> None:
        """Note which tensors have become more, long after the first count, if memory grew."""
        held = self.read_held()
        if held is None or self.held is None or held < self.held * GROWTH + GROWTH_BYTES:
            return
        now = self._group(self._take_states())
        none = [0, 0]
        more = {
            name: (size - self.groups.get(name, none)[0], num - self.groups.get(name, none)[1])
            for name, (size, num) in now.items()
        }
        name = max(more, key=lambda one: more[one][0], default="")
        self.facts["growth"] = {
            "num_updates": self.num_updates - PROBE_AT - 1,
            "held_bytes": held - self.held,
            "tensor_bytes": max(0, sum(size for size, _ in more.values())),
            "largest": name or None,
            "largest_bytes": max(0, more[name][0]) if name else 0,
            "largest_num": max(0, more[name][1]) if name else 0,
        }
        self.groups = {}
        self._tell(UPDATE)

    def at_death(self, said: dict[str, int], left: dict[str, Any] | None = None) -> None:
        """Write what Python still holds in a process that ran out of memory.

        Args:
            said: what the error said about the device, before anything was released.
            left: other facts: the limit of the process, a snapshot that torch wrote.
        """
        ledger = self._take_states()
        alive = tensors_alive(self.torch)
        for _, tensor in saved_in_graph(self.torch, with_graph(alive)):
            ledger.take(ACTIVATIONS, [tensor])
        ledger.take("others", alive)
        device = read_device(self.torch)
        if device is not None:
            device |= said
        died = {"parts": ledger.table(), "device": device} | (left or {})
        self.write(kinds.MEMORY_HELD, self._line(DEATH) | {"death": died})

    def give_up(self, what: str) -> None:
        """Stop after a failure of ours; nothing of this kind is tried again."""
        self.awaits_call = self.awaits_backward = self.awaits_batch = False
        self.num_followed = MAX_FOLLOWED
        for operators in (self.operators, self.followed_by):
            if operators is not None:
                operators.storages = None
        self.operators = self.followed_by = self.storages = None
        self.facts["failed"] = what

    # -- what is there

    def _take_states(self) -> StorageLedger:
        ledger = StorageLedger(self.torch, None if self.storages is None else self.storages.own)
        optimizers, models = self.find_optimizers(), self.find_models()
        first = None if self.model is None else self.model()
        if first is not None and not any(one is first for one in models):
            models.append(first)
        self.facts |= take_models(ledger, models, optimizers)
        take_optimizers(ledger, optimizers)
        return ledger

    def _own_kept(self, result: Any) -> None:
        """Book what autograd keeps of a call that has ended, whether or not it goes backward.

        What the model returned is left out: it may be the logits of a loss that is still to come.
        """
        ledger = self._take_states()
        tensors = [one for one in tensors_within(self.torch, result) if one.requires_grad]
        ledger.listen = None
        ledger.take("outputs", tensors)
        ledger.listen = None if self.storages is None else self.storages.own
        take_kept(ledger, tensors)

    def _take_outputs(self, ledger: StorageLedger) -> None:
        """Book what a model returned and the script still holds."""
        for reference, dtype, device in self.outputs:
            storage = reference()
            if storage is not None:
                ledger.book("logits", storage, dtype, device)
        self.outputs = []

    def _keep(self, ledger: StorageLedger, names: tuple[str, ...]) -> None:
        table = ledger.table()
        found = {name: table[name] for name in names if name in table}
        self.facts["parts"] = self.facts.get("parts", {}) | found

    def _group(self, ledger: StorageLedger) -> dict[str, list[int]]:
        """Return bytes and number of the tensors that belong to no state, by dtype and shape."""
        alive = tensors_alive(self.torch)
        found: dict[str, list[int]] = {}
        kept = saved_in_graph(self.torch, with_graph(alive))
        for tensor in [*alive, *(tensor for _, tensor in kept)]:
            if size := ledger.take("others", [tensor]):
                shape = "nested" if tensor.is_nested else list(tensor.shape)
                name = f"{short_dtype(tensor.dtype)} {shape}"
                group = found.setdefault(name, [0, 0])
                group[0] += size
                group[1] += 1
        return found

    def _bucket_bytes(self) -> int | None:
        """Return the size of DDP's gradient buckets, without those that gradients are views of."""
        models = self.find_ddp()
        if not models:
            return None
        total = 0
        for model in models:
            if not getattr(model, "gradient_as_bucket_view", False):
                sizes = str(model._get_ddp_logging_data().get("bucket_sizes", ""))
                total += sum(whole_number_in(word.strip()) or 0 for word in sizes.split(","))
        return total

    def _tell(self, moment: str) -> None:
        self.write(kinds.MEMORY_HELD, self._line(moment))

    def _line(self, moment: str) -> dict[str, Any]:
        number = self.num_updates + self.num_granted - self.num_at_rest
        return {"moment": moment, "n": number, **self.facts}


def rest_after(number: int) -> int:
    """Return for how many updates after this one nothing is due, unless one is probed."""
    return min((at for at in LOOK_AT if at > number), default=number + MAX_REST) - number - 1


def largest_kinds(kept: Kept) -> list[dict[str, Any]]:
    """Return the kinds of graph nodes that keep most, as they are written."""
    kinds: dict[str, int] = {}
    for node, _, size in kept:
        kinds[type(node).__name__] = kinds.get(type(node).__name__, 0) + size
    largest = sorted(kinds.items(), key=lambda item: -item[1])[:MAX_KINDS]
    return [{"name": name, "bytes": size} for name, size in largest if size]
