"""What a step of a hand-written cell computes, read from the functions of torch that it calls.

Each tensor that a step makes is followed as a polynomial in the states, in products with weights,
in biases and in activations. So it does not matter how a cell is written: gates in one layer or in
many, with `cat`, `chunk`, slices or weights of its own. What is not understood ends the look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Atom = tuple[Any, ...]
"""("arg", n) · ("product", Poly, Block) · ("bias", Block) · ("sigmoid", Poly) · ("tanh", Poly)."""

HARMLESS = ("size", "dim", "__get__", "numel", "is_floating_point", "__len__")
"""What a step may ask of a tensor: numbers that do not depend on its elements."""

SAME = ("contiguous", "squeeze", "view", "reshape", "float", "to", "type_as")
"""What may return the same numbers in the same shape; any other shape is not understood."""

ODD = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What our own look may raise at arguments of an odd kind."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a parameter: (out, in), or (out,) with no columns.

    `is_turned`: rows and columns are those of the transposed parameter.
    """

    name: str
    rows: tuple[int, int]
    columns: tuple[int, int] | None = None
    is_turned: bool = False

    @property
    def width(self) -> int:
        """How many outputs it has."""
        return self.rows[1] - self.rows[0]

    def turned(self) -> Block:
        """Return its transpose."""
        rows, columns = self.columns or (0, 0), self.rows
        return replace(self, rows=rows, columns=columns, is_turned=not self.is_turned)

    def cut(self, start: int, end: int) -> Block:
        """Return some of its outputs."""
        return replace(self, rows=(self.rows[0] + start, self.rows[0] + end))

    def of_inputs(self, start: int, end: int) -> Block:
        """Return the part for some of its inputs."""
        first = (self.columns or (0, 0))[0]
        return replace(self, columns=(first + start, first + end))


@dataclass(frozen=True, slots=True)
class Poly:
    """A sum of products of atoms, each with a factor; `width` columns."""

    terms: tuple[tuple[tuple[Atom, ...], float], ...]
    width: int

    def as_dict(self) -> dict[tuple[Atom, ...], float]:
        """Return the factors by product."""
        return dict(self.terms)


@dataclass(frozen=True, slots=True)
class Joined:
    """Columns of one beside those of others."""

    parts: tuple[Poly, ...]


Value = Poly | Joined | Block


class NotUnderstoodError(Exception):
    """A step does something that is not followed."""


def poly(terms: Mapping[tuple[Atom, ...], float], width: int) -> Poly:
    """Return a polynomial in its one order, without what cancels out."""
    kept = [(product, factor) for product, factor in terms.items() if factor]
    return Poly(tuple(sorted(kept, key=repr)), width)


def of_atom(atom: Atom, width: int) -> Poly:
    """Return a polynomial of one atom."""
    return poly({(atom,): 1.0}, width)


def plus(one: Poly, other: Poly, factor: float = 1.0) -> Poly:
    """Return one + factor * other."""
    width = max(one.width, other.width)
    if {one.width, other.width} - {width, 0}:
        raise NotUnderstoodError
    terms = one.as_dict()
    for product, number in other.terms:
        terms[product] = terms.get(product, 0.0) + factor * number
    return poly(terms, width)


def times(one: Poly, other: Poly) -> Poly:
    """Return the product of both, element by element."""
    width = max(one.width, other.width)
    if {one.width, other.width} - {width, 0}:
        raise NotUnderstoodError
    terms: dict[tuple[Atom, ...], float] = {}
    for left, first in one.terms:
        for right, second in other.terms:
            product = tuple(sorted((*left, *right), key=repr))
            terms[product] = terms.get(product, 0.0) + first * second
    return poly(terms, width)


def cut(value: Value, start: int, end: int) -> Value:
    """Return some columns of a value, or some outputs of a weight."""
    if isinstance(value, Block):
        return value.cut(start, end)
    if isinstance(value, Joined):
        raise NotUnderstoodError
    terms: dict[tuple[Atom, ...], float] = {}
    for product, factor in value.terms:
        if len(product) != 1 or product[0][0] == "arg":
            raise NotUnderstoodError
        *kind, inner = product[0]  # a block, or what is activated
        terms[((*kind, cut(inner, start, end)),)] = factor
    return poly(terms, end - start)


def multiply(inputs: Value, weight: Value) -> Poly:
    """Return inputs @ weight.T; `weight` is (out, in)."""
    if not isinstance(weight, Block) or weight.columns is None or isinstance(inputs, Block):
        raise NotUnderstoodError
    parts = inputs.parts if isinstance(inputs, Joined) else (inputs,)
    found, start = Poly((), weight.width), 0
    for part in parts:
        block = weight.of_inputs(start, start + part.width)
        found = plus(found, of_atom(("product", part, block), weight.width))
        start += part.width
    return found


def bias_of(value: Value) -> Poly:
    """Return a bias that is added to each row."""
    if not isinstance(value, Block) or value.columns is not None:
        raise NotUnderstoodError
    return of_atom(("bias", value), value.width)


class StepTrace:
    """Follows the functions of one step.

    Args:
        parameters: the cell's own, by name.
        inputs: the tensors that the step was given, (rows, columns); the n-th is ("arg", n).

    Attributes:
        is_understood: whether everything so far was.
    """

    def __init__(self, torch: Any, parameters: Mapping[str, Any], inputs: Sequence[Any]) -> None:
        self.torch = torch
        self.is_understood = True
        self.values: dict[int, tuple[Any, Value]] = {}
        for name, one in parameters.items():
            if one.dim() in (1, 2):
                columns = (0, one.shape[1]) if one.dim() == 2 else None
                self.keep(one, Block(name, (0, one.shape[0]), columns))
        for at, one in enumerate(inputs):
            self.keep(one, of_atom(("arg", at), one.shape[-1]))

    def keep(self, tensor: Any, value: Value) -> None:
        """Note what a tensor is; it stays alive, so that its id stays its own."""
        self.values[id(tensor)] = (tensor, value)

    def value_of(self, tensor: Any) -> Value | None:
        """Return what is known of a tensor."""
        found = self.values.get(id(tensor))
        return found[1] if found is not None else None

    def see(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take a function that has run."""
        name = getattr(function, "__name__", "")
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        if not any(isinstance(one, self.torch.Tensor) for one in found):
            self.is_understood = self.is_understood and name in HARMLESS
            return
        try:
            values = self._follow(name, args, kwargs, result)
            for tensor, value in zip(found, values, strict=True):
                self.keep(tensor, value)
        except (*ODD, NotUnderstoodError):
            self.is_understood = False

    def _follow(self, name: str, args: Any, kwargs: Any, result: Any) -> list[Value]:
        names = {"input": 0, "other": 1, "tensors": 0, "weight": 1, "bias": 2}
        rest = {key: one for key, one in kwargs.items() if key not in names}
        given = [*args, *(kwargs[key] for key in names if key in kwargs)]
        if name in ("cat", "concat", "hstack"):
            return [self._join(given[0], *given[1:], **rest)]
        first = self.value_of(given[0])
        if name in ("chunk", "split", "__getitem__"):
            return self._parts(name, first, given, rest, result)
        if rest:
            raise NotUnderstoodError
        if name in RULES:
            values = [one if one is None else self._given(one) for one in given]
            return [RULES[name](*values)]
        if first is None:
            raise NotUnderstoodError
        is_turned = name in ("t", "__get__") or (name == "transpose" and {*given[1:]} <= {0, 1, -1})
        if is_turned and isinstance(first, Block) and result.shape == given[0].shape[::-1]:
            return [first.turned()]
        if name in SAME and result.shape == given[0].shape and result.dtype == given[0].dtype:
            return [first]
        raise NotUnderstoodError

    def _given(self, one: Any) -> Value:
        if isinstance(one, (int, float)):
            return poly({(): float(one)}, 0)
        value = self.value_of(one)
        if value is None:
            raise NotUnderstoodError
        return value

    def _join(self, tensors: Any, dim: int = 0) -> Joined:
        found = [self.value_of(one) for one in tensors]
        parts = tuple(one for one in found if isinstance(one, Poly))
        if dim not in (1, -1) or len(parts) != len(found):
            raise NotUnderstoodError
        return Joined(parts)

    def _parts(self, name: str, of: Value | None, given: Any, rest: Any, made: Any) -> list[Value]:
        """Return the parts that `chunk`, `split` or an index made of the last dimension."""
        tensor = given[0]
        last = tensor.dim() - 1
        if of is None:
            raise NotUnderstoodError
        if name == "__getitem__":
            index = given[1] if isinstance(given[1], tuple) else (given[1],)
            if index[0] is Ellipsis or (last == 1 and index[0] == slice(None)):
                index = index[1:]
            elif last:  # rows: of a parameter they are its outputs
                index = (*index, "rows")
            start, end, step = index[0].indices(tensor.shape[0 if "rows" in index else last])
            if step != 1 or len(index) > 2 or (len(index) == 2 and index[1] != "rows"):
                raise NotUnderstoodError
            is_rows = "rows" in index
            return [self._cut(of, start, end, is_rows=is_rows)]
        dim = rest.get("dim", given[2] if len(given) > 2 else 0)
        is_rows = dim % (last + 1) == 0 and last > 0
        found, start = [], 0
        for one in made:
            size = one.shape[dim]
            found.append(self._cut(of, start, start + size, is_rows=is_rows))
            start += size
        return found

    def _cut(self, of: Value, start: int, end: int, *, is_rows: bool) -> Value:
        if isinstance(of, Block) and of.columns is not None:
            return of.cut(start, end) if is_rows else of.turned().cut(start, end).turned()
        if is_rows:
            raise NotUnderstoodError
        return cut(of, start, end)


def as_poly(value: Value | None) -> Poly:
    """Return a value as a polynomial: a vector of the cell's is added to each row."""
    if isinstance(value, Poly):
        return value
    if isinstance(value, Block):
        return bias_of(value)
    raise NotUnderstoodError


def linear(inputs: Value, weight: Value, bias: Value | None = None) -> Poly:
    """Stand for `linear(inputs, weight, bias)`."""
    found = multiply(inputs, weight)
    return found if bias is None else plus(found, bias_of(bias))


def matmul(inputs: Value, weight: Value) -> Poly:
    """Stand for `inputs @ weight`."""
    return multiply(inputs, weight.turned() if isinstance(weight, Block) else weight)


def activate(kind: str) -> Callable[[Value], Poly]:
    """Return what stands for an activation."""
    return lambda value: of_atom((kind, as_poly(value)), as_poly(value).width)


def add(one: Value, other: Value) -> Poly:
    """Stand for one + other."""
    return plus(as_poly(one), as_poly(other))


def subtract(one: Value, other: Value) -> Poly:
    """Stand for one - other."""
    return plus(as_poly(one), as_poly(other), -1.0)


def product(one: Value, other: Value) -> Poly:
    """Stand for one * other."""
    return times(as_poly(one), as_poly(other))


RULE_NAMES: tuple[tuple[Callable[..., Poly], str], ...] = (
    (linear, "linear"),
    (matmul, "matmul mm __matmul__"),
    (lambda bias, inputs, weight: add(bias, matmul(inputs, weight)), "addmm"),
    (activate("sigmoid"), "sigmoid"),
    (activate("tanh"), "tanh"),
    (add, "add __add__ __radd__"),
    (subtract, "sub subtract __sub__"),
    (lambda one, other: subtract(other, one), "rsub __rsub__"),
    (product, "mul multiply __mul__ __rmul__"),
    (lambda like: poly({(): 1.0}, as_poly(like).width), "ones_like"),
)
RULES = {name: rule for rule, names in RULE_NAMES for name in names.split()}
"""What a step may do to tensors, by the name of torch's function."""


def trace_step(torch: Any, trace: StepTrace, call: Callable[[], Any]) -> Any:
    """Make a step as it is written, and follow it; return its result."""

    class StepMode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if trace.is_understood:
                trace.see(func, args, kwargs or {}, result)
            return result

    with StepMode():
        return call()
