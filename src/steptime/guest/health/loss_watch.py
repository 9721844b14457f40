"""What each update's loss and gradient norm were, for one thread; written with the other lines.

On the CPU the number is there when backward is called, and is read out of memory. On a device it
is taken from what the script reads itself; else one update in `LOOK_EVERY` is copied, and read
when the device has come that far. A scaler's factor is not in a loss: the number is taken before.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from ctypes import c_float
from types import FunctionType
from typing import Any, NamedTuple

from ...record.places import BY_HAND
from ..sense.masked_rows import TAKE_TENSORS as LOOK_AT_MASKS
from ..sense.masked_rows import masked_softmax
from ..sites.frames import Frames, innermost
from ..timeline.recorder import Recorder
from .device_looks import DeviceLooks, Slot
from .loss_lines import LossLines
from .scalars import readers
from .weights import TAKE_TENSORS as LOOK_AT_TENSORS
from .weights import look_at_weights, name_bad_weights

LOOK_EVERY = 16
"""A copy costs some 10 µs of the host, so that this adds less than 1 µs to an update."""

MAX_PLACES = 32
"""Frames are walked this often at most: a training may go on with bad numbers for days."""

MAX_WEIGHTS_LOOKS = 4
MAX_READS = 4
MAX_WATCHED = 8


class Watched(NamedTuple):
    """A number on a device that the script may read: where it is, and of which update."""

    reference: weakref.ref[Any]
    address: int
    is_loss: bool
    number: int


class LossWatch:
    """The numbers of one thread's updates; the first thread that steps writes them."""

    __slots__ = (
        "address",
        "arriving",
        "find_names",
        "float32",
        "found",
        "frames",
        "has_root",
        "has_torch_function",
        "is_bad",
        "is_eventful",
        "is_late_bad",
        "last_read",
        "lines",
        "looked",
        "looks",
        "loss",
        "norm",
        "num_losses",
        "num_places",
        "num_weights_looks",
        "number",
        "optimizer",
        "plain",
        "read_found",
        "readers",
        "reads",
        "recorder",
        "scaled",
        "tensor_class",
        "torch",
        "was_bad",
        "watched",
    )

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        frames: Frames,
        find_names: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        self.torch = torch
        self.find_names = find_names  # of weights, by id
        self.tensor_class, self.float32 = torch.Tensor, torch.float32
        self.recorder = recorder
        self.frames = frames
        self.readers = readers(torch)
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.has_torch_function = torch.overrides.has_torch_function_unary
        self.lines = LossLines()
        self.num_places = self.num_weights_looks = 0
        self.has_root = False  # a backward call was seen, so `autograd.grad` is something else
        self.scaled: weakref.ref[Any] | None = None
        self.looks: DeviceLooks | None = None
        self.watched: deque[Watched] = deque(maxlen=MAX_WATCHED)
        self.reads: deque[tuple[weakref.ref[Any], float]] = deque(maxlen=MAX_READS)
        self.looked: list[tuple[Slot, bool]] = []
        self.arriving: list[tuple[int, int, Slot, bool]] = []
        self.last_read = -LOOK_EVERY - 1
        self.optimizer = self.address = 0
        self.number = c_float()
        # Of the update in progress:
        self.loss = 0.0
        self.num_losses = 0
        self.norm: float | None = None
        self.is_eventful = False  # there is more to do at its end than to keep its numbers
        self.was_bad = self.is_bad = self.is_late_bad = False
        self.found: dict[str, Any] | None = None
        self.read_found: dict[str, Any] | None = None

    # -- what the hooks see

    def see_loss(self, args: Any) -> None:
        """Take the tensor that the script goes backward from, where it said nothing else.

        Between two kernels each line costs ten times what it costs in a loop, so the usual case
        comes first, in one piece: a call without a gradient, which only a single number allows.
        """
        root: Any = args[0]
        if (
            type(root) is self.tensor_class
            and len(args) == 1
            and self.scaled is None
            and not self.has_torch_function(root)
            and root.is_cpu
            and root.dtype is self.float32
            and (address := root.data_ptr())
        ):
            if address != self.address:  # the allocator mostly gives a loss the same place
                self.address, self.number = address, c_float.from_address(address)
            value = self.number.value
            self.loss += value
            self.num_losses += 1
            self.has_root = True
            if value - value != 0.0:
                self._meet("loss", value, root)
        else:
            self.see_other_loss(args, inside_step=False)

    def see_other_loss(self, args: Any, *, inside_step: bool) -> None:
        """Take any other; inside a step it is a closure's, whose last one counts."""
        self.has_root = True
        root: Any = args[0] if args else None
        if type(root) not in self.plain:
            root = root[0] if type(root) in (tuple, list) and len(root) == 1 else None
            if type(root) not in self.plain:
                return
        if self.scaled is not None:
            known, self.scaled = self.scaled(), None
            if known is root:
                return  # taken before it was scaled
        self._take_loss(root, inside_step=inside_step)

    def see_grad(self, args: Any) -> None:
        """Take what `autograd.grad` derives, in a script that makes no backward call."""
        if not self.has_root:
            self.see_other_loss(args, inside_step=False)
            self.has_root = False

    def see_scaled(self, outputs: Any, scaled: Any) -> None:
        """Take a loss before it is scaled, because the factor changes."""
        if scaled is not outputs and type(outputs) in self.plain and type(scaled) in self.plain:
            self._take_loss(outputs, inside_step=False)
            self.scaled = weakref.ref(scaled)

    def _take_loss(self, root: Any, *, inside_step: bool) -> None:
        if inside_step:
            self.loss, self.num_losses = 0.0, 0
        value = self._read(root, is_loss=True)
        if value is not None:
            self.loss += value
            self.num_losses += 1
            if value - value != 0.0 and not inside_step:
                self._meet("loss", value, root)

    def see_norm(self, norm: Any) -> None:
        """Take the norm that clipping returned."""
        if (
            type(norm) is self.tensor_class
            and not self.has_torch_function(norm)
            and norm.is_cpu
            and norm.dtype is self.float32
        ):
            value: float | None = c_float.from_address(norm.data_ptr()).value
        else:
            value = self._read(norm, is_loss=False) if type(norm) in self.plain else None
        if value is not None:
            self.norm = value
            if value - value != 0.0:
                self._meet("gradient_norm", value)

    def see_bad_read(self, tensor: Any, value: Any) -> None:
        """Take a bad number that the script read: it may stop before it goes backward."""
        if self.found is not None or self.read_found is not None or self.was_bad:
            return
        if tensor.requires_grad and tensor.numel() == 1 and self.num_places < MAX_PLACES:
            self.num_places += 1
            self.read_found = self._describe("loss", float(value))
            self.is_eventful = True

    @property
    def bad_value(self) -> str | None:
        """Return what was not finite since the last update, if anything: `loss` for example."""
        found = self.found or self.read_found
        if found is not None:
            return str(found["value"])
        return "loss" if self.is_bad else None

    def number_of(self, optimizer: int) -> int:
        """Return the number, from 1, of an update of this optimizer that ends now."""
        self.lines.settle()
        return 1 + (self.lines.num_by_hand if optimizer == BY_HAND else self.lines.num_updates)

    @property
    def num_ended(self) -> int:
        """Return how many updates have ended, or backward calls where no optimizer steps."""
        self.lines.settle()
        return self.lines.last

    # -- from update to update

    @property
    def is_idle(self) -> bool:
        """Whether no bad number is followed."""
        return not self.is_eventful

    def skip(self, num: int) -> None:
        """Pass over updates that nothing is known of."""
        self.lines.skip(num)

    def end_update(self, optimizer: int, skipped: int | None) -> None:
        """Take the end of an update, or of a backward call that counts as one."""
        if self.recorder.layers is not None:
            self.recorder.layers.end_update(self, optimizer, skipped)
        self.lines.ended.append((optimizer, skipped, self.loss, self.num_losses, self.norm))
        self.loss, self.num_losses, self.norm = 0.0, 0, None
        if self.is_eventful:
            try:
                self._end_eventful(optimizer, skipped or 0)
            except BaseException:
                self.recorder.fail("losses")

    def _end_eventful(self, optimizer: int, skipped: int) -> None:
        self.lines.settle()
        number, self.optimizer = self.lines.last, optimizer
        if self.found is not None:
            self.lines.places.append({"n": number, "skipped": skipped, **self.found})
        self.was_bad, self.is_bad = self.is_bad, False
        self.found = self.read_found = None
        if self.looked:
            self.arriving += [(number, optimizer, *one) for one in self.looked]
            self.looked = []
        if self.arriving:
            self._take_arrived()
        self.is_eventful = self.was_bad or bool(self.watched) or bool(self.arriving)

    # -- numbers

    def _read(self, tensor: Any, *, is_loss: bool) -> float | None:
        """Return the number of a tensor, if it can be known now; no mode of the user's sees it."""
        with self.torch._C.DisableTorchFunction():
            if tensor.numel() != 1:
                return None
            if not tensor.is_cpu:
                return self._read_on_device(tensor, is_loss=is_loss)
            read = self.readers.get(tensor.dtype)
            try:
                return None if read is None else read(tensor.data_ptr())
            except RuntimeError:
                return None  # it has no memory, as inside a transform of functions

    def _read_on_device(self, tensor: Any, *, is_loss: bool) -> float | None:
        """Return what the script has read of it; else watch for that, and copy one in sixteen."""
        self.lines.settle()
        self.is_eventful = True
        number = self.lines.num_ended
        for reference, value in self.reads:
            if reference() is tensor:
                self.last_read = number
                return value
        self.watched.append(Watched(weakref.ref(tensor), tensor.data_ptr(), is_loss, number))
        if number % LOOK_EVERY == 0 and number - self.last_read > LOOK_EVERY:
            if self.looks is None:
                self.looks = DeviceLooks(self.torch, self.readers)
            slot = self.looks.begin(tensor)
            if slot is not None:
                self.looked.append((slot, is_loss))
        return None

    def see_read(self, tensor: Any, value: Any) -> None:
        """Take what the script itself read from a device, if that is a loss or a norm."""
        if type(value) is not float or type(tensor) not in self.plain or tensor.numel() != 1:
            return
        address = tensor.data_ptr()
        for one in self.watched:
            if one.address == address and one.reference() is not None:
                self.watched.remove(one)
                self._take_read(one, value)
                return
        self.reads.append((weakref.ref(tensor), value))

    def _take_read(self, one: Watched, value: float) -> None:
        self.lines.settle()
        self.last_read = one.number
        if one.number == self.lines.num_ended - 1:
            self._take_late(self.lines.last, self.optimizer, value, is_loss=one.is_loss)
        elif one.number == self.lines.num_ended and one.is_loss:
            self.loss += value
            self.num_losses += 1
        elif one.number == self.lines.num_ended:
            self.norm = value

    def _take_arrived(self) -> None:
        waiting, self.arriving = self.arriving, []
        for number, optimizer, slot, is_loss in waiting:
            value = None if self.looks is None else self.looks.take(slot)
            if value is None:
                self.arriving.append((number, optimizer, slot, is_loss))
            else:
                self._take_late(number, optimizer, value, is_loss=is_loss)

    def _take_late(self, number: int, optimizer: int, value: float, *, is_loss: bool) -> None:
        """Take a number after its update; a bad loss is told at once, without a line."""
        self.lines.add_late(number, optimizer, value, is_loss=is_loss)
        if not is_loss:
            return
        was_bad, self.is_late_bad = self.is_late_bad, value - value != 0.0
        if self.is_late_bad and not was_bad and self.num_places < MAX_PLACES:
            self.num_places += 1
            self.lines.places.append({"n": number, "value": "loss", "is_nan": value != value})

    # -- where the first bad number was

    def _meet(self, value: str, number: float, root: Any = None) -> None:
        """Note where a number became bad; of those that follow only the number is kept."""
        self.is_bad = self.is_eventful = True
        if self.found is not None or self.was_bad or self.num_places >= MAX_PLACES:
            return
        self.num_places += 1
        self.found = self._describe(value, number)
        if value == "loss" and self.num_weights_looks < MAX_WEIGHTS_LOOKS:
            self.num_weights_looks += 1
            known = [reference() for _, reference in list(self.recorder.optimizers.values())]
            optimizers = [one for one in known if one is not None]
            self.found["weights"] = seen = look_at_weights(self.torch, optimizers)
            if seen is not None and seen["num_bad"]:
                names = self.find_names()
                self.found["names"] = name_bad_weights(self.torch, optimizers, names)
                if root is not None and root.grad_fn is not None:
                    self.found["masked"] = masked_softmax(root.grad_fn, names)

    def _describe(self, value: str, number: float) -> dict[str, Any]:
        place = innermost(self.frames.stack(sys._getframe(1)))
        file, line, _ = (None, None, None) if place is None else place
        return {"value": value, "is_nan": number != number, "file": file, "line": line}

    def pop_lines(self, *, is_last: bool) -> str:
        """Return the lines since the last call; with the last ones, what ended in no update."""
        self.lines.settle()
        found = self.found or self.read_found
        if is_last and found is not None:
            self.lines.places.append({"n": self.lines.next, "skipped": 0, "is_open": True, **found})
        return self.lines.pop()


def _functions_of(kind: type) -> list[Any]:
    return [one for one in vars(kind).values() if isinstance(one, FunctionType)]


TAKE_TENSORS = (
    *_functions_of(LossWatch),
    *_functions_of(DeviceLooks),
    *LOOK_AT_TENSORS,
    *LOOK_AT_MASKS,
)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""


class LossWatcher:
    """Gives the recorder, when it writes, the lines of the first thread that stepped."""

    place = "losses"

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def reset(self) -> None:
        """Do nothing: a journal that is reset has a new watch."""

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the new lines."""
        journals = list(self.recorder.journals)
        watch: LossWatch | None = journals[0].losses if journals else None
        return "" if watch is None else watch.pop_lines(is_last=is_last)
