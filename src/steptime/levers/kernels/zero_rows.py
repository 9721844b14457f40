"""Matrices that are mostly zeros, kept in compressed rows where a model reads them.

In: the functions that a script calls, and the matrices they get. Out: the same functions, which
keep a matrix that comes again and is mostly zeros as `ZeroRows`: a tensor that products read by
what is not zero alone, and that becomes the whole matrix as soon as anything else reads it. The
guest asks with this file too, so it knows the standard library alone.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from ..base import Undo
from ..tools.owners import put

MIN_ELEMENTS = 1 << 16
"""A smaller matrix is multiplied in microseconds."""

MIN_ZEROS = 0.95
"""With fewer zeros a sparse product is hardly faster than a dense one."""

MAX_KNOWN = 64
PRODUCTS = ("mm", "matmul")
"""Functions of torch's that multiply two matrices, and methods of its tensors."""


def zero_fraction(matrix: Any) -> float:
    """Return the share of zeros in a matrix."""
    return 1.0 - int(matrix.count_nonzero()) / max(1, int(matrix.numel()))


def is_candidate(torch: Any, value: Any) -> bool:
    """Return whether a value is a matrix of a script's that may be kept in compressed rows."""
    return (
        type(value) is torch.Tensor
        and value.dim() == 2
        and not value.requires_grad
        and value.numel() >= MIN_ELEMENTS
        and value.dtype is torch.float32
        and value.layout is torch.strided
        and value.is_cpu
    )


class Places:
    """Where a matrix of `shape` is not zero, by rows and by columns.

    Attributes:
        columns: of what is not zero, row after row.
        row_begins: where each row begins in it, and its end.
        rows: of what is not zero, column after column.
        column_begins: where each column begins in it, and its end.
        order: where the numbers column after column lie in those row after row.
    """

    def __init__(self, torch: Any, matrix: Any) -> None:
        rows, self.columns = matrix.nonzero(as_tuple=True)
        self.shape = tuple(matrix.shape)
        self.row_begins = begins(torch, rows, self.shape[0])
        self.order = self.columns.argsort(stable=True)
        self.rows = rows[self.order]
        self.column_begins = begins(torch, self.columns, self.shape[1])
        self.flat = rows * self.shape[1] + self.columns

    def times(self, torch: Any, values: Any, weight: Any) -> Any:
        """Return the product with a matrix of `shape[1]` rows, given what is not zero."""
        return bags(torch, self.columns, self.row_begins, values, weight)

    def turned_times(self, torch: Any, values: Any, weight: Any) -> Any:
        """Return the product of the transpose with a matrix of `shape[0]` rows."""
        return bags(torch, self.rows, self.column_begins, values[self.order], weight)

    def whole(self, torch: Any, values: Any) -> Any:
        """Return the matrix with its zeros."""
        filled = torch.zeros(self.shape, dtype=values.dtype)
        filled.view(-1)[self.flat] = values
        return filled


def begins(torch: Any, index: Any, num: int) -> Any:
    """Return where each number below `num` begins in a sorted index, and the end."""
    found = torch.zeros(num + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(index, minlength=num), 0, out=found[1:])
    return found


def bags(torch: Any, index: Any, offsets: Any, values: Any, weight: Any) -> Any:
    """Return sums of rows of a matrix in float32, each by a factor, in one pass."""
    return torch.nn.functional.embedding_bag(
        index,
        weight.float().contiguous(),
        offsets,
        mode="sum",
        per_sample_weights=values,
        include_last_offset=True,
    )


class Held:
    """A matrix by what is not zero, and whole from the first time on that it is wanted whole."""

    def __init__(self, places: Places, values: Any, dtype: Any) -> None:
        self.places, self.values, self.dtype = places, values, dtype
        self.dense: Any = None

    def whole(self, torch: Any) -> Any:
        """Return the whole matrix, which others may change from now on."""
        if self.dense is None:
            self.dense = self.places.whole(torch, self.values).to(self.dtype)
        return self.dense

    def product(self, torch: Any, other: Any, *, is_turned: bool) -> Any:
        """Return the product of this matrix, or of its transpose, with another one."""
        places, values = self.places, self.values
        times = places.turned_times if is_turned else places.times
        return times(torch, values, other).to(self.dtype)


AS_WHOLE = ("__array__", "__reduce_ex__", "data_ptr", "numpy", "tolist", "untyped_storage")
"""Methods that no operator stands behind: they are those of the whole matrix."""


@functools.cache
def zero_rows_of(torch: Any) -> Any:
    """Return the class of tensors that hold a matrix by what is not zero."""

    class ZeroRows(torch.Tensor):  # type: ignore[misc, name-defined, unused-ignore]
        """A matrix of mostly zeros; `held` has its numbers, `is_turned` says it is transposed."""

        @staticmethod
        def __new__(cls: Any, held: Held, *, is_turned: bool = False) -> Any:
            shape = held.places.shape[::-1] if is_turned else held.places.shape
            strides = (1, shape[0]) if is_turned else (shape[1], 1)
            made = torch.Tensor._make_wrapper_subclass(
                cls, shape, strides=strides, dtype=held.dtype, device="cpu"
            )
            made.held, made.is_turned = held, is_turned
            return made

        __torch_function__ = torch._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return compute(torch, cls, func, args, kwargs or {})

        def sparse(self) -> Held | None:
            """Return its numbers by rows; None where it is whole or transposed."""
            return None if self.is_turned or self.held.dense is not None else self.held

        def whole(self) -> Any:
            """Return the matrix as torch's own tensor."""
            whole = self.held.whole(torch)
            return whole.t() if self.is_turned else whole

        def __repr__(self, **words: Any) -> str:
            return repr(self.whole())

        def __deepcopy__(self, memo: Any) -> Any:
            return self.whole().clone()

    for name in AS_WHOLE:
        setattr(ZeroRows, name, of_whole(name))
    return ZeroRows


def of_whole(name: str) -> Callable[..., Any]:
    """Return the method of this name, of the whole matrix."""

    def call(rows: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(rows.whole(), name)(*args, **kwargs)

    return call


def compute(torch: Any, cls: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of an operator: by what is not zero, or else on whole matrices."""
    aten, first = torch.ops.aten, args[0] if args else None
    if isinstance(first, cls) and first.held.dense is None:
        copy = copy_of(torch, cls, func, first, kwargs)
        if copy is not None:
            return copy
    found = None
    if func is aten.mm.default:
        found = multiply(torch, cls, *args)
    elif func is aten.addmm.default and not kwargs:
        found = multiply(torch, cls, *args[1:])
        found = None if found is None else found.add_(args[0])
    if found is not None:
        return found
    parts = func.decompose(*args, **kwargs)  # in inference mode it is made of others yet
    if parts is not NotImplemented:
        return parts
    result = func(*whole_of(torch, cls, args), **whole_of(torch, cls, kwargs))
    return first if func._schema.name.endswith("_") and isinstance(first, cls) else result


def copy_of(torch: Any, cls: Any, func: Any, rows: Any, kwargs: Any) -> Any:
    """Return the transpose, an alias or another type of a matrix; None for other operators."""
    aten, held = torch.ops.aten, rows.held
    if func is aten.t.default:
        return cls(held, is_turned=not rows.is_turned)
    if func in (aten.detach.default, aten.alias.default):
        return cls(held, is_turned=rows.is_turned)
    if func is aten._to_copy.default and is_only_of_dtype(torch, kwargs):
        values = held.values.to(kwargs["dtype"]).float()
        return cls(Held(held.places, values, kwargs["dtype"]), is_turned=rows.is_turned)
    return None


def is_only_of_dtype(torch: Any, words: Any) -> bool:
    """Return whether a copy is one into another type of float alone."""
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    wanted = {name: value for name, value in (words or {}).items() if value is not None}
    return set(wanted) == {"dtype"} and wanted["dtype"] in dtypes


def whole_of(torch: Any, cls: Any, value: Any) -> Any:
    """Return the arguments of an operator with whole matrices."""
    if isinstance(value, cls):
        return value.whole()
    if isinstance(value, (tuple, list)):
        return type(value)(whole_of(torch, cls, one) for one in value)
    if isinstance(value, dict):
        return {name: whole_of(torch, cls, one) for name, one in value.items()}
    return value


def multiply(torch: Any, cls: Any, left: Any, right: Any) -> Any:
    """Return a product by what is not zero in one of the matrices; None where that is unknown."""
    of_rows = [isinstance(one, cls) for one in (left, right)]
    rows = left if of_rows[0] else right
    if all(of_rows) or rows.held.dense is not None:
        return None
    if rows is left:
        return rows.held.product(torch, right, is_turned=rows.is_turned)
    turned = rows.held.product(torch, left.t(), is_turned=not rows.is_turned)  # (right^T left^T)^T
    return turned.t().contiguous()


class SeenMatrix:
    """A matrix that came, as it was then; `held` is set once it came again.

    Attributes:
        held: its numbers that are not zero; None where those are too many, or it came once.
    """

    def __init__(self, matrix: Any) -> None:
        self.reference, self.version = weakref.ref(matrix), matrix._version
        self.came_again = False
        self.held: Held | None = None

    def is_of(self, matrix: Any) -> bool:
        """Return whether it is this matrix, and torch has not changed it since."""
        return bool(self.version == matrix._version) and self.reference() is matrix


class KnownMatrices:
    """The matrices that came, and those among them that are kept by what is not zero."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.seen: dict[int, SeenMatrix] = {}  # by id

    def held(self, matrix: Any) -> Held | None:
        """Return a matrix by what is not zero, from the second time on that it comes unchanged."""
        torch = self.torch
        if not is_candidate(torch, matrix):
            return None
        one = self.seen.get(id(matrix))
        if one is None or not one.is_of(matrix):
            self._note(matrix)
            return None
        if not one.came_again:
            one.came_again = True
            with torch.inference_mode(False), torch.no_grad():
                one.held = compress(torch, matrix)
        if one.held is None or is_as_before(torch, one.held, matrix):
            return one.held
        self._note(matrix)  # changed behind torch's back
        return None

    def _note(self, matrix: Any) -> None:
        if len(self.seen) >= MAX_KNOWN:
            self.seen = {key: one for key, one in self.seen.items() if one.reference() is not None}
            if len(self.seen) >= MAX_KNOWN:
                self.seen.clear()
        self.seen[id(matrix)] = SeenMatrix(matrix)


def compress(torch: Any, matrix: Any) -> Held | None:
    """Return a matrix by what is not zero; None if that is too much of it."""
    if zero_fraction(matrix) < MIN_ZEROS:
        return None
    places = Places(torch, matrix)
    return Held(places, matrix.reshape(-1)[places.flat], matrix.dtype)


def is_as_before(torch: Any, held: Held, matrix: Any) -> bool:
    """Return whether what was not zero in a matrix is what it was."""
    return bool(torch.equal(matrix.reshape(-1)[held.places.flat], held.values))


def read_by_rows(torch: Any, known: KnownMatrices) -> Undo:
    """Let torch's first functions on an input keep it by what is not zero; return the way back."""
    functional, rows = torch.nn.functional, zero_rows_of(torch)
    is_compiling, is_tracing = torch.compiler.is_compiling, torch.jit.is_tracing
    is_on = True

    def held_of(matrix: Any) -> Held | None:
        is_acting = is_on and not is_compiling() and not is_tracing()
        return known.held(matrix) if is_acting else None

    def around_product(original: Callable[..., Any]) -> Callable[..., Any]:
        def product(input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            held = held_of(input) if is_of_matrices(args, kwargs) else None
            if held is None:
                return original(input, *args, **kwargs)
            one = Held(held.places, held.values, held.dtype)  # not whole in the next step, too
            return original(rows(one), *args, **kwargs)

        return product

    def around_dropout(original: Callable[..., Any]) -> Callable[..., Any]:
        def dropout(
            input: Any,  # noqa: A002
            p: float = 0.5,
            training: bool = True,  # noqa: FBT001, FBT002
            inplace: bool = False,  # noqa: FBT001, FBT002
        ) -> Any:
            held = None
            if training and not inplace:
                held = input.sparse() if type(input) is rows else held_of(input)
            if held is None:
                return original(input, p, training, inplace)
            return rows(Held(held.places, original(held.values, p), held.dtype))

        return dropout

    places = [(functional, "dropout", around_dropout), (functional, "linear", around_product)]
    places += [
        (owner, name, around_product) for owner in (torch, torch.Tensor) for name in PRODUCTS
    ]
    places.append((torch.Tensor, "__matmul__", around_product))
    undos = [put(owner, name, around(getattr(owner, name))) for owner, name, around in places]

    def undo() -> None:
        nonlocal is_on
        is_on = False
        for take_back in undos:
            take_back()

    return undo


def is_of_matrices(args: Any, kwargs: Any) -> bool:
    """Return whether what a matrix is multiplied with, into a new one, is a matrix too."""
    other: Any = args[0] if args else next(iter(kwargs.values()), None)
    return hasattr(other, "dim") and other.dim() == 2 and "out" not in kwargs
