"""What a loss is made of, read from its graph in a few backward calls: shapes, and targets.

Torch's losses leave a node with what they were given. A mean over (B, B) of a prediction of (B, 1)
and targets of (B,) compares each with every other. Targets that the loss ignores teach nothing.
Nothing is unpacked that a hook of the user's has packed. Source of the names: the nodes of
torch/csrc/autograd/generated/Functions.cpp; a node of another name ends the search.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from ctypes import c_int64
from typing import Any

from ..health.device_looks import DeviceLooks, Slot
from ..health.scalars import readers
from ..sites.frames import Frames, innermost

FIRST_SAMPLES = 4
"""A loss has its shapes in each update; of targets more are read."""

EVERY, MAX_SAMPLES = 16, 64
"""Updates from one sample of targets to the next where some are ignored, and how many samples."""

NEVER = 1 << 62
MAX_NODES = 32

COMPARING = ("MseLossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0")
MEAN = 1
"""The number of a loss's reduction: it is a mean."""

COUNTING = ("NllLossBackward0", "NllLoss2DBackward0")
PASSED = {
    f"{name}Backward{number}"
    for name in ("Mean", "Sum", "Add", "Sub", "Mul", "Div", "Neg", "Pow", "Abs", "Sqrt", "ToCopy")
    for number in (0, 1)
}
"""Between the loss and its nodes: sums of several losses, factors, and a loss written by hand."""

Shape = tuple[int, ...]
NUMBERS = ("targets", "useful", "rows", "rows_without")


class LossGraph:
    """Samples the losses of a thread; `due` is the number of updates at which the next one is."""

    def __init__(self, torch: Any, frames: Frames) -> None:
        self.torch = torch
        self.frames = frames
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.readers = readers(torch)
        self.looks: DeviceLooks | None = None
        self.arriving: list[tuple[str, Slot]] = []
        self.asked: dict[str, int] = {}
        self.due = self.num_samples = 0
        self.broadcast: dict[str, Any] | None = None
        self.targets: dict[str, Any] | None = None

    def see(self, args: Any) -> None:
        """Take the loss that a backward call begins with."""
        torch = self.torch
        root: Any = args[0] if args else None
        if type(root) in (list, tuple) and len(root) == 1:
            root = root[0]
        if type(root) not in self.plain or root.grad_fn is None:
            return
        self.num_samples += 1
        with torch.no_grad():
            for node in nodes_of(root.grad_fn):
                name = node.name()
                if name in COUNTING and self.num_samples <= MAX_SAMPLES:
                    self._see_targets(node)
                    break  # of several losses the first stands for all
                if self.broadcast is None and (shapes := shapes_of(node, name)) is not None:
                    self._see_broadcast(*shapes)
                    break

    def plan(self, num_updates: int) -> None:
        """Decide when the next sample is; a training without ignored targets needs few."""
        self._take_arrived()
        if self.num_samples + 1 < FIRST_SAMPLES:
            self.due = num_updates + 1
        elif self.targets is None or self.num_samples >= MAX_SAMPLES:
            self.due = NEVER
        elif self.targets["useful"] < self.targets["targets"]:
            self.due = num_updates + EVERY
        else:
            self.due = 4 * max(1, num_updates)

    def _see_broadcast(self, prediction: Shape, target: Shape | None, result: Shape) -> None:
        place = innermost(self.frames.stack(sys._getframe(1)))
        self.broadcast = {
            "prediction": list(prediction),
            "target": None if target is None else list(target),
            "result": list(result),
            "place": None if place is None else {"file": place[0], "line": place[1]},
        }

    def see_part(self, args: Any) -> tuple[int, float, int] | None:
        """Return how many targets the mean of a micro-batch is over, its factor, and the classes.

        None where the loss is anything but one mean times numbers that are known here.
        """
        root = args[0] if len(args) == 1 else None
        node, factor = getattr(root, "grad_fn", None), 1.0
        while node is not None and type(root) in self.plain:
            name = node.name()
            if name in COUNTING:
                return self._count_part(node, factor)
            known = factor_of(node, name)
            if known is None:
                return None
            node, own = known
            factor *= own
        return None

    def _count_part(self, node: Any, factor: float) -> tuple[int, float, int] | None:
        target, before = read_saved(node, "target"), node.next_functions[0][0]
        if target is None or before is None or type(target) not in self.plain:
            return None
        if int(node._saved_reduction) != MEAN or node._saved_weight is not None:
            return None
        if not target.is_cpu:
            return None
        with self.torch.no_grad():
            useful = read_int(target.ne(_signed(node._saved_ignore_index)).sum())
        return useful, round(factor, 9), int(before._input_metadata[0].shape[1])

    # -- targets

    def _see_targets(self, node: Any) -> None:
        target, ignored = read_saved(node, "target"), _signed(node._saved_ignore_index)
        if target is None or type(target) not in self.plain or not target.numel():
            return
        if target.is_cuda and self.torch.cuda.is_current_stream_capturing():
            return  # what is asked of the device would become a part of the script's graph
        kept = target.ne(ignored)
        num_rows = self._num_rows(node, target)
        found = {"targets": target.numel(), "useful": kept.sum()}
        if num_rows:
            rows = kept.view(num_rows, -1)
            found |= {"rows": num_rows, "rows_without": (~rows.any(1)).sum()}
        if self.targets is None:
            self.targets = dict.fromkeys(NUMBERS, 0) | {"num_updates": 0, "ignored": ignored}
        self._book(found)

    def _num_rows(self, node: Any, target: Any) -> int:
        """Return how many rows of several targets there are; 0 where that is not known."""
        if target.dim() > 1:
            return int(target.shape[0])
        for _ in range(3):  # LogSoftmax, and the view before it
            node = node.next_functions[0][0] if node.next_functions else None
            sizes = getattr(node, "_saved_self_sym_sizes", None)
            if sizes is not None and len(sizes) == 3 and sizes[0] * sizes[1] == target.numel():
                return int(sizes[0]) if sizes[1] > 1 else 0
        return 0

    def _book(self, found: dict[str, Any]) -> None:
        """Add numbers that are there; those on a device come later, or the sample is dropped."""
        counted = self.targets
        tensors = {name: one for name, one in found.items() if type(one) is not int}
        if counted is None or not self.are_here(tensors.values()):
            self._ask_device(found, tensors)
            return
        counted["num_updates"] += 1
        for name, number in found.items():
            counted[name] += number if type(number) is int else read_int(number)

    def are_here(self, tensors: Iterable[Any]) -> bool:
        """Return whether the numbers of tensors lie in this process's memory."""
        return all(one.is_cpu for one in tensors)

    def _ask_device(self, found: dict[str, Any], tensors: dict[str, Any]) -> None:
        if self.arriving:
            return  # the last sample is still under way
        self.looks = self.looks or DeviceLooks(self.torch, self.readers)
        slots = {name: self.looks.begin(one.float()) for name, one in tensors.items()}
        if any(slot is None for slot in slots.values()):
            return
        self.arriving = [(name, slot) for name, slot in slots.items() if slot is not None]
        self.asked = {name: one for name, one in found.items() if type(one) is int}

    def _take_arrived(self) -> None:
        if not self.arriving or self.looks is None or self.targets is None:
            return
        if not all(slot.event.query() for _, slot in self.arriving):
            return
        self.targets["num_updates"] += 1
        for name, number in self.asked.items():
            self.targets[name] += number
        for name, slot in self.arriving:
            self.targets[name] += round(self.looks.take(slot) or 0.0)
        self.arriving = []


def _signed(number: int) -> int:
    """Return the label that a loss ignores, which it gives as an unsigned number."""
    return number - (1 << 64) if number >= 1 << 63 else number


def factor_of(node: Any, name: str) -> tuple[Any, float] | None:
    """Return the node before a product with a number, or a quotient, and the factor."""
    if name == "ToCopyBackward0":
        return node.next_functions[0][0], 1.0
    if name not in ("MulBackward0", "DivBackward0"):
        return None
    before = [one for one, _ in node.next_functions if one is not None]
    is_second = node.next_functions[0][0] is None
    number = read_saved(node, "self" if is_second else "other")
    if len(before) != 1 or number is None or number.dim() or not number.is_cpu:
        return None
    value = float(number)
    if name == "MulBackward0":
        return before[0], value
    return None if is_second or not value else (before[0], 1 / value)


def nodes_of(root: Any) -> Iterator[Any]:
    """Yield the nodes near a loss, as far as they only sum, scale and compare."""
    waiting, seen = [root], 0
    while waiting and seen < MAX_NODES:
        node = waiting.pop(0)
        seen += 1
        yield node
        if node.name() in PASSED:
            waiting += [one for one, _ in node.next_functions if one is not None]


def shapes_of(node: Any, name: str) -> tuple[Shape, Shape | None, Shape] | None:
    """Return the shapes of a prediction, of its targets and of both together, where they differ.

    Both must have been repeated, each along another axis; an axis that the script inserted itself
    is meant. The targets of a difference written by hand are not kept, so theirs is not known.
    """
    if name in COMPARING:
        return _shapes_compared(node)
    return _shapes_subtracted(node) if name == "SubBackward0" else None


def _shapes_compared(node: Any) -> tuple[Shape, Shape, Shape] | None:
    target, before = read_saved(node, "target"), node.next_functions[0][0]
    given = expanded(before)
    if target is None or given is None or has_inserted_axis(before):
        return None
    result = tuple(target.shape)
    own = tuple(1 if not s and size > 1 else size for size, s in zip(result, target.stride()))
    longer = (1,) * (len(result) - len(given)) + given
    grows = [(a < c, b < c) for a, b, c in zip(longer, own, result)]
    is_both = any(one for one, _ in grows) and any(one for _, one in grows)
    if not is_both or any(map(all, grows)):
        return None
    while len(own) > 1 and own[0] == 1:
        own = own[1:]
    return given, own, result


def _shapes_subtracted(node: Any) -> tuple[Shape, None, Shape] | None:
    operands = [(one, place) for one, place in node.next_functions if one is not None]
    if len(operands) != 1:
        return None
    (operand, place), result = operands[0], tuple(node._input_metadata[0].shape)
    given = expanded(operand) or tuple(operand._input_metadata[place].shape)
    if has_inserted_axis(operand) or len(result) != 2 or result[0] != result[1] or result[0] < 2:
        return None
    num = result[0]
    return (given, None, result) if given in ((num, 1), (num,)) else None


def has_inserted_axis(node: Any) -> bool:
    """Return whether the script has made an axis of one, so that a repetition is meant."""
    inner = node.next_functions[0][0] if node.name() == "ExpandBackward0" else node
    return inner is not None and inner.name() in ("UnsqueezeBackward0", "TransposeBackward0")


def expanded(node: Any) -> Shape | None:
    """Return the shape before an expansion; None where a node is none."""
    if node is None or node.name() != "ExpandBackward0":
        return None
    return tuple(int(size) for size in node._saved_self_sym_sizes)


def read_saved(node: Any, name: str) -> Any:
    """Return a tensor that a node has saved; None where a hook of the user's packed it."""
    saved = getattr(node, f"_raw_saved_{name}", None)
    if saved is None or getattr(saved, "unpack_hook", "unknown") is not None:
        return None
    return getattr(node, f"_saved_{name}")


def read_int(tensor: Any) -> int:
    """Return the whole number of a tensor on the CPU."""
    return int(c_int64.from_address(tensor.data_ptr()).value)
