"""Finds classes of modules that write GELU out in single operators, by what they compute.

A class is one if its `forward` is a straight line of torch's functions that stores nothing, and if
its results and gradients at fixed numbers are those of torch's own GELU. The guest asks with this
file too, so it knows the standard library alone. To replace the class's `forward` is left to
`fused_gelu.py`.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ..base import FLOAT32_ROUNDOFF
from ..tools.dry_call import dry_call

State = tuple[tuple[str, Any], ...]
"""The values that a script gave a module, besides what every module has."""

FORMS = ("tanh", "none")
"""The ways of torch's GELU, in the words of its argument `approximate`."""

LIMIT, NUM_PROBES = 8.0, 257
"""The numbers that are tried, evenly from -LIMIT to LIMIT: zero is among them."""

MAX_RESULT_ROUNDOFFS = 8.0
"""Of |x|, or of 1 below it. The forms in the tests differ by 3 at most; tanh and erf by 3,000."""

MAX_GRADIENT_ROUNDOFFS = 16.0
"""Likewise. The forms in the tests differ by 4 at most; tanh and erf by 7,000."""

MIN_NODES = 4
"""Of the graph of a GELU that is written out; one that is fused already has fewer."""

PLAIN = (int, float, bool, str, type(None))
LIBRARIES = ("torch", "math", "numpy")
HARMLESS = (abs, pow, float, int)
MAX_DEPTH = 3
"""Functions of the script's that call each other."""

OWN_FAILURES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a `forward` may raise at a tensor that it was not made for."""

Tried = tuple[Any, dict[State, str | None]]
"""The `forward` that was tried, and its form by the state of a module: None where it is no GELU."""

probed: weakref.WeakKeyDictionary[type, Tried] = weakref.WeakKeyDictionary()
"""What was tried of a class, which is not done again as long as it has the same `forward`."""


def find_written(torch: Any, models: list[Any]) -> dict[type, dict[State, str]]:
    """Return the classes that write GELU out, each with its form by the state of an instance."""
    modules = {id(one): one for model in models for one in model.modules()}.values()
    found: dict[type, dict[State, str]] = {}
    others: set[type] = set()
    own = own_names(torch)
    for module in modules:
        owner, state = type(module), state_of(module, own)
        form = None if state is None else form_of(torch, module, state)
        if state is None or form is None:
            others.add(owner)
        else:
            found.setdefault(owner, {})[state] = form
    return {owner: forms for owner, forms in found.items() if owner not in others}


def own_names(torch: Any) -> frozenset[str]:
    """Return the names that every module has among its attributes."""
    return frozenset(vars(torch.nn.Module()))


def state_of(module: Any, own: frozenset[str]) -> State | None:
    """Return what a script set on a module; None where that is more than plain values."""
    state = tuple((name, value) for name, value in vars(module).items() if name not in own)
    return state if all(type(value) in PLAIN for _, value in state) else None


def form_of(torch: Any, module: Any, state: State) -> str | None:
    """Return which GELU a module writes out, if any; it is tried once for each state."""
    owner = type(module)
    forward = owner.forward
    if type(forward) is not FunctionType or is_known(torch, owner) or has_parts(module):
        return None
    tried, forms = probed.get(owner, (None, {}))
    if tried is not forward:
        forms = {}
        probed[owner] = forward, forms
    if state not in forms:
        is_line = is_straight(torch, forward, owner)
        forms[state] = try_out(torch, module, forward) if is_line else None
    return forms[state]


def is_known(torch: Any, owner: Any) -> bool:
    """Return whether torch wrote the `forward` of a class, or the class has a call of its own."""
    if is_of(owner.forward.__module__, ("torch",)):
        return True
    between = owner.__mro__[: owner.__mro__.index(torch.nn.Module)]
    return any("__call__" in vars(one) for one in between)


def has_parts(module: Any) -> bool:
    """Return whether a module has parameters, buffers, modules or hooks."""
    held = (module._parameters, module._buffers, module._modules)
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    backward = (module._backward_hooks, module._backward_pre_hooks)
    return any((*held, *hooks, *backward))


# -- what it is written in


def is_straight(torch: Any, function: Any, owner: type, depth: int = 0) -> bool:
    """Return whether a function computes by torch alone, without branches, and stores nothing.

    It does the same then with each tensor, and nothing is missed where it is not called.
    """
    if depth > MAX_DEPTH or type(function) is not FunctionType or function.__closure__:
        return False
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if not all(type(one) in PLAIN for one in defaults):
        return False

    def is_harmless(value: Any) -> bool:
        value = value.__func__ if isinstance(value, staticmethod) else value
        if type(value) is FunctionType and not is_of(value.__module__, ("torch",)):
            return is_straight(torch, value, owner, depth + 1)
        return is_constant(torch, value)

    for one in dis.get_instructions(function):
        if does_more(one.opname):
            return False
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            other = getattr(builtins, one.argval, None)
            if not is_harmless(function.__globals__.get(one.argval, other)):
                return False
        elif one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            value = inspect.getattr_static(owner, one.argval, None)
            if one.argval == "training" or not is_harmless(value):
                return False
    return True


def does_more(operation: str) -> bool:
    """Return whether an operation of Python stores outside of local names, or may branch."""
    if operation.startswith(("STORE_FAST", "DELETE_FAST")):
        return False
    stores = ("STORE_", "DELETE_", "IMPORT_", "MAKE_FUNCTION", "YIELD_", "SETUP_", "LOAD_SUPER")
    return operation.startswith(stores) or "JUMP" in operation


def is_constant(torch: Any, value: Any) -> bool:
    """Return whether a value is a number, one of torch's functions, or a module that has them."""
    if type(value) in PLAIN or type(value) in (torch.dtype, torch.device):
        return True
    if isinstance(value, ModuleType):
        return is_of(value.__name__, LIBRARIES)
    if type(value) is FunctionType:
        return is_of(value.__module__, ("torch",))
    if type(value) is BuiltinFunctionType and value not in HARMLESS:
        places = (torch, torch.nn.functional, torch.special, math)
        return any(getattr(one, value.__name__, None) is value for one in places)
    return any(value is one for one in HARMLESS)


def is_of(name: Any, packages: tuple[str, ...]) -> bool:
    """Return whether a module is one of these packages or lies in one."""
    return str(name).partition(".")[0] in packages


# -- what it computes


def try_out(torch: Any, module: Any, forward: Callable[..., Any]) -> str | None:
    """Return the form of GELU that a module computes, in each dtype; None if it is none."""
    # a checkpoint would take what is saved here for the script's
    saved = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
    autocast, inference = torch.autocast("cpu", enabled=False), torch.inference_mode(False)
    with dry_call(torch, module), autocast, inference, torch.enable_grad(), saved:
        before = torch.get_rng_state()
        try:
            found = [one for one in FORMS if computes(torch, module, forward, one)]
        except OWN_FAILURES:
            return None
        draws = not torch.equal(before, torch.get_rng_state())
    return found[0] if found and not draws else None


def computes(torch: Any, module: Any, forward: Callable[..., Any], form: str) -> bool:
    """Return whether results and gradients are those of torch's GELU of this form."""
    options = {"dtype": torch.float32, "device": "cpu"}
    line = torch.linspace(-LIMIT, LIMIT, NUM_PROBES, **options)
    line = torch.cat([line, -torch.zeros(1, **options), line[::16] / 1000.0])
    # others beside them and in another shape: no number may depend on its neighbors
    part = line.flip(0)[: len(line) // 4 * 3].reshape(2, 3, -1)
    if not all(is_same_at(torch, module, forward, form, values) for values in (line, part)):
        return False
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        values = line.to(dtype)
        result = forward(module, values)
        if result.dtype is not dtype or result.shape != values.shape:
            return False
    return True


def is_same_at(
    torch: Any, module: Any, forward: Callable[..., Any], form: str, values: Any
) -> bool:
    """Return whether a module is a GELU that is written out, as far as these numbers tell."""
    leaf, other = (values.clone().requires_grad_() for _ in range(2))
    written = forward(module, leaf)
    fused = torch.nn.functional.gelu(other, approximate=form)
    if type(written) is not torch.Tensor or written.shape != values.shape:
        return False
    if written.dtype is not values.dtype or not is_written_out(written.grad_fn):
        return False
    ones = torch.ones_like(values)
    (ours,) = torch.autograd.grad(fused, other, ones)
    (theirs,) = torch.autograd.grad(written, leaf, ones)
    roundoff = FLOAT32_ROUNDOFF * values.abs().clamp(min=1.0)
    is_close = bool(((fused - written).abs() <= MAX_RESULT_ROUNDOFFS * roundoff).all())
    return is_close and bool(((ours - theirs).abs() <= MAX_GRADIENT_ROUNDOFFS * roundoff).all())


def is_written_out(node: Any) -> bool:
    """Return whether a graph has several nodes, all of them of torch's own single operators."""
    seen, waiting = set(), [node]
    while waiting:
        one = waiting.pop()
        if one is None or one in seen:
            continue
        if "gelu" in type(one).__name__.lower() or hasattr(one, "saved_tensors"):
            return False  # by torch's kernel, or by a function of the script's own
        seen.add(one)
        waiting += [following for following, _ in one.next_functions]
    return len(seen) >= MIN_NODES
