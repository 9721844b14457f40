"""Products of two tensors as `matmul` takes them, also where a script writes them by `einsum`.

In: a function of torch and its arguments. Out: the two factors with their dimensions in the order
of `matmul`, and how the script's own product comes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

PRODUCTS = ("matmul", "__matmul__", "bmm")
STARTS = (*PRODUCTS, "einsum")
"""The names of functions that may multiply queries by keys."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An `einsum` of two tensors over one dimension, batched over others.

    All orders of dimensions are those in which `permute` takes them.

    Attributes:
        text: as the script has it.
        is_turned: the script's second factor is the left one.
        left: brings the left factor to (..., T, D).
        right: brings the right one to (..., D, S).
        made: brings (..., T, S) to the script's order.
    """

    text: str
    is_turned: bool
    left: tuple[int, ...]
    right: tuple[int, ...]
    made: tuple[int, ...]

    def compute(self, torch: Any, left: Any, right: Any) -> Any:
        """Return the script's own product of factors in the order of `matmul`."""
        factors = [left.permute(inverse(self.left)), right.permute(inverse(self.right))]
        return torch.einsum(self.text, *(factors[::-1] if self.is_turned else factors))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the order that takes another one back."""
    return tuple(order.index(at) for at in range(len(order)))


@cache
def read_equation(text: str, *, is_turned: bool) -> Equation | None:
    """Return what an equation of `einsum` says; None if it is no product of rows and columns.

    `is_turned` takes its second factor for the left one.
    """
    factors, arrow, made = text.replace(" ", "").partition("->")
    left, comma, right = factors.partition(",")
    if is_turned:
        left, right = right, left
    words = (left, right, made)
    if not (arrow and comma) or not all(one.isalpha() and len({*one}) == len(one) for one in words):
        return None
    batch = [one for one in made if one in left and one in right]
    inner = [one for one in left if one in right and one not in made]
    rows = [one for one in left if one not in right]
    columns = [one for one in right if one not in left]
    if (len(inner), len(rows), len(columns)) != (1, 1, 1) or len(batch) not in (1, 2):
        return None
    if {*made} != {*batch, *rows, *columns}:
        return None
    product = [*batch, *rows, *columns]
    return Equation(
        text=text,
        is_turned=is_turned,
        left=tuple(left.index(one) for one in (*batch, *rows, *inner)),
        right=tuple(right.index(one) for one in (*batch, *inner, *columns)),
        made=tuple(product.index(one) for one in made),
    )


Product = tuple[Any, Any, Callable[..., Any]]
"""The left and the right factor, and a function that returns the script's product of such two."""


def spread(name: str, args: Sequence[Any]) -> Sequence[Any]:
    """Return arguments without the list in which `einsum` may be given its tensors."""
    is_list = name == "einsum" and len(args) == 2 and type(args[1]) in (list, tuple)
    return (args[0], *args[1]) if is_list else args


def product_of(torch: Any, name: str, args: Sequence[Any], kwargs: Any) -> Product | None:
    """Return a product whose result has rows and columns last; None if it is none."""
    if kwargs:
        return None
    args = spread(name, args)
    if name in PRODUCTS:
        return (args[0], args[1], torch.matmul) if len(args) == 2 else None
    if any(type(one) not in (torch.Tensor, torch.nn.Parameter) for one in args[1:]):
        return None
    for is_turned in (False, True) if name == "einsum" else ():
        found = _read(args, is_turned=is_turned)
        if found is not None and found.made == tuple(range(len(found.made))):
            left, right = args[1:][:: -1 if is_turned else 1]
            dims = [getattr(one, "ndim", None) for one in (left, right)]
            if dims == [len(found.left), len(found.right)]:
                compute = partial(found.compute, torch)
                return left.permute(found.left), right.permute(found.right), compute
    return None


def values_of(name: str, args: Sequence[Any], kwargs: Any, place: int) -> tuple[Any, Any] | None:
    """Return what weights are multiplied by, (..., S, D), and the order of the script's result.

    Args:
        args: those of the function without the weights.
        place: where among them the weights stand.
    """
    if kwargs:
        return None
    if name in PRODUCTS:
        return (args[0], None) if len(args) == 1 and place == 0 else None
    if name != "einsum" or len(args) != 2 or place not in (1, 2):
        return None
    found = _read((args[0], None, None), is_turned=place == 2)
    if found is None or found.left != tuple(range(len(found.left))):
        return None  # the weights' own last dimension is what is summed over
    values = args[1]
    if getattr(values, "dim", None) is None or values.dim() != len(found.right):
        return None
    return values.permute(found.right), found.made


def _read(args: Sequence[Any], *, is_turned: bool) -> Equation | None:
    is_text = len(args) == 3 and type(args[0]) is str
    return read_equation(args[0], is_turned=is_turned) if is_text else None
