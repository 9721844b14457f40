"""Attention scores that are computed only once it is known what for.

In: a product of queries and keys. Out: an object in the place of its result, which notes what is
done to it (a scale, masks, softmax). Multiplied by values it is handed over as a whole; in any
other use it is computed by the script's own operators, in their order, and stands in for that
tensor from then on. Python 3.10 and up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .products import STARTS, product_of, values_of

HIDING = -1e8
"""A score that is filled with less than this is hidden: its weight is zero in any dtype."""

IN_PLACE = (
    *("mul_", "div_", "add_", "sub_", "fill_"),
    *("__imul__", "__itruediv__", "__idiv__", "__iadd__", "__isub__"),
)
"""How the names of functions end that change their first argument."""

Step = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], int]
"""A function, its arguments without the scores, and where among them the scores stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What was done so far: softmax(queries @ keys * scale, then masked), as far as it got.

    Attributes:
        queries: (..., T, D).
        keys: (..., D, S), as the script transposed them.
        versions: of `queries`, `keys` and the masks, when each was used.
        state: torch's modes at the start: gradients, autocast and its dtype.
        dtype: of the result without autocast.
        multiply: the script's own product of queries and keys.
        shown: booleans that broadcast to (..., T, S), False for scores that are hidden.
        fill: the largest number that hidden scores were filled with.
        added: the sum of what is added to the scores, which broadcasts likewise.
    """

    torch: Any
    queries: Any
    keys: Any
    state: tuple[bool, bool, Any]
    dtype: Any
    versions: tuple[tuple[Any, int], ...]
    multiply: Callable[[Any, Any], Any]
    steps: tuple[Step, ...] = ()
    scale: float = 1.0
    shown: tuple[Any, ...] = ()
    fill: float = -math.inf
    added: Any = None
    is_normalized: bool = False

    @property
    def shape(self) -> Any:
        """The shape of the scores."""
        return self.torch.Size((*self.queries.shape[:-1], self.keys.shape[-1]))

    def compute(self) -> Any:
        """Return the tensor, made as the script makes it.

        Raises:
            RuntimeError: something that it is made of was changed in place since.
        """
        self.require_unchanged()
        torch, (is_grad, is_cast, cast) = self.torch, self.state
        autocast = torch.autocast(self.queries.device.type, dtype=cast, enabled=is_cast)
        with torch._C.DisableTorchFunction(), torch.set_grad_enabled(is_grad), autocast:
            return self.replay(self.queries, self.keys)

    def replay(self, queries: Any, keys: Any) -> Any:
        """Return what the script's operators make of other queries and keys."""
        value = self.multiply(queries, keys)
        for function, args, kwargs, place in self.steps:
            value = function(*args[:place], value, *args[place:], **kwargs)
        return value

    def require_unchanged(self) -> None:
        """Raise RuntimeError if something that it is made of was changed in place."""
        if any(tensor._version != version for tensor, version in self.versions):
            raise RuntimeError("queries, keys or a mask were changed before they were used")


def begin(torch: Any, name: str, args: Any, kwargs: Any) -> Chain | None:
    """Return the chain that a product of two tensors may begin; None if it cannot be attention."""
    product = product_of(torch, name, args, kwargs) if name in STARTS else None
    if product is None:
        return None
    queries, keys, multiply = product
    if not (is_plain(torch, queries) and is_plain(torch, keys)):
        return None
    if queries.dim() not in (3, 4) or queries.shape[:-2] != keys.shape[:-2]:
        return None
    is_alike = queries.dtype == keys.dtype and queries.device == keys.device
    if not is_alike or not queries.is_floating_point() or torch.is_inference_mode_enabled():
        return None
    if queries.shape[-1] != keys.shape[-2]:
        return None  # torch has the words for it
    versions = tuple((one, one._version) for one in (queries, keys))
    state = modes(torch, queries.device.type)
    found = {"queries": queries, "keys": keys, "versions": versions, "state": state}
    return Chain(torch=torch, dtype=queries.dtype, multiply=multiply, **found)


def is_plain(torch: Any, value: Any) -> bool:
    """Return whether a value is a dense tensor without a class of its own."""
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided


def modes(torch: Any, device: str) -> tuple[bool, bool, Any]:
    """Return torch's modes that decide how an operator is computed."""
    is_cast = torch.is_autocast_enabled(device)
    return torch.is_grad_enabled(), is_cast, torch.get_autocast_dtype(device)


def extend(chain: Chain, name: str, step: Step) -> Chain | None:
    """Return the chain with one more step; None if this is no step of attention."""
    rule = RULES.get(name)
    if step[-1] and name.endswith(IN_PLACE):
        return None  # it changes something else
    if rule is None or modes(chain.torch, chain.queries.device.type) != chain.state:
        return None
    _, args, kwargs, place = step
    found = rule(chain, args, kwargs, place)
    if found is None or found is chain:
        return found  # nothing is computed for what changes nothing
    return replace(found, steps=(*chain.steps, step))


def end_of(chain: Chain, name: str, step: Step) -> tuple[Any, Any] | None:
    """Return the values by which a step multiplies finished weights; None for any other step.

    With them comes the order of the result's dimensions, None for that of `matmul`.
    """
    _, args, kwargs, place = step
    return values_of(name, args, kwargs, place) if chain.is_normalized else None


# -- the steps


def scale_by(chain: Chain, args: Any, kwargs: Any, place: int, *, divides: bool) -> Chain | None:
    """Multiply by a number, or divide by one; what was hidden stays so."""
    if chain.is_normalized or kwargs or len(args) != 1 or (divides and place):
        return None
    number = as_number(chain, args[0])
    if number is None or not 0 < abs(number) < math.inf:
        return None
    factor = 1 / number if divides else number
    if chain.shown and chain.fill * factor > HIDING:
        return None
    added = None if chain.added is None else chain.added * factor
    return replace(chain, scale=chain.scale * factor, fill=chain.fill * factor, added=added)


def as_number(chain: Chain, value: Any) -> float | None:
    """Return a number, also of a tensor that holds just one; None for anything else."""
    if isinstance(value, (int, float)) and type(value) is not bool:
        return float(value)
    if is_plain(chain.torch, value) and value.dim() == 0 and not value.requires_grad:
        return float(value) if value.device.type == "cpu" else None
    return None


def fill(chain: Chain, args: Any, kwargs: Any, place: int) -> Chain | None:
    """Hide scores: `masked_fill(mask, value)`."""
    given = dict(zip(("mask", "value"), args, strict=False)) | kwargs
    if place or set(given) != {"mask", "value"}:
        return None
    return hide(chain, given["mask"], given["value"], is_shown=False)


def choose(chain: Chain, args: Any, kwargs: Any, place: int) -> Chain | None:
    """Hide scores: `where(mask, scores, value)` or `where(mask, value, scores)`."""
    if len(args) != 2 or kwargs or place == 0:
        return None
    return hide(chain, args[0], args[1], is_shown=place == 1)


def hide(chain: Chain, mask: Any, value: Any, *, is_shown: bool) -> Chain | None:
    """Hide the scores where a mask of booleans says so."""
    torch, number = chain.torch, as_number(chain, value)
    if chain.is_normalized or number is None:
        return None
    if number > max(HIDING, torch.finfo(chain.dtype).min) or not fits(chain, mask):
        return None
    if mask.dtype is not torch.bool:
        return None
    shown = (*chain.shown, mask if is_shown else ~mask)
    versions = (*chain.versions, (mask, mask._version))
    return replace(chain, shown=shown, fill=max(chain.fill, number), versions=versions)


def fits(chain: Chain, mask: Any) -> bool:
    """Return whether a mask broadcasts to the scores, and needs no gradient."""
    if not is_plain(chain.torch, mask) or mask.requires_grad or mask.dim() > len(chain.shape):
        return False
    if mask.dim() < 2 or mask.device != chain.queries.device:
        return False
    return all(
        one in (1, size) for one, size in zip(mask.shape[::-1], chain.shape[::-1], strict=False)
    )


def add(chain: Chain, args: Any, kwargs: Any, place: int, *, sign: float = 1.0) -> Chain | None:
    """Add a mask of the scores' own dtype, or subtract it from them."""
    if chain.is_normalized or kwargs or len(args) != 1 or (place and sign < 0):
        return None
    mask = args[0]
    if not fits(chain, mask) or mask.dtype != chain.dtype:
        return None
    versions = (*chain.versions, (mask, mask._version))
    more = mask if sign > 0 else -mask
    return replace(
        chain, added=more if chain.added is None else chain.added + more, versions=versions
    )


def normalize(chain: Chain, args: Any, kwargs: Any, place: int) -> Chain | None:
    """Softmax over the keys."""
    given = dict(zip(("dim",), args, strict=False)) | {
        k: v for k, v in kwargs.items() if k != "_stacklevel"
    }
    dtype = given.pop("dtype", None)
    if chain.is_normalized or len(args) > 1 or set(given) != {"dim"}:
        return None
    if given["dim"] not in (-1, len(chain.shape) - 1):
        return None
    if dtype not in (None, chain.dtype, chain.torch.float32):
        return None
    return replace(chain, is_normalized=True, dtype=dtype or chain.dtype)


def drop(chain: Chain, args: Any, kwargs: Any, place: int) -> Chain | None:
    """Dropout that drops nothing."""
    given = dict(zip(("p", "train"), args, strict=False)) | kwargs
    training = given.get("training", given.get("train"))
    return chain if chain.is_normalized and (training is False or given.get("p") == 0) else None


def cast(chain: Chain, args: Any, kwargs: Any, place: int) -> Chain | None:
    """A cast to float32, or to the dtype of the queries: `float`, `to` or `type_as`."""
    if kwargs or len(args) > 1 or place:
        return None
    torch = chain.torch
    dtype = args[0] if args else torch.float32
    dtype = dtype.dtype if is_plain(torch, dtype) else dtype
    if dtype not in (torch.float32, chain.queries.dtype):
        return None
    if dtype == chain.dtype and not chain.state[1]:
        return chain
    return replace(chain, dtype=dtype)


Rule = Callable[[Chain, Any, Any, int], "Chain | None"]
RULE_NAMES: tuple[tuple[Rule, str], ...] = (
    (partial(scale_by, divides=False), "mul mul_ multiply __mul__ __rmul__ __imul__"),
    (
        partial(scale_by, divides=True),
        "div div_ divide true_divide __truediv__ __div__ __itruediv__ __idiv__",
    ),
    (fill, "masked_fill masked_fill_"),
    (choose, "where"),
    (add, "add add_ __add__ __radd__ __iadd__"),
    (partial(add, sign=-1.0), "sub sub_ __sub__ __isub__"),
    (normalize, "softmax"),
    (drop, "dropout"),
    (cast, "float to type_as"),
)
RULES = {name: rule for rule, names in RULE_NAMES for name in names.split()}
"""What may be done to scores, by the name of torch's function."""


# -- the stand-in


class Scores:
    """Stands where the script has its scores or weights.

    Args:
        chain: what they are.
        finish: `finish(chain, values)` returns their product with values, or None to have it
            computed as the script does. It is called with a word instead of values where that
            cannot be asked: `dropout`, or `used` for weights that are wanted themselves.
        make: makes scores of a longer chain.
    """

    __slots__ = ("__weakref__", "_chain", "_finish", "_make", "_value")
    __array_priority__ = 1000  # a number of numpy's lets us multiply, as it lets tensors

    def __init__(
        self, chain: Chain, finish: Callable[[Chain, Any], Any], make: Callable[[Chain], Scores]
    ) -> None:
        object.__setattr__(self, "_chain", chain)
        object.__setattr__(self, "_finish", finish)
        object.__setattr__(self, "_make", make)
        object.__setattr__(self, "_value", None)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch that was given one of these."""
        return run(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        chain = self._chain
        if name == "shape":
            return chain.shape
        if name == "dtype" and not chain.state[1]:
            return chain.dtype
        if name == "device":
            return chain.queries.device
        member = getattr(chain.torch.Tensor, name)
        if callable(member):
            return partial(run_method, member, self)
        return getattr(compute(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(compute(self), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compute(self).__reduce_ex__(protocol)

    __hash__ = object.__hash__


def forward_operator(name: str) -> Callable[..., Any]:
    """Return the method that runs an operator of Python."""

    def operator(self: Scores, *args: Any) -> Any:
        return run(getattr(self._chain.torch.Tensor, name), (self, *args), {})

    return operator


OPERATORS = (
    *("mul", "rmul", "imul", "truediv", "rtruediv", "itruediv", "add", "radd", "iadd", "sub"),
    *("rsub", "isub", "pow", "rpow", "matmul", "rmatmul", "mod", "floordiv", "neg", "abs"),
    *("invert", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "getitem", "setitem"),
    *("len", "iter", "bool", "float", "int", "index", "contains", "format", "repr", "array"),
    "deepcopy",
)
"""What Python looks up on a class, so that a stand-in for a tensor must have it."""

for _name in OPERATORS:
    setattr(Scores, f"__{_name}__", forward_operator(f"__{_name}__"))


def compute(scores: Scores, why: str = "used") -> Any:
    """Return the tensor: the script wants the numbers themselves."""
    if scores._value is None:
        if scores._chain.is_normalized:
            scores._finish(scores._chain, why)
        object.__setattr__(scores, "_value", scores._chain.compute())
    return scores._value


def run_method(member: Any, scores: Scores, *args: Any, **kwargs: Any) -> Any:
    """Run a method of a tensor."""
    return run(member, (scores, *args), kwargs)


def run(function: Any, args: Any, kwargs: Any) -> Any:
    """Run a function that was given scores: as a step of attention if it is one."""
    name = getattr(function, "__name__", "")
    scores = [one for one in args if type(one) is Scores]
    if len(scores) == 1 and not any(type(one) is Scores for one in kwargs.values()):
        (one,) = scores
        if name in ("size", "dim") and not kwargs:
            shape = one.shape
            return len(shape) if name == "dim" else shape[args[1]] if args[1:] else shape
        place = next(at for at, arg in enumerate(args) if arg is one)
        result = step(one, name, (function, (*args[:place], *args[place + 1 :]), kwargs, place))
        if result is not None:
            return result
    why = "dropout" if name == "dropout" else "used"
    return function(*computed(args, why), **computed(kwargs, why))


def step(scores: Scores, name: str, taken: Step) -> Any:
    """Return the result of a step of attention; None if it is none."""
    chain = scores._chain
    if scores._value is not None:
        return None
    end = end_of(chain, name, taken)
    if end is not None:
        result = scores._finish(chain, end[0])
        return result if result is None or end[1] is None else result.permute(end[1])
    longer = extend(chain, name, taken)
    if longer is None or longer is chain:
        return longer and scores
    if not name.endswith(IN_PLACE):
        return scores._make(longer)
    object.__setattr__(scores, "_chain", longer)
    return scores


def computed(value: Any, why: str = "used") -> Any:
    """Return the same with tensors in place of scores."""
    if type(value) is Scores:
        return compute(value, why)
    if type(value) in (tuple, list):
        return type(value)(computed(one, why) for one in value)
    if type(value) is dict:
        return {key: computed(one, why) for key, one in value.items()}
    return value
