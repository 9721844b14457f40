"""A graph as the products of MaxK read it: rows of sorted columns, with what is worked out once.

`Adjacency` checks its arrays when it is made. It keeps the transposed graph and the splits by
column that the backward pass needs; both are made at their first use. Weights are not part of it:
they change, the graph does not. `adjacency_of` finds a graph again by its `edge_index`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

MOST_NODES = 2**31 - 1


class Adjacency:
    """A sparse matrix without values, (num_rows, num_cols); row i sums over its columns.

    Attributes:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32, ascending in each row; edges may stand several times.
        order: (num_edges,) int64, where each edge stood in what was given.
    """

    def __init__(self, indptr: Any, indices: Any, num_cols: int) -> None:
        """Check and sort a graph in compressed rows.

        Args:
            indptr: (num_rows + 1,) integers from 0 to the number of edges, never falling.
            indices: (num_edges,) integers, the columns of each row in any order.
            num_cols: the number of columns.

        Raises:
            ValueError: the arrays are no graph, or lie on two devices.
        """
        _check(indptr, indices, num_cols)
        self.num_rows = len(indptr) - 1
        self.num_cols = num_cols
        self.indptr = indptr.to(torch.int64).contiguous()
        rows = self.rows()
        self.order = torch.argsort(rows * num_cols + indices.to(torch.int64), stable=True)
        self.indices = indices[self.order].to(torch.int32).contiguous()
        self._splits: dict[int, Any] = {}
        self._transposed: tuple[Any, Any, Any] | None = None

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_rows: int, num_cols: int) -> Adjacency:
        """The graph whose row `edge_index[1]` sums over `edge_index[0]`, as in PyG.

        Raises:
            ValueError: an id is out of range.
        """
        source, target = edge_index[0], edge_index[1]
        if len(target) and not (int(target.min()) >= 0 and int(target.max()) < num_rows):
            raise ValueError(
                f"edges end at nodes {int(target.min())} to {int(target.max())}, "
                f"and the graph has nodes 0 to {num_rows - 1}"
            )
        order = torch.argsort(target, stable=True)
        indptr = torch.zeros(num_rows + 1, dtype=torch.int64, device=target.device)
        indptr[1:] = torch.bincount(target, minlength=num_rows).cumsum(0)
        made = cls(indptr, source[order], num_cols)
        made.order = order[made.order]
        return made

    @property
    def device(self) -> Any:
        """Where the graph lies."""
        return self.indices.device

    def rows(self) -> Any:
        """(num_edges,) The row of each edge."""
        degrees = self.indptr[1:] - self.indptr[:-1]
        return torch.repeat_interleave(degrees)

    def splits(self, num: int) -> Any:
        """(num + 1, num_rows) Where each of `num` ranges of columns begins in each row.

        The ranges have about as many edges each, so that threads which take one each, and write
        to nobody else's columns, end together.
        """
        if num not in self._splits:
            before = torch.bincount(self.indices, minlength=self.num_cols).cumsum(0)
            parts = [self.indptr[:-1]]
            for part in range(1, num):
                column = int(torch.searchsorted(before, len(self.indices) * part // num)) + 1
                passed = torch.zeros(len(self.indices) + 1, dtype=torch.int64)
                passed[1:] = (self.indices < column).cumsum(0)
                parts.append(parts[0] + passed[self.indptr[1:]] - passed[self.indptr[:-1]])
            self._splits[num] = torch.stack([*parts, self.indptr[1:]]).contiguous()
        return self._splits[num]

    def transposed(self) -> tuple[Any, Any, Any]:
        """Row pointers and columns of the transposed graph, and where its edges stand in ours."""
        if self._transposed is None:
            order = torch.argsort(self.indices, stable=True)
            indptr = torch.zeros(self.num_cols + 1, dtype=torch.int64, device=self.device)
            indptr[1:] = torch.bincount(self.indices, minlength=self.num_cols).cumsum(0)
            self._transposed = (indptr, self.rows()[order].to(torch.int32), order)
        return self._transposed

    def product(self, weight: Any, dense: Any) -> Any:
        """The graph times dense rows, by `torch.sparse.mm`."""
        shape = (self.num_rows, self.num_cols)
        return _product(self.indptr, self.indices, weight, shape, dense)

    def transposed_product(self, weight: Any, dense: Any) -> Any:
        """The transposed graph times dense rows, by `torch.sparse.mm`."""
        indptr, indices, order = self.transposed()
        weight = None if weight is None else weight[order]
        return _product(indptr, indices, weight, (self.num_cols, self.num_rows), dense)


def _check(indptr: Any, indices: Any, num_cols: int) -> None:
    """Refuse arrays that are no graph, in one sentence."""
    if indptr.device != indices.device:
        raise ValueError(f"indptr lies on {indptr.device} and indices on {indices.device}")
    if indptr.dim() != 1 or indices.dim() != 1 or not len(indptr):
        raise ValueError(
            f"indptr and indices are one row of integers each, got shapes {tuple(indptr.shape)} "
            f"and {tuple(indices.shape)}"
        )
    if indptr.is_floating_point() or indices.is_floating_point():
        raise ValueError(f"ids are integers, got {indptr.dtype} and {indices.dtype}")
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices):
        raise ValueError(
            f"indptr begins at 0 and ends at the number of edges ({len(indices)}), "
            f"got {int(indptr[0])} and {int(indptr[-1])}"
        )
    falls = (indptr[1:] < indptr[:-1]).nonzero()
    if len(falls):
        at = int(falls[0])
        raise ValueError(
            f"indptr never falls, and it goes from {int(indptr[at])} to {int(indptr[at + 1])} "
            f"at row {at}"
        )
    if max(num_cols, len(indptr) - 1) > MOST_NODES:
        raise ValueError(f"a graph for MaxK has at most {MOST_NODES} nodes, got {num_cols}")
    if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < num_cols):
        raise ValueError(
            f"columns are 0 to {num_cols - 1}, got {int(indices.min())} to {int(indices.max())}"
        )


def _product(indptr: Any, indices: Any, weight: Any, shape: tuple[int, int], dense: Any) -> Any:
    """A sparse matrix in compressed rows times dense rows."""
    kind = torch.float32 if dense.dtype == torch.bfloat16 else dense.dtype
    if weight is None:
        weight = torch.ones(len(indices), dtype=kind, device=dense.device)
    is_large = len(indices) > MOST_NODES
    pointers = indptr if is_large else indptr.to(torch.int32)
    columns = indices.to(torch.int64) if is_large else indices
    with warnings.catch_warnings():  # torch calls its CSR a beta, which is not the caller's choice
        warnings.filterwarnings("ignore", message="Sparse CSR")
        matrix = torch.sparse_csr_tensor(
            pointers, columns, weight.to(kind), shape, check_invariants=False
        )
    return torch.sparse.mm(matrix, dense.to(kind)).to(dense.dtype)


# Found again by the tensor itself, for as long as somebody holds it.
_known: Any = WeakIdKeyDictionary()


def remember(tensor: Any, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
    """What `make` returned for this tensor and key the last time, if the tensor has not changed."""
    if tensor.is_inference():
        return make()  # it has no version to compare
    version, made = _known.get(tensor, (None, {}))
    if version != tensor._version:
        made = {}
        _known[tensor] = (tensor._version, made)
    if key not in made:
        made[key] = make()
    return made[key]


def adjacency_of(edge_index: Any, num_rows: int, num_cols: int) -> Adjacency:
    """The graph of an `edge_index`, made once for as long as it stays the same."""
    found: Adjacency = remember(
        edge_index,
        ("adjacency", num_rows, num_cols),
        lambda: Adjacency.from_edge_index(edge_index, num_rows, num_cols),
    )
    return found
