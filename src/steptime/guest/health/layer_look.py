"""Looks at what each module returns, and at the gradient of that, for a non-finite number.

It is off until somebody asks (`steptime run --health`). Each tensor is read by one reduction that
nobody's graph, mode or hook sees, and nothing is attached to an object of the user's: gradients are
seen where autograd's own node of an output takes them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from json import dumps
from time import perf_counter_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ...record import kinds
from ...record.buckets import FORWARD, LOSS
from ...record.places import BY_HAND
from ..sites.frames import Frames
from .batch_samples import BatchBook
from .bracket import TAKE_TENSORS as DESCRIBE_TENSORS
from .bracket import tensors_of
from .device_outputs import TAKE_TENSORS as DEVICE_TENSORS
from .device_outputs import DeviceOutputs
from .first_bad import FirstBad, Where
from .layer_norms import TAKE_TENSORS as NORMS_TENSORS
from .layer_norms import LayerNorms
from .number_fetch import TAKE_TENSORS as FETCH_TENSORS
from .tensor_bounds import TensorBounds, is_autograd_compiled

if TYPE_CHECKING:
    from ..timeline.journal import Journal
    from ..timeline.kept_beside import SeenLosses
    from ..timeline.recorder import Recorder

COST_EVERY_NS = 2_000_000_000


class LayerLook:
    """Finds the first module of an update whose output or gradient is infinite or NaN.

    It looks from `start` to `stop`, both of which are called where an update has just ended (or
    before the first one): that is when nothing of an update is under way. `start` may be given a
    number of updates, after which the look stops by itself. It can be started again; the lines
    of all looks are in the rank's file (`br` and `hc` of docs/internals/run-folder.md), and `pop`
    returns those that are not written yet. Whoever switches one on from inside a training does so
    in three lines::

        look = layer_look(context)  # of hooks/layer_hooks.py: the same object each time
        if not look.is_on:
            look.start(num_updates=50)

    Only the first thread that steps is looked at.

    Args:
        torch: the module.
        recorder: takes the lines.
        frames: finds the user's lines.
        begin: puts the hooks of `hooks/layer_hooks.py` in place.
        end: takes them away.
    """

    place = "layers"

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        frames: Frames,
        *,
        begin: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self.torch = torch
        self.recorder = recorder
        self.put_on = begin
        self.take_off = end
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.transform = torch._C._functorch.peek_interpreter_stack
        self.bounds = TensorBounds(torch)
        self.first_bad = FirstBad(torch, frames, self.bounds)
        self.device = DeviceOutputs(torch, self.first_bad.names, self.first_bad.batches)
        self.norms = LayerNorms(torch, self.first_bad.names, self.device.fetch)
        self.clock = perf_counter_ns
        self.is_on = False
        self.left: int | None = None  # updates until it stops by itself
        self.reset()

    def reset(self) -> None:
        """Forget what was seen: this is a new process."""
        self.first_bad.reset()
        self.norms.reset()
        self.device.reset()
        self.lines: list[str] = []
        self.missing: dict[str, int] = {}
        self.first: int | None = None
        self.num_updates = self.num_by_hand = self.num_tensors = self.spent_ns = 0
        self.due_ns = 0
        self.is_blind = False  # torch traces or captures: what is computed here would be recorded
        self.journal: Journal | None = None
        self._forget_update()

    def _forget_update(self) -> None:
        self.known: dict[int, tuple[Any, int]] = {}
        self.depth = 0

    # -- on and off

    def start(self, num_updates: int | None = None) -> None:
        """Look from the next update on, for this many updates; None: until `stop`."""
        self.left = num_updates
        if not self.is_on:
            self._forget_update()
            self.first_bad.begin()
            self.is_on = True
            self.put_on()

    def stop(self) -> None:
        """Look no more, and make the line that says what it cost."""
        if self.is_on:
            self.is_on = False
            self.take_off()
            self._forget_update()
            self.first_bad.begin()
            self._tell_cost()

    # -- what the hooks see

    def takes(self, journal: Journal) -> bool:
        """Return whether a call of a module that begins now is looked at."""
        if journal is not self.journal:
            first = self.recorder.journals
            if first and first[0] is not journal:
                return False
            self.journal = journal
        return journal.top in (FORWARD, LOSS)

    def begin(self, module: Any, args: Any, kwargs: Any) -> None:
        """Take the beginning of a call; the outermost one is told apart."""
        self.depth += 1
        if self.depth > 1:
            return
        began, torch = self.clock(), self.torch
        try:
            with torch._C.DisableTorchFunction():
                cuda = torch.cuda
                self.is_blind = (
                    torch._C._get_tracing_state() is not None
                    or is_autograd_compiled()
                    or (cuda.is_initialized() and cuda.is_current_stream_capturing())
                )
                if not self.is_blind and self.transform() is None:
                    self.first_bad.begin_call(module, args, kwargs)
                    self._see_inputs("argument", module, args, kwargs)
        except BaseException:
            self.recorder.fail("layers")
        self.spent_ns += self.clock() - began

    def end(self) -> None:
        """Take the end of a call."""
        self.depth = max(0, self.depth - 1)  # an update may have ended inside the call
        if not self.depth:
            self.first_bad.call = None

    def see_batch(self, iterator: Any, batch: Any) -> None:
        """Take a batch that a loader has handed over."""
        self.first_bad.batches.take(self.torch, iterator, batch)

    def see_request(self, iterator: Any, index: Any) -> None:
        """Take the indices that a sampler gave for a batch."""
        self.first_bad.batches.request(iterator, index)

    def see_result(self, module: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Look at what a module returned."""
        began = self.clock()
        try:
            with self.torch._C.DisableTorchFunction():
                if type(result) in self.plain:
                    found = [result] if self._is_new(result) else []
                else:
                    found = [t for t in tensors_of(self.torch.Tensor, result) if self._is_new(t)]
                if found and self.is_far(found[0]):
                    self._see_inputs("input", module, args, kwargs)
                for tensor in found:
                    self._see(tensor, module, args, kwargs)
        except BaseException:
            self.recorder.fail("layers")
        self.spent_ns += self.clock() - began

    def _is_new(self, tensor: Any) -> bool:
        """Return whether this tensor, as it is now, is to be looked at: containers pass it on."""
        if (
            type(tensor) not in self.plain
            or self.is_blind
            or self.transform() is not None
            or tensor.is_inference()
        ):
            return self._miss("not_plain")
        if tensor.dtype not in self.bounds.readers or not tensor.numel():
            return False
        if tensor.layout is not self.torch.strided or tensor.is_nested:
            return self._miss("not_plain")
        if not (tensor.is_cpu or self._is_near(tensor)):
            return self._miss("on_device")
        known = self.known.get(id(tensor))
        version = tensor._version
        if known is not None and known[1] == version and known[0]() is tensor:
            return False
        self.known[id(tensor)] = weakref.ref(tensor), version
        return True

    def is_far(self, tensor: Any) -> bool:
        """Return whether the numbers of a tensor are not in this process's memory."""
        return not tensor.is_cpu

    def _is_near(self, tensor: Any) -> bool:
        """Return whether a tensor is on the device that this thread works on."""
        return bool(tensor.is_cuda and tensor.device.index == self.torch.cuda.current_device())

    def _see_inputs(self, kind: str, module: Any, args: Any, kwargs: Any) -> None:
        """Look at what a call on a device was given and no module returned: nobody can later."""
        where = id(module), type(module).__name__
        for tensor in tensors_of(self.torch.Tensor, (args, kwargs)):
            if type(tensor) in self.plain and self.is_far(tensor) and self._is_new(tensor):
                self.num_tensors += 1
                self.device.add(kind, where, tensor)

    def _miss(self, reason: str) -> bool:
        self.missing[reason] = self.missing.get(reason, 0) + 1
        return False

    def _see(self, tensor: Any, module: Any, args: Any, kwargs: Any) -> None:
        self.num_tensors += 1
        where = id(module), type(module).__name__
        if self.is_far(tensor):
            self.device.add("output", where, tensor)
        else:
            low, high = self.bounds.read(tensor)
            if low - low == 0.0 == high - high:
                self.first_bad.last = where
            elif not self.first_bad.is_tolerated(where, is_nan=low != low):
                self.first_bad.meet_output(module, args, kwargs, tensor, low)
        if tensor.requires_grad and (node := tensor.grad_fn) is not None:
            node.register_prehook(partial(self.see_gradient, where, tensor.output_nr))

    def see_gradient(self, where: Where, index: int, gradients: Any) -> None:
        """Look at the gradient of an output; autograd calls this before it goes further."""
        if not self.is_on or self.first_bad.backward is not None:
            return
        began = self.clock()
        try:
            with self.torch._C.DisableTorchFunction():
                self._see_gradient(where, gradients[index])
        except BaseException:
            self.recorder.fail("layers")
        self.spent_ns += self.clock() - began

    def _see_gradient(self, where: Where, gradient: Any) -> None:
        if gradient is None or not self._is_new(gradient):
            return
        self.num_tensors += 1
        if self.is_far(gradient):
            self.device.add("gradient", where, gradient)
            return
        low, high = self.bounds.read(gradient)
        if low - low == 0.0 == high - high:
            self.first_bad.last_gradient = where
        else:
            self.first_bad.meet_gradient(where, gradient, low)

    def begin_step(self, journal: Journal, optimizer: Any) -> None:
        """Take the beginning of an outermost optimizer's step; a sampled update takes longer."""
        if journal is not self.journal or len(journal.optimizers) != 1:
            return
        began = self.clock()
        torch = self.torch
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            if self.norms.begin_step(optimizer):
                journal.disturb()
        self.spent_ns += self.clock() - began

    # -- from update to update

    def end_update(self, losses: SeenLosses, optimizer: int, skipped: int | None) -> None:
        """Take the end of an update of the first thread that steps, before the losses take it."""
        began = self.clock()
        try:
            if self.first is None:
                self.first = losses.number_of(optimizer)
            self.num_updates += optimizer != BY_HAND
            self.num_by_hand += optimizer == BY_HAND
            with self.torch._C.DisableTorchFunction():  # a mode of the script's own may be on
                self._end_update(losses, optimizer, skipped)
        except BaseException:
            self.recorder.fail("layers")
        self.spent_ns += self.clock() - began
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.stop()

    def _end_update(self, losses: SeenLosses, optimizer: int, skipped: int | None) -> None:
        number = losses.number_of(optimizer)
        if self.norms.taken:
            with self.torch._C._DisableTorchDispatch():
                self.norms.end_step(number)
        self.lines += self.norms.pop()
        if self.device.entries:
            self.device.end_update(number, skipped or 0)
            self.first_bad.pass_update()
        else:
            self._add(self.first_bad.end_update(losses, optimizer, skipped))
        self._add(self.device.pop())
        self._forget_update()

    def _add(self, brackets: list[dict[str, Any]]) -> None:
        self.lines += [dumps({"k": kinds.BRACKET, **one}) + "\n" for one in brackets]

    def _tell_cost(self) -> None:
        line = {
            "k": kinds.LOOK_COST,
            "since": self.first,
            "updates": self.num_updates or self.num_by_hand,
            "tensors": self.num_tensors,
            "ns": self.spent_ns,
            "missing": self.missing | {"device_behind": self.device.num_behind},
        }
        self.lines.append(dumps(line) + "\n")

    # -- lines

    def pop(self) -> str:
        """Return the lines that are not written yet."""
        lines, self.lines = self.lines, []
        return "".join(lines)

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the new lines; the recorder asks when it writes."""
        losses = None if self.journal is None else self.journal.losses
        if is_last and self.is_on and losses is not None:
            self._add(self.first_bad.end_open(losses))
        with self.torch._C.DisableTorchFunction():  # the script's own mode may be on meanwhile
            self._add(self.device.pop())
            self.lines += self.norms.pop()
        now = self.clock()
        if self.is_on and self.first is not None and (is_last or now > self.due_ns):
            self.due_ns = now + COST_EVERY_NS
            self._tell_cost()
        return self.pop()


_CLASSES = (LayerLook, FirstBad, TensorBounds, BatchBook, LayerNorms)
TAKE_TENSORS = (
    *(one for kind in _CLASSES for one in vars(kind).values() if isinstance(one, FunctionType)),
    *DESCRIBE_TENSORS,
    *DEVICE_TENSORS,
    *NORMS_TENSORS,
    *FETCH_TENSORS,
)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
