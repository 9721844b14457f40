"""Keeps the elements of tensors: copied before they are written, put back without a trace.

In: the tensors of the models and inputs, and each operator before it runs. A tensor that nobody
named (of a closure, of a list) is copied, too, when an operator is about to write to it. Out:
elements, sizes, version counters and generators of random numbers as they were.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

MAX_COPIED_BYTES = 1 << 28
"""Buffers are copied at once up to this sum, the smallest first, so that even what no operator
shows (another thread, a kernel of the user's own) is put back. All else is copied when an operator
is about to write to it, which costs no memory where none does."""

UNDECLARED = ("running_mean", "running_var")
"""Arguments that normalizations write to, though their schemas do not say so."""


class KeptTensors:
    """The tensors that were there before, as they were.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.copies: dict[int, tuple[Any, Any]] = {}  # a storage, and a copy of it
        self.known: dict[int, tuple[Any, Any, bool]] = {}  # with an alias that keeps its sizes
        self.versions: dict[int, tuple[Any, int]] = {}
        self.generators: dict[int, tuple[Any, Any]] = {}
        self.made: set[int] = set()  # storages that came since
        self.uses: dict[Any, tuple[list[tuple[int, str]], list[tuple[int, str]]]] = {}

    def note(self, tensors: list[Any]) -> None:
        """Note where the elements are, and the version; nothing is copied."""
        for one in tensors:
            if id(one) not in self.known and self.is_real(one):
                self.known[id(one)] = (one, one.data, one.requires_grad)
                self._note_version(one)

    def copy_now(self, tensors: list[Any]) -> None:
        """Copy the smallest of these, as long as all copies are small."""
        room = MAX_COPIED_BYTES
        for one in sorted(filter(self.is_real, tensors), key=num_bytes):
            room -= num_bytes(one)
            if room < 0:
                return
            self._copy(one)

    def is_real(self, tensor: Any) -> bool:
        """Return whether it has elements of its own: shapes have none, parts of ranks hold them."""
        plain = type(tensor).__torch_dispatch__ == self.torch.Tensor.__torch_dispatch__
        return plain and tensor.device.type != "meta" and not is_lazy(tensor)

    def was_there(self, tensor: Any) -> bool:
        """Return whether it has elements that no operator has made since."""
        if not self.is_real(tensor):
            return False
        return any(storage._cdata not in self.made for storage in storages_of(tensor))

    # -- what operators do

    def see_before(self, func: Any, args: Any, kwargs: Any) -> None:
        """Copy what the operator will write to, and the generators it draws from."""
        if func not in self.uses:
            self.uses[func] = _uses_of(func)
        written, drawn = self.uses[func]
        for place, name in written:
            value = args[place] if place < len(args) else kwargs.get(name)
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if one is not None and self.is_real(one):
                    self._note_version(one)
                    self._copy(one)
        for place, name in drawn:
            generator = args[place] if place < len(args) else kwargs.get(name)
            if generator is not None and id(generator) not in self.generators:
                self.generators[id(generator)] = (generator, generator.get_state())

    def see_after(self, tensors: list[Any], results: list[Any]) -> None:
        """Learn which storages an operator made."""
        taken = {one._cdata for tensor in tensors for one in storages_of(tensor)}
        given = {one._cdata for tensor in results for one in storages_of(tensor)}
        self.made |= given - taken

    def _copy(self, tensor: Any) -> None:
        for storage in storages_of(tensor):
            key = storage._cdata
            if key not in self.copies and key not in self.made:
                self.copies[key] = (storage, storage.clone())

    def _note_version(self, tensor: Any) -> None:
        if id(tensor) not in self.versions and not tensor.is_inference():
            self.versions[id(tensor)] = (tensor, tensor._version)

    # -- and back

    def put_back(self) -> list[Any]:
        """Put everything back; return the tensors that changed in a way that nothing showed."""
        missed = [one for one, _, _ in self.known.values() if self._changed_unseen(one)]
        for tensor, alias, requires_grad in self.known.values():
            if _is_moved(tensor, alias):
                tensor.data = alias
            if tensor.requires_grad != requires_grad and tensor.is_leaf:
                tensor.requires_grad_(requires_grad)
        for storage, copy in self.copies.values():
            if storage.nbytes() != copy.nbytes():
                storage.resize_(copy.nbytes())
            storage.copy_(copy)
        set_versions = getattr(self.torch._C._autograd, "_unsafe_set_version_counter", None)
        for tensor, version in self.versions.values():
            if tensor._version != version and set_versions is not None:
                _set_version(set_versions, tensor, version)
        for generator, state in self.generators.values():
            generator.set_state(state)
        for held in (self.copies, self.known, self.versions, self.generators):
            held.clear()  # a traceback may keep this object alive
        return missed

    def _changed_unseen(self, tensor: Any) -> bool:
        """Return whether its version says that it was written to, though it was not copied."""
        _, version = self.versions.get(id(tensor), (None, None))
        if version is None or tensor._version == version:
            return False
        return any(one._cdata not in self.copies for one in storages_of(tensor))


def _set_version(set_versions: Any, tensor: Any, version: int) -> None:
    try:
        set_versions((tensor,), (version,))
    except TypeError:  # before torch 2.6 it takes one tensor
        set_versions(tensor, version)


def _is_moved(tensor: Any, alias: Any) -> bool:
    """Return whether it may lie elsewhere than its alias: a sparse one may have other parts."""
    if tensor.is_nested:
        return False
    return not is_strided(tensor) or not is_strided(alias) or _place(tensor) != _place(alias)


def _place(tensor: Any) -> tuple[Any, ...]:
    start = (tensor.untyped_storage()._cdata, tensor.storage_offset())
    return (*start, tensor.dtype, tensor.shape, tensor.stride())


def storages_of(tensor: Any) -> list[Any]:
    """Return the storages that hold its elements; a sparse tensor has several."""
    if is_strided(tensor):
        return [tensor.untyped_storage()]
    return [part.untyped_storage() for part in _sparse_parts(tensor)]


def _sparse_parts(tensor: Any) -> Iterator[Any]:
    layout = str(tensor.layout)
    if layout == "torch.sparse_coo":
        yield from (tensor._indices(), tensor._values())
    elif layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif layout in ("torch.sparse_csc", "torch.sparse_bsc"):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())


def is_strided(tensor: Any) -> bool:
    """Return whether all its elements lie in one storage."""
    return str(tensor.layout) == "torch.strided"


def num_bytes(tensor: Any) -> int:
    """Return the bytes that a copy takes."""
    return sum(int(storage.nbytes()) for storage in storages_of(tensor))


def is_lazy(tensor: Any) -> bool:
    """Return whether it has no shape yet."""
    parameter = sys.modules.get("torch.nn.parameter")
    return parameter is not None and bool(parameter.is_lazy(tensor))


def _uses_of(func: Any) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return places and names of the arguments that an operator writes to, and draws from."""
    schema = getattr(func, "_schema", None)
    written, drawn = [], []
    for place, one in enumerate(schema.arguments if schema is not None else ()):
        if (one.alias_info is not None and one.alias_info.is_write) or one.name in UNDECLARED:
            written.append((place, one.name))
        if "Generator" in str(one.type):
            drawn.append((place, one.name))
    return written, drawn
