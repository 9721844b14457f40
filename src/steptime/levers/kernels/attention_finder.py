"""Finds attention that is written out in single operators, and computes it in one.

A function mode sees the products inside a call. Each one that may begin attention gets scores that
are not computed yet (`scores.py`). Whether torch's fused kernel gives the same is tried on the
run's own queries, keys and values, with gradients, before it is used.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..tools.owners import put_forward
from .products import spread
from .scores import HIDING, Chain, Scores, begin, computed, end_of, extend, is_plain, modes

MATH = 0
"""What torch answers where none of its fused kernels can do it (`SDPBackend.MATH`)."""

TIMES_ITS_OWN = 8.0
"""How many times as far from float64 as the script's own operators the kernel may be."""

MIN_ROUNDOFFS = 32.0
"""So far it may be anyway, in roundoffs of the largest number."""

OWN_FAILURES = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What our own look may raise at a tensor of an odd kind."""

HARMLESS = ("size", "dim", "__get__")
"""What does not read weights: their shape, dtype and device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The arguments of `scaled_dot_product_attention`, in four dimensions."""

    queries: Any
    keys: Any
    values: Any
    mask: Any
    is_causal: bool
    scale: float

    def run(self, torch: Any) -> Any:
        """Return the result of the fused kernel, (B, H, T, D)."""
        attend = torch.nn.functional.scaled_dot_product_attention
        options = {"attn_mask": self.mask, "is_causal": self.is_causal, "scale": self.scale}
        return attend(self.queries, self.keys, self.values, **options)


class Fuser:
    """Computes chains by torch's fused kernel, where it was seen to give the same.

    Attributes:
        reasons: why chains were left as they are, and how often.
        off: classes that let weights out, which are left as they are from then on.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.reasons: Counter[str] = Counter()
        self.tried: dict[Any, bool] = {}
        self.triangles: dict[int, Any] = {}
        self.off: weakref.WeakSet[type] = weakref.WeakSet()

    def why_not(self, chain: Chain, values: Any) -> str | None:
        """Return why a chain must be computed as it is written, in a word; None if it need not."""
        with self.torch._C.DisableTorchFunction():
            plan = self.plan(chain, values)
        return plan if isinstance(plan, str) else None

    def finish(self, chain: Chain, values: Any) -> Any:
        """Return softmax(...) @ values; None if it must be computed as it is written."""
        with self.torch._C.DisableTorchFunction():
            plan = values if isinstance(values, str) else self.plan(chain, values)
            if isinstance(plan, str):
                self.reasons[plan] += 1
                return None
            chain.require_unchanged()
            result = plan.run(self.torch)
            # in memory as the product would be, for scripts that `view` it
            return result.reshape(*chain.shape[:-1], values.shape[-1]).contiguous()

    def plan(self, chain: Chain, values: Any) -> Plan | str:
        """Return the arguments for the kernel, or why it is not used, in a word."""
        torch = self.torch
        if not is_plain(torch, values) or values.shape[:-1] != (*chain.shape[:-2], chain.shape[-1]):
            return "shapes"
        if modes(torch, values.device.type) != chain.state:
            return "modes"
        if chain.dtype != values.dtype and not chain.state[1]:
            return "dtype"
        mask = self.mask_of(chain)
        if isinstance(mask, str):
            return mask
        is_causal = mask is not None and self.is_causal(mask, chain)
        is_given = mask is not None and not is_causal
        plan = Plan(
            queries=in_four(chain.queries),
            keys=in_four(chain.keys.transpose(-2, -1)),
            values=in_four(values),
            mask=in_four(mask, num_dims=len(chain.shape)) if is_given else None,
            is_causal=is_causal,
            scale=chain.scale,
        )
        if torch._fused_sdp_choice(*arguments(plan), scale=plan.scale) == MATH:
            return "no_kernel"
        signature = sign(chain, plan)
        if signature not in self.tried:
            self.tried[signature] = self.agrees(chain, plan)
        return plan if self.tried[signature] else "differs"

    def mask_of(self, chain: Chain) -> Any:
        """Return the mask in torch's form, None without one, or why it cannot be given."""
        shown, added = None, chain.added
        for one in chain.shown:
            shown = one if shown is None else shown & one
        # of a row that is hidden whole, the kernel makes something else than softmax
        if shown is not None and not bool(shown.any(-1).all()):
            return "hidden_row"
        if added is None:
            return shown
        if shown is not None:
            if chain.fill + float(added.amax()) > HIDING:
                return "weak_mask"
            added = added.masked_fill(~shown, -math.inf)
            if bool((added.amax(-1) < chain.fill / 2).any()):
                return "hidden_row"  # by both: what the script weighs then is hidden here
        return "hidden_row" if bool(added.amax(-1).isneginf().any()) else added

    def is_causal(self, mask: Any, chain: Chain) -> bool:
        """Return whether a mask shows each position itself and what came before it."""
        length = chain.shape[-1]
        if mask.numel() != length**2:
            return False
        if mask.shape[-2] != length or chain.shape[-2] != length:
            return False
        if length not in self.triangles:
            ones = self.torch.ones(length, length, dtype=self.torch.bool, device=mask.device)
            self.triangles = {length: ones.tril()}
        mask, past = mask.reshape(length, length), self.triangles[length]
        if mask.dtype is self.torch.bool:
            return bool(self.torch.equal(mask, past))
        is_zero, is_hidden = mask == 0, mask <= HIDING  # a mask that is added
        return bool(self.torch.equal(is_zero, past) and self.torch.equal(is_hidden, ~past))

    def agrees(self, chain: Chain, plan: Plan) -> bool:
        """Return whether kernel and chain agree on one row, forward and backward."""
        torch, (_, is_cast, cast) = self.torch, chain.state
        low = cast if is_cast else chain.queries.dtype
        small = cut(chain)
        inputs = [one[:1] for one in (chain.queries, chain.keys, self._flat(plan.values, chain))]

        def written(queries: Any, keys: Any, values: Any) -> Any:
            return torch.matmul(small.replay(queries, keys).to(values.dtype), values)

        def fused(queries: Any, keys: Any, values: Any) -> Any:
            mask = plan.mask[:1] if plan.mask is not None and plan.mask.dim() == 4 else plan.mask
            one_row = replace(
                plan,
                queries=in_four(queries),
                keys=in_four(keys.transpose(-2, -1)),
                values=in_four(values),
                mask=mask if mask is None or mask.dtype is torch.bool else mask.to(low),
            )
            return one_row.run(torch).reshape(*queries.shape[:-1], values.shape[-1])

        autocast = torch.autocast(chain.queries.device.type, enabled=False)
        with autocast:
            true = try_out(torch, written, inputs, torch.float64)
            ours, theirs = (try_out(torch, one, inputs, low) for one in (fused, written))
        return all(map(is_close, ours, theirs, true, [torch.finfo(low).eps] * len(true)))

    def _flat(self, values: Any, chain: Chain) -> Any:
        """Return values with as many dimensions as the script's."""
        return values if len(chain.shape) == 4 else values.squeeze(1)


def in_four(tensor: Any, *, num_dims: int | None = None) -> Any:
    """Return a tensor with a dimension of one head where the script has none.

    Masks, which broadcast to `num_dims` dimensions, stay in two dimensions or get four.
    """
    if tensor.dim() == 2:
        return tensor
    if tensor.dim() == 4:
        return tensor
    return tensor.unsqueeze(1 if num_dims in (None, 3) else 0)


def arguments(plan: Plan) -> Sequence[Any]:
    """Return the positional arguments by which torch chooses a kernel."""
    return plan.queries, plan.keys, plan.values, plan.mask, 0.0, plan.is_causal


def sign(chain: Chain, plan: Plan) -> tuple[Any, ...]:
    """Return what decides whether kernel and chain agree, whatever the numbers are."""
    kinds = tuple((function, place) for function, _, _, place in chain.steps)
    mask = None if plan.mask is None else (plan.mask.dtype, plan.mask.dim())
    sizes = (chain.queries.dtype, chain.queries.shape[-1], plan.values.shape[-1])
    return kinds, mask, plan.is_causal, plan.scale > 0, sizes, chain.state[1:]


def cut(chain: Chain) -> Chain:
    """Return the chain for the first row of a batch."""

    def first(value: Any) -> Any:
        is_batch = is_plain(chain.torch, value) and value.dim() == len(chain.shape)
        return value[:1] if is_batch else value

    steps = tuple(
        (function, tuple(first(one) for one in args), {k: first(v) for k, v in kwargs.items()}, at)
        for function, args, kwargs, at in chain.steps
    )
    return replace(chain, steps=steps)


def try_out(torch: Any, attend: Callable[..., Any], inputs: Sequence[Any], dtype: Any) -> Any:
    """Return a result and the gradients of the inputs, all in float64."""
    kept_as_it_is = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
    with torch.enable_grad(), kept_as_it_is:  # a checkpoint would take ours for the script's
        leaves = [one.detach().to(dtype).requires_grad_() for one in inputs]
        result = attend(*leaves)
        weights = torch.arange(result.numel(), device=result.device).cos().to(dtype)
        gradients = torch.autograd.grad(result, leaves, weights.reshape(result.shape))
    return [one.detach().double() for one in (result, *gradients)]


def is_close(ours: Any, theirs: Any, true: Any, roundoff: float) -> bool:
    """Return whether our result is about as near to the true one as the script's own."""
    allowed = TIMES_ITS_OWN * (theirs - true).abs().max()
    allowed = allowed + MIN_ROUNDOFFS * roundoff * true.abs().max()
    return bool((ours - true).abs().max() <= allowed)  # False for what is no number


# -- where it is


def find_attention(torch: Any, fuser: Fuser, call: Callable[[], Any]) -> tuple[Any, set[type]]:
    """Make a call as it is written; return its result and the classes with attention in `forward`.

    These are the ones whose attention can be fused.
    """
    mode = make_finder(torch, fuser)
    with mode:
        result = call()
    return result, mode.trace.owners - mode.trace.users


class ProductTrace:
    """Follows what becomes of products, by what each function of torch was given and returned."""

    def __init__(self, torch: Any, fuser: Fuser) -> None:
        self.torch = torch
        self.fuser = fuser
        self.owners: set[type] = set()
        self.users: set[type] = set()  # of weights, besides for attention
        self.reasons: Counter[str] = Counter()
        self.chains: dict[int, tuple[weakref.ref[Any], Chain, type]] = {}

    def see(self, function: Any, args: Any, kwargs: Any, result: Any, frame: Any) -> None:
        """Take a function that has run."""
        name = getattr(function, "__name__", "")
        args = spread(name, args)
        place = next((at for at, one in enumerate(args) if self._knows(one)), None)
        if place is None:
            self._begin(name, args, kwargs, result, frame)
            return
        _, chain, owner = self.chains[id(args[place])]
        rest = (*args[:place], *args[place + 1 :])
        step = (function, rest, kwargs, place)
        end = end_of(chain, name, step)
        if end is not None:
            why = self.fuser.why_not(chain, end[0])
            self.reasons.update([why] if why else [])
            self.owners.update([owner] if why is None else [])
            return
        longer = extend(chain, name, step)
        if longer is not None:
            self.chains[id(result)] = (weakref.ref(result), longer, owner)
        elif name not in HARMLESS:
            del self.chains[id(args[place])]
            if chain.is_normalized:
                self.reasons[reason_of(name)] += 1
                self.users.update([owner] if name != "dropout" else [])

    def _begin(self, name: str, args: Any, kwargs: Any, result: Any, frame: Any) -> None:
        chain = begin(self.torch, name, args, kwargs)
        owner = owner_of(frame, self.torch.nn.Module) if chain is not None else None
        if chain is not None and owner is not None:
            self.chains[id(result)] = (weakref.ref(result), chain, owner)

    def _knows(self, value: Any) -> bool:
        found = self.chains.get(id(value))
        return found is not None and found[0]() is value


def make_finder(torch: Any, fuser: Fuser) -> Any:
    """Return a function mode with a `trace`; it changes nothing, and its own failures end it."""

    class AttentionFinder(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.trace = ProductTrace(torch, fuser)
            self.has_failed = False

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if self.has_failed or torch.compiler.is_compiling():
                return result
            try:
                self.trace.see(func, args, kwargs or {}, result, sys._getframe(1))
            except OWN_FAILURES:
                self.has_failed = True
                self.trace.owners.clear()
            return result

    return AttentionFinder()


def fuse_in(torch: Any, fuser: Fuser, owner: Any) -> Callable[[], None]:
    """Fuse attention in the `forward` of a class, as long as its weights stay inside; undoable."""
    original = owner.forward

    class AttentionMode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.made: list[weakref.ref[Scores]] = []

        def make(self, chain: Chain) -> Scores:
            scores = Scores(chain, fuser.finish, self.make)
            self.made.append(weakref.ref(scores))
            return scores

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            chain = begin(torch, getattr(func, "__name__", ""), args, kwargs)
            if chain is not None:
                return self.make(chain)
            return func(*args, **(kwargs or {}))

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if owner in fuser.off or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return original(self, *args, **kwargs)
        mode = AttentionMode()
        with mode:
            result = original(self, *args, **kwargs)
        left = [one for one in (made() for made in mode.made) if one is not None]
        if any(one._chain.is_normalized for one in left):
            fuser.reasons["used"] += 1
            fuser.off.add(owner)
        return computed(result) if left else result

    return put_forward(owner, forward)


def reason_of(name: str) -> str:
    """Return why weights that go into a function are computed."""
    return "dropout" if name == "dropout" else "used"


def owner_of(frame: Any, module_class: type) -> type | None:
    """Return the class of the script's whose `forward` makes a call, seen from one frame."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward" and code.co_argcount:
            one = frame.f_locals.get(code.co_varnames[0])
            if isinstance(one, module_class):
                return None if type(one).__module__.startswith("torch.") else type(one)
        frame = frame.f_back
    return None
