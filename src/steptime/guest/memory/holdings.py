"""Who holds memory: weights, buffers, gradients, optimizer states, and what a graph keeps.

In: models, optimizers, the root of a graph. Out: bytes by part. Each storage counts once, for the
part that named it first. Nothing is computed, unpacked or kept, and nobody's hook runs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import FunctionType
from typing import Any

from ..hooks.module_tree import held_by, modules_of, parameters_of

MAX_NODES = 200_000
"""A larger graph is not walked to its end."""

MAX_DEPTH = 6
"""What an optimizer keeps for a parameter may be nested: lists in dictionaries in objects."""

MAX_PACKED = 8
"""Steps from a saved tensor, through its hook and the hook's closure, to the tensors it keeps."""

MAX_OWNERS = 5_000_000
"""Python objects that are examined when a process ran out of memory."""

SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""The product's short names of torch's dtypes."""


class HeldPart:
    """Bytes of one part."""

    __slots__ = ("by_device", "by_dtype", "bytes", "is_sharded", "num")

    def __init__(self) -> None:
        self.bytes = self.num = 0
        self.by_dtype: dict[str, int] = {}
        self.by_device: dict[str, int] = {}
        self.is_sharded = False

    def table(self) -> dict[str, Any]:
        """Return the part as it is written."""
        return {
            "bytes": self.bytes,
            "num": self.num,
            "by_dtype": self.by_dtype,
            "by_device": self.by_device,
            "is_sharded": self.is_sharded,
        }


class StorageLedger:
    """Storages and the part that each belongs to.

    Args:
        torch: the module.
        listen: called for each storage that is booked, with part, storage and device.
    """

    def __init__(self, torch: Any, listen: Callable[[str, Any, str], None] | None = None) -> None:
        self.torch = torch
        self.listen = listen
        self.owner: dict[int, str] = {}
        self.parts: dict[str, HeldPart] = {}

    def take(self, name: str, tensors: Iterable[Any]) -> int:
        """Book these tensors to a part; return the bytes that were new."""
        part = self.parts.setdefault(name, HeldPart())
        before = part.bytes
        for tensor in tensors:
            part.num += 1
            part.is_sharded |= is_sharded(tensor)
            for plain in plain_tensors(self.torch, tensor):
                storage = storage_of(plain)
                if storage is not None:
                    self.book(name, storage, short_dtype(plain.dtype), str(plain.device))
        return part.bytes - before

    def book(self, name: str, storage: Any, dtype: str, device: str) -> None:
        """Book a storage to a part, unless it belongs to one already."""
        key = storage._cdata
        if key in self.owner:
            return
        self.owner[key] = name
        if self.listen is not None:
            self.listen(name, storage, device)
        part, size = self.parts.setdefault(name, HeldPart()), storage.nbytes()
        part.bytes += size
        part.by_dtype[dtype] = part.by_dtype.get(dtype, 0) + size
        part.by_device[device] = part.by_device.get(device, 0) + size

    def table(self) -> dict[str, dict[str, Any]]:
        """Return all parts as they are written."""
        return {name: part.table() for name, part in self.parts.items()}


def short_dtype(dtype: Any) -> str:
    """Return a dtype's short name: `fp32`, `bf16`, `int8`."""
    name = str(dtype).removeprefix("torch.")
    return SHORT.get(name, name)


def storage_of(tensor: Any) -> Any:
    """Return a tensor's storage; None where it has none (meta, sparse, mkldnn)."""
    if tensor.device.type == "meta":
        return None
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


def plain_tensors(torch: Any, tensor: Any, depth: int = MAX_DEPTH) -> Iterator[Any]:
    """Yield the tensors with storages that make up one: a shard, quantized values and scales."""
    kind = type(tensor)
    if kind in (torch.Tensor, torch.nn.Parameter):
        yield from sparse_parts(torch, tensor)
        return
    local = getattr(tensor, "_local_tensor", None)  # a DTensor: what lies on this rank
    if isinstance(local, torch.Tensor) and depth:
        yield from plain_tensors(torch, local, depth - 1)
        return
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None or not depth:
        yield tensor
        return
    names, _ = flatten()
    for name in names:
        yield from plain_tensors(torch, getattr(tensor, name), depth - 1)


def sparse_parts(torch: Any, tensor: Any) -> Iterator[Any]:
    """Yield the indices and values of a sparse tensor; any other tensor itself."""
    if tensor.layout == torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    else:
        yield tensor


def is_sharded(tensor: Any) -> bool:
    """Return whether it is one rank's part: a split DTensor, or FSDP's flat parameter."""
    if type(tensor).__name__ == "FlatParameter":
        return True
    placements = getattr(tensor, "placements", None)
    return placements is not None and any(
        getattr(placement, "is_shard", bool)() for placement in placements
    )


# -- models and optimizers


def take_models(
    ledger: StorageLedger, models: Iterable[Any], optimizers: Iterable[Any]
) -> dict[str, int]:
    """Book weights, gradients and buffers, including an optimizer's; return parameter counts."""
    found: dict[int, Any] = {}
    buffers: list[Any] = []
    for model in models:
        found.update((id(p), p) for _, p in parameters_of(model))
        inner = modules_of(model)
        buffers += [one for _, part in inner for _, one in held_by(part, "_buffers")]
    for optimizer in optimizers:
        for group in getattr(optimizer, "param_groups", ()):  # Keras's have none
            found.update((id(p), p) for p in group["params"])
    parameters = list(found.values())
    ledger.take("weights", parameters)
    ledger.take("buffers", buffers)
    ledger.take("gradients", (p.grad for p in parameters if p.grad is not None))
    return {
        "num_parameters": sum(p.numel() for p in parameters),
        "num_trainable": sum(p.numel() for p in parameters if p.requires_grad),
    }


def take_optimizers(ledger: StorageLedger, optimizers: Iterable[Any]) -> None:
    """Book what optimizers keep: their states, and tensors in their own attributes."""
    torch = ledger.torch
    for optimizer in optimizers:
        if not hasattr(optimizer, "param_groups"):
            continue
        held = [dict(optimizer.state)]
        held += [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
        own = vars(optimizer).items()
        held.append({k: v for k, v in own if k not in ("state", "param_groups")})
        ledger.take("optimizer", tensors_within(torch, held))


def tensors_within(torch: Any, value: Any, depth: int = MAX_DEPTH) -> Iterator[Any]:
    """Yield the tensors in nested containers, and in the state of an optimizer among them."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    if not depth:
        return
    if isinstance(value, dict):
        inner: Iterable[Any] = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = value
    elif hasattr(value, "param_groups") and hasattr(value, "state"):
        inner = (value.state,)  # an optimizer within one
    else:
        return
    for one in inner:
        yield from tensors_within(torch, one, depth - 1)


# -- what a graph keeps for its backward


def saved_in_graph(torch: Any, roots: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each node of the graph of these roots, with a tensor that it keeps.

    What a hook has packed (a checkpoint, an offload) is searched but not unpacked, because
    unpacking would compute it again.
    """
    names: dict[type, list[str]] = {}
    pending = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen: dict[int, Any] = {}
    packs = Packs(torch)
    while pending and len(seen) < MAX_NODES:
        node = pending.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node  # kept alive, because Python reuses the id of a node that is gone
        pending += [following for following, _ in node.next_functions]
        kind = type(node)
        if kind not in names:
            names[kind] = [name for name in dir(kind) if name.startswith("_raw_saved_")]
        saved = [raw_saved(node, name) for name in names[kind]]
        for tensor in packs.tensors([saved, getattr(node, "__dict__", None)]):
            yield node, tensor
            if type(tensor.grad_fn).__name__.startswith("_NoopSaveInputs"):
                pending.append(tensor.grad_fn)  # torch's checkpoint keeps a block's inputs so


def raw_saved(node: Any, name: str) -> Any:
    """Return what a node saved under a name; None once it is freed."""
    try:
        return getattr(node, name)
    except RuntimeError:
        return None


class Packs:
    """Searches what saved tensors were packed into, each object once."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.seen: dict[int, Any] = {}

    def tensors(self, value: Any, depth: int = MAX_PACKED) -> Iterator[Any]:
        """Yield the tensors in a value that can be reached without calling anything."""
        if value is None or not depth:
            return
        if isinstance(value, self.torch.Tensor):
            yield value
        elif hasattr(value, "unpack_hook"):
            yield from self._saved(value, depth)
        elif isinstance(value, (list, tuple)):
            for one in value:
                yield from self.tensors(one, depth)
        elif isinstance(value, dict):
            for one in list(value.values()):
                yield from self.tensors(one, depth - 1)
        elif isinstance(value, FunctionType):
            yield from self._held(value, cell_values(value), depth)
        elif hasattr(value, "__dict__") and not isinstance(value, self.torch.nn.Module):
            yield from self._held(value, vars(value), depth)

    def _saved(self, saved: Any, depth: int) -> Iterator[Any]:
        try:
            data, hook = saved.data, saved.unpack_hook
        except RuntimeError:
            return  # none was saved, or it is freed
        yield from self.tensors([data, hook], depth - 1)

    def _held(self, owner: Any, values: Any, depth: int) -> Iterator[Any]:
        if id(owner) not in self.seen and not isinstance(owner, type):
            self.seen[id(owner)] = owner
            yield from self.tensors(values, depth - 1)


def cell_values(function: FunctionType) -> list[Any]:
    """Return what a function closes over."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    return found


def tensors_alive(torch: Any) -> list[Any]:
    """Return all tensors that Python tracks; it takes 30 ms where there are 300,000 objects."""
    kinds: set[int] = set()
    pending = [torch.Tensor]
    while pending:
        kind = pending.pop()
        kinds.add(id(kind))
        pending += type.__subclasses__(kind)
    return [one for one in islice(gc.get_objects(), MAX_OWNERS) if id(type(one)) in kinds]
