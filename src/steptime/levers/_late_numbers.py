"""Numbers of a device that are still on their way to the host, and sums of them.

They stand for a Python number in `total += loss.item()` and `last = loss.item()`, and then in those
variables. Each other use waits for the number, so that its result is a plain number. One that is
set again before that was never waited for. A sum adds its terms one by one and in their order, and
products are computed as they are written, so they have the same bits.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable
from typing import Any

MAX_WAITING = 64
"""Terms of a sum that may be on their way: beyond, the host waits for the oldest."""

BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("lt", "le", "gt", "ge", "eq", "ne"),
)
UNARY: dict[str, Callable[..., Any]] = {
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "str": str,
    "repr": repr,
    "format": format,
    "hash": hash,
    "round": round,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
}


class LateCopy:
    """A scalar of a device that is being copied.

    Args:
        read: waits for the copy and returns the number.
        is_ready: whether there is nothing to wait for.
        event: what happens once the copy is there, for a device that has such events.
    """

    __slots__ = ("event", "is_ready", "read")

    def __init__(
        self, read: Callable[[], Any], is_ready: Callable[[], bool], event: Any = None
    ) -> None:
        self.read = read
        self.is_ready = is_ready
        self.event = event


class Late:
    """A number that is known once somebody needs it; a subclass gives it by `value`."""

    __slots__ = ()

    def value(self) -> Any:
        """Wait, and return the number."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value(), name)

    def __reduce__(self) -> Any:
        number = self.value()
        return type(number), (number,)


def by_value(act: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that does something with the number itself."""
    return lambda self, *args: act(self.value(), *args)


def by_other(act: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method of an operation whose first number is another one."""
    return lambda self, other: act(other, self.value())


for _name in BINARY:
    setattr(Late, f"__{_name}__", by_value(getattr(operator, _name)))
    if _name[1:] not in ("t", "e", "q"):
        setattr(Late, f"__r{_name}__", by_other(getattr(operator, _name)))
for _name, _act in UNARY.items():
    setattr(Late, f"__{_name}__", by_value(_act))


class LateValue(Late):
    """What a read leaves in the script's variable: its number, or that times or by others."""

    __slots__ = ("copy", "operations")

    def __init__(self, copy: LateCopy, operations: tuple[tuple[Any, Any], ...] = ()) -> None:
        self.copy = copy
        self.operations = operations

    def value(self) -> Any:
        """Wait, and return the number, computed in the order of the script."""
        found = self.copy.read()
        for act, other in self.operations:
            found = act(found, other)
        return found


class LateOperand(LateValue):
    """What a read gives that is multiplied or divided before it is kept."""

    __slots__ = ()

    def then(self, act: Callable[[Any, Any], Any], other: Any) -> Any:
        """Return the result: late if the other is a plain number that raises nothing."""
        if type(other) in (int, float) and (act is operator.mul or other):
            return self.make_next()(self.copy, (*self.operations, (act, other)))
        return act(self.value(), other)

    def make_next(self) -> type[LateValue]:
        """Return the class of such a result."""
        return LateValue

    def __mul__(self, other: Any) -> Any:
        return self.then(operator.mul, other)

    def __rmul__(self, other: Any) -> Any:
        is_plain = type(other) in (int, float)  # a product of two plain numbers has no order
        return self.then(operator.mul, other) if is_plain else other * self.value()

    def __truediv__(self, other: Any) -> Any:
        return self.then(operator.truediv, other)


class LateTerm(LateOperand):
    """What a read gives that is added to a sum; times or by numbers, it stays late."""

    __slots__ = ()

    def make_next(self) -> type[LateValue]:
        """Return the class of what it is times or by a number."""
        return LateTerm

    def __radd__(self, other: Any) -> Any:
        if type(other) in (int, float):
            return LateSum(other, self)
        return other + self.value()


class LateSum(Late):
    """What `total += term` leaves in the script's variable, which alone holds it."""

    __slots__ = ("base", "terms")

    def __init__(self, base: Any, term: LateTerm) -> None:
        self.base = base
        self.terms = deque([term])

    def value(self) -> Any:
        """Wait for all terms, and return the sum."""
        while self.terms:
            self.add_oldest()
        return self.base

    def add_oldest(self) -> None:
        """Add the term that has waited longest."""
        self.base = self.base + self.terms.popleft().value()

    def __add__(self, other: Any) -> Any:  # `total = total + term` is no other sum
        if not isinstance(other, LateTerm):
            return self.value() + other
        self.terms.append(other)
        while len(self.terms) > MAX_WAITING or (self.terms and self.terms[0].copy.is_ready()):
            self.add_oldest()
        return self

    __iadd__ = __add__
