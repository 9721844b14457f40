"""Finds accumulation of gradients that looks wrong in the text of a loop.

In: a parsed file. Out: `accumulation_loss` (many backward calls make an update, and the mean loss
of each is never divided) and `accumulation_zeroed` (gradients are set to zero in each of them).
It judges only loops of a plain shape, and only losses whose every source it understands: a script
that divides by other means should not be accused. The record says how often backward ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steptime.measure.source.losses import LossReader

Statements = Sequence[ast.stmt]
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ALWAYS = ("body", "finalbody")
# Words in the names of objects whose `step` updates no weights.
_OTHER_STEPS = ("sched", "prof", "warm", "lr", "ema", "bar", "log", "timer", "meter", "env")
_ENGINES = ("accelerator", "fabric")  # their `backward` takes the loss


_Around = tuple[tuple[ast.stmt, str], ...]
"""The statements around a call, outermost first, each with the part of it that holds the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    """A call in a loop, and the statements between the two."""

    call: ast.Call
    around: _Around

    @property
    def is_in_each_round(self) -> bool:
        """Return whether only `with` and `try` are between the loop and the call."""
        plain = (ast.With, ast.AsyncWith, ast.Try)
        return all(isinstance(n, plain) and part in _ALWAYS for n, part in self.around)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """A round of micro-batches: what its loop does in each, and the name of their count."""

    body: Statements
    backwards: tuple[ast.Call, ...]
    zeroings: tuple[ast.Call, ...]
    number: str | None


def find_suspicions(tree: ast.Module) -> list[tuple[str, int]]:
    """Return the code and line of each suspicion, in the order of lines."""
    found = []
    for body in _scopes(tree):
        for micro in _rounds(body):
            reader = LossReader(tree, scope=body, body=micro.body, number=micro.number)
            losses = [loss_of(call) for call in micro.backwards]
            is_undivided = all(loss and reader.is_undivided(loss) for loss in losses)
            if is_undivided and not _divides_itself(tree, micro.backwards):
                found += [("accumulation_loss", call.lineno) for call in micro.backwards]
            found += [("accumulation_zeroed", call.lineno) for call in micro.zeroings]
    return sorted(set(found), key=lambda place: (place[1], place[0]))


# -- loops


def _scopes(tree: ast.Module) -> Iterator[Statements]:
    yield tree.body
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.body


def _rounds(body: Statements) -> Iterator[_Round]:
    """Yield the loops of a scope that make rounds of micro-batches, in either shape."""
    for statements in _blocks(body):
        for place, node in enumerate(statements):
            if isinstance(node, _LOOPS):
                found = _conditional(node) or _nested(node, statements[place + 1 :])
                if found is not None:
                    yield found


def _blocks(body: Statements) -> Iterator[Statements]:
    """Yield every list of statements of a scope, but not those of inner scopes."""
    yield body
    for node in body:
        if not isinstance(node, _SCOPES):
            for _, inner in _parts(node):
                yield from _blocks(inner)


def _parts(node: ast.stmt) -> Iterator[tuple[str, Statements]]:
    """Yield the lists of statements in a statement, each with the name of its part."""
    for name in ("body", "orelse", "finalbody"):
        yield from ((name, part) for part in filter(None, [getattr(node, name, None)]))
    for name in ("handlers", "cases"):
        yield from ((name, part.body) for part in getattr(node, name, ()))


def _conditional(loop: ast.For | ast.AsyncFor | ast.While) -> _Round | None:
    """Return the round of a loop whose updates share one condition that counts micro-batches."""
    acts = list(_acts(loop.body, ()))
    backwards = [act for act in acts if is_backward(act.call)]
    gates = [_gate(act, loop) for act in acts if is_update(act.call)]
    gate = gates[0] if gates else None
    if gate is None or any(other is not gate for other in gates):
        return None
    if any(_may_update(act.call) and act.is_in_each_round for act in acts):
        return None
    # A backward pass elsewhere belongs to another model, so the loop is not plain.
    if not backwards or not all(act.is_in_each_round for act in backwards):
        return None
    zeroings = [act for act in acts if _is_zeroing(act.call)]
    if not all(act.is_in_each_round for act in zeroings):
        zeroings = []  # it zeroes at the update as well: no oversight
    return _Round(
        body=loop.body,
        backwards=tuple(act.call for act in backwards),
        zeroings=tuple(act.call for act in zeroings),
        number=_modulus(gate.test),
    )


def _gate(act: _Act, loop: ast.stmt) -> ast.If | None:
    """Return the condition directly in the loop around the act, if it counts micro-batches."""
    for node, part in act.around:
        if isinstance(node, ast.If):
            return node if part == "body" and _counts(node.test, loop) else None
        if not (isinstance(node, (ast.With, ast.AsyncWith, ast.Try)) and part in _ALWAYS):
            return None
    return None


def _counts(test: ast.expr, loop: ast.stmt) -> bool:
    """`(i + 1) % n == 0`, or `count == n` where the loop adds one to `count`."""
    if _modulus_of(test) is not None:
        return True
    counters = {
        node.target.id
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
        and node.value.value == 1
    }
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], (ast.Eq, ast.GtE))
        and isinstance(test.left, ast.Name)
        and test.left.id in counters
    )


def _modulus_of(test: ast.expr) -> ast.expr | None:
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return node.right
    return None


def _modulus(test: ast.expr) -> str | None:
    """Return the name of the number of micro-batches; None for a plain number."""
    found = _modulus_of(test)
    if found is None and isinstance(test, ast.Compare):
        found = test.comparators[0]
    return None if found is None else last_name(found)


def _nested(loop: ast.For | ast.AsyncFor | ast.While, rest: Statements) -> _Round | None:
    """Return the round of a loop over micro-batches, named as such, with the update after it."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return None
    number = last_name(loop.iter.args[0]) if loop.iter.args else None
    names = (number or "").lower(), (last_name(loop.target) or "").lower()
    is_named = "accum" in names[0] or "micro" in names[0] or "micro" in names[1]
    if last_name(loop.iter.func) != "range" or not is_named:
        return None
    acts = list(_acts(loop.body, ()))
    backwards = [act for act in acts if is_backward(act.call)]
    if not backwards or not all(act.is_in_each_round for act in backwards):
        return None
    follows = any(is_update(act.call) for act in _acts(rest, ()))
    if not follows or any(is_update(act.call) for act in acts):
        return None
    zeroings = [act.call for act in acts if _is_zeroing(act.call) and act.is_in_each_round]
    return _Round(
        body=loop.body,
        backwards=tuple(act.call for act in backwards),
        zeroings=tuple(zeroings),
        number=number,
    )


def _acts(body: Statements, around: _Around) -> Iterator[_Act]:
    """Yield the calls of these statements, with nested statements but without nested functions."""
    for node in body:
        if isinstance(node, _SCOPES):
            continue
        for name, inner in _parts(node):
            yield from _acts(inner, (*around, (node, name)))
        for part in ast.iter_child_nodes(node):
            if isinstance(part, (ast.expr, ast.withitem)):
                yield from (_Act(call=call, around=around) for call in _calls(part))


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            yield part


# -- calls


def is_backward(call: ast.Call) -> bool:
    """Return whether a call is a backward pass."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def loss_of(call: ast.Call) -> ast.expr | None:
    """Return the loss of a backward call, without the scaler; None if it is not known."""
    assert isinstance(call.func, ast.Attribute)
    owner = call.func.value
    if (last_name(owner) or "").lower() in _ENGINES:
        return call.args[0] if call.args else None
    if call.args or any(keyword.arg != "retain_graph" for keyword in call.keywords):
        return None  # a gradient of the user's own
    return owner


def is_update(call: ast.Call) -> bool:
    """`optimizer.step()` or `scaler.step(optimizer)`, by the names they have."""
    name = last_name(call.func) or ""
    if name.endswith(("optimizer_step", "opt_step")):
        return True
    if not isinstance(call.func, ast.Attribute) or name != "step":
        return False
    names = [last_name(call.func.value) or "", *(last_name(a) or "" for a in call.args[:1])]
    return any("opt" in name.lower() and "sched" not in name.lower() for name in names)


def _may_update(call: ast.Call) -> bool:
    """Return whether a call is a `step()` of something whose name says nothing."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step" or call.args:
        return False
    name = (last_name(call.func.value) or "").lower()
    return not any(word in name for word in _OTHER_STEPS)


def _is_zeroing(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad"


def _divides_itself(tree: ast.Module, backwards: Sequence[ast.Call]) -> bool:
    """Return whether Accelerate may divide: it does where it knows the number of micro-batches."""
    owners = [c.func.value for c in backwards if isinstance(c.func, ast.Attribute)]
    if not any((last_name(owner) or "").lower() == "accelerator" for owner in owners):
        return False
    made = [call for call in _calls(tree) if last_name(call.func) == "Accelerator"]
    told = [k.arg for call in made for k in call.keywords]
    return not made or any(arg is None or "accumulation" in arg for arg in told)


def last_name(node: ast.expr) -> str | None:
    """`optimizer` of `self.optimizer`, `optimizers[0]`, `trainer.optimizer`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return last_name(node.value) if isinstance(node, ast.Subscript) else None
