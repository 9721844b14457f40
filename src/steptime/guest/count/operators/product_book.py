"""The products and convolutions of a step with their sizes, and where in the script each is.

In: operators that a dispatch mode has seen, and the modules that a tally follows. Out: the line of
kind `PRODUCTS`: one row for each product of one place, and the weights that they meet. A product of
a backward call belongs to the line of the forward that made its graph node. Only shapes, strides
and addresses are read, no value of a tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from json import dumps
from typing import TYPE_CHECKING, Any

from ....record import kinds
from ...sites.frames import Frames, innermost
from ..tensor_facts import is_view, tensors_in
from .flops import formula_of
from .operator_names import ATTENTION, CONVOLUTION, MATMUL, RECURRENT
from .product_sizes import attention_of, convolution_of, matmul_of, recurrent_of

if TYPE_CHECKING:
    from ..tally import Tally

MAX_PRODUCTS = 400
"""Rows that are written, those that took longest, so that the line stays short."""

MAX_WEIGHTS = 2_000

COPYING = frozenset(("aten::_to_copy", "aten::clone", "aten::contiguous"))
"""What these return is the weight itself in another type or order, as autocast makes it."""

SIZES = {
    MATMUL: matmul_of,
    CONVOLUTION: convolution_of,
    ATTENTION: attention_of,
    RECURRENT: recurrent_of,
}
"""What the sizes of an operator of that class are."""

Place = tuple[str, int]


class Weight:
    """A parameter that modules hold: its name and sizes, and whether rows of it are looked up."""

    __slots__ = ("is_embedding", "is_met", "module", "name", "shape", "stride")

    def __init__(self, name: str, module: str, tensor: Any) -> None:
        self.name = name
        self.module = module
        self.shape = tuple(int(size) for size in tensor.shape)
        self.stride = tuple(tensor.stride())
        self.is_embedding = False
        self.is_met = False


class ProductBook:
    """The products of the updates that are counted.

    Args:
        torch: the module.
        frames: walks the script's frames.
    """

    def __init__(self, torch: Any, frames: Frames) -> None:
        self.torch = torch
        self.frames = frames
        self.rows: dict[tuple[Any, ...], list[int]] = {}  # number and time [ns]
        self.weights: dict[int, Weight] = {}  # by the address of their memory
        self.copies: dict[int, Weight] = {}
        self.made_by: dict[int, tuple[Place | None, Weight | None]] = {}  # by graph node
        self.devices: dict[str, Any] = {}
        self.names: dict[Any, tuple[str, str]] = {}
        self._next_node = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)
        self._node_now = torch._C._current_autograd_node

    def name(self, path: str, module: Any) -> None:
        """Learn the weights of one module."""
        for name, one in module._parameters.items():
            if one is None or one.dim() < 2 or len(self.weights) >= MAX_WEIGHTS:
                continue
            address = address_of(one)
            if address and address not in self.weights:
                self.weights[address] = Weight(f"{path}.{name}", type(module).__name__, one)

    def begin_update(self) -> None:
        """Forget the graph of the update before."""
        self.made_by.clear()
        self.copies.clear()

    # -- operators

    def add(self, tally: Tally, func: Any, args: Any, kwargs: Any, result: Any, ns: int) -> None:
        """Take an operator that has run in `ns`."""
        schema = getattr(func, "_schema", None)
        if schema is None or is_view(func):
            return
        formula = formula_of(schema.name)
        if formula is None:
            self._follow_copy(schema.name, args, result)
            return
        bound = dict(zip([one.name for one in schema.arguments], args)) | dict(kwargs)
        kind = formula(bound, result).kind
        find_sizes = SIZES.get(kind)
        sizes = None if find_sizes is None else find_sizes(bound, result)
        if sizes is None:
            return
        node = self._node_now()
        place, weight = (None, None) if node is None else self._of_node(node)
        met = self._weight_in(args)
        weight = met or weight
        if node is None:
            place = self._place_now()
            self.made_by[self._next_node() - 1] = place, weight
        for one in self._weights_in(args) if kind == RECURRENT else ():
            one.is_met = True
        if weight is not None:
            weight.is_met = True
            sizes |= axes_of(kind, bound, result, weight, is_met=met is not None)
        self._book(tally, kind, sizes, place=place, weight=weight, tensor=first_of(args), ns=ns)

    def _of_node(self, node: Any) -> tuple[Place | None, Weight | None]:
        return self.made_by.get(node._sequence_nr(), (None, None))

    def _place_now(self) -> Place | None:
        place = innermost(self.frames.stack(sys._getframe(2)))
        return None if place is None else place[:2]

    def _book(
        self,
        tally: Tally,
        kind: str,
        sizes: dict[str, Any],
        *,
        place: Place | None,
        weight: Weight | None,
        tensor: Any,
        ns: int,
    ) -> None:
        which, call = tally.place_of_product()
        module = ("", "") if call is None else tally.names.get(call.key, ("", ""))
        dtype = str(tensor.dtype).removeprefix("torch.")
        device = tensor.device.type
        self.devices.setdefault(device, tensor.device)
        packed = tuple(sorted((name, as_key(value)) for name, value in sizes.items()))
        name = None if weight is None else weight.name
        row = self.rows.setdefault(
            (kind, which, *module, place, name, dtype, device, packed), [0, 0]
        )
        row[0] += 1
        row[1] += ns

    def _follow_copy(self, name: str, args: Any, result: Any) -> None:
        """Know a weight again in the copy that autocast makes of it, and an embedding's rows."""
        if name in ("aten::embedding", "aten::_embedding_bag"):
            weight = self._weight_in(args)
            if weight is not None:
                weight.is_embedding = weight.is_met = True
            return
        source = self._weight_in(args) if name in COPYING else None
        for one in tensors_in([result]):
            address = address_of(one)
            if source is not None and tuple(one.shape) == source.shape:
                self.copies[address] = source
            else:
                self.copies.pop(address, None)  # its memory has been given to another tensor

    def _weight_in(self, args: Any) -> Weight | None:
        return next(self._weights_in(args), None)

    def _weights_in(self, args: Any) -> Iterator[Weight]:
        for one in tensors_in(list(args)):
            address = address_of(one)
            found = self.weights.get(address) or self.copies.get(address)
            if found is not None and one.numel() == numel_of(found):
                yield found

    # -- what came of it

    def line(self, num_updates: int) -> str:
        """Return the line about all updates that were counted."""
        order = {key: number for number, key in enumerate(self.rows)}
        ordered = sorted(self.rows.items(), key=lambda item: -item[1][1])
        told = [
            {
                **dict(zip(("kind", "which", "module", "module_kind"), key[:4])),
                "place": None if key[4] is None else dict(zip(("file", "line"), key[4])),
                "weight": key[5],
                "dtype": key[6],
                "device": key[7],
                "sizes": {name: list(v) if isinstance(v, tuple) else v for name, v in key[8]},
                "num": num,
                "order": order[key],
                "time_s": ns * 1e-9 if key[7] == "cpu" else None,
            }
            for key, (num, ns) in ordered[:MAX_PRODUCTS]
        ]
        met = [one for one in self.weights.values() if one.is_met]
        weights = [
            {
                "name": one.name,
                "module_kind": one.module,
                "shape": list(one.shape),
                "is_embedding": one.is_embedding,
            }
            for one in met
        ]
        line = {
            "k": kinds.PRODUCTS,
            "updates": num_updates,
            "num_threads": self.torch.get_num_threads(),
            "num_left_out": max(0, len(ordered) - MAX_PRODUCTS),
            "products": told,
            "weights": weights,
            "devices": [self._device_facts(one) for one in self.devices.values()],
        }
        return dumps(line) + "\n"

    def _device_facts(self, device: Any) -> dict[str, Any]:
        """Return what torch says of a device."""
        torch = self.torch
        if device.type != "cuda":
            backend = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None)
            words = None if backend is None or device.type != "cpu" else str(backend())
            return {"kind": device.type, "name": None, "capability": words}
        found = torch.cuda.get_device_properties(device)
        return {
            "kind": device.type,
            "name": str(found.name),
            "capability": f"{found.major}.{found.minor}",
            "num_multiprocessors": int(found.multi_processor_count),
            "memory_bytes": int(found.total_memory),
        }


# -- tensors and weights


def address_of(tensor: Any) -> int:
    """Return where the memory of a tensor begins; 0 where it has none of its own."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError, AttributeError):
        return 0


def first_of(args: Any) -> Any:
    """Return the first tensor of two dimensions or more: a bias is none."""
    found = list(tensors_in(list(args)))
    return next((one for one in found if one.dim() > 1), found[0])


def numel_of(weight: Weight) -> int:
    """Return the number of a weight's elements."""
    number = 1
    for size in weight.shape:
        number *= size
    return number


def as_key(value: Any) -> Any:
    """Return a value that can be a part of a key."""
    return tuple(value) if isinstance(value, list) else value


def axes_of(
    kind: str, bound: Any, result: Any, weight: Weight, *, is_met: bool
) -> dict[str, list[int | None]]:
    """Return which axis of the weight each of m, n and the inner size is; None where it is none.

    Args:
        kind: class of the operator.
        bound: its arguments by name.
        result: what it returned.
        weight: the weight that it meets, or whose gradient it computes.
        is_met: whether the weight is one of its arguments.
    """
    if kind != MATMUL or len(weight.shape) != 2:
        return {}
    left, right = operands_of(bound)
    if left is None or left.dim() != 2:
        return {}
    if not is_met:  # the gradient of the weight
        order = order_of(result, weight)
        return {} if order is None else {"axes": [order[0], order[1], None]}
    for tensor, at in ((right, 1), (left, 0)):
        order = order_of(tensor, weight)
        if order is not None and tensor.numel() == numel_of(weight) and shares(tensor, weight):
            rows, columns = order
            return {"axes": [None, columns, rows] if at else [rows, None, columns]}
    return {}


def operands_of(bound: Any) -> tuple[Any, Any]:
    """Return both factors of a product."""
    for left, right in (("mat1", "mat2"), ("self", "mat2"), ("batch1", "batch2")):
        if left in bound and right in bound:
            return bound[left], bound[right]
    return None, None


def order_of(tensor: Any, weight: Weight) -> tuple[int, int] | None:
    """Return the weight's axes in the order of a tensor's; None if it has other sizes."""
    shape = tuple(int(size) for size in tensor.shape)
    is_same, is_turned = shape == weight.shape, shape == weight.shape[::-1]
    if is_same and is_turned:
        is_same = tuple(tensor.stride()) == weight.stride
    return (0, 1) if is_same else (1, 0) if is_turned else None


def shares(tensor: Any, weight: Weight) -> bool:
    """Return whether a factor can be the weight: all of its sizes are among the weight's."""
    return sorted(map(int, tensor.shape)) == sorted(weight.shape)
