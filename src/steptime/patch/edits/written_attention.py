"""The edit of attention that is written out in statements behind each other.

    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    weights = self.dropout(weights)
    y = weights @ v

becomes one call of `scaled_dot_product_attention`. Each statement must give the next one its only
tensor, and nothing else in the function may use what lies between; steps may stand in one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst
import libcst.matchers as m

from steptime.patch.changes import Change, Remove, Replace, need_torch
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, take
from steptime.patch.ground import Ground
from steptime.patch.source_file import SourceFile, last_word
from steptime.patch.values import CannotPlaceError

_PLAIN = m.Name() | m.Attribute()
_SIMPLE = (cst.Integer, cst.Float, cst.Name, cst.Attribute, cst.Call)
NOT_FOUND = (
    "No attention was found in the files of the proof whose statements stand behind each other: "
    "product, mask, softmax, dropout, product."
)


@dataclass(slots=True)
class _Chain:
    """What was read so far; `name` holds it."""

    name: str
    queries: str
    keys: str
    scale: str | None
    masks: list[str] = field(default_factory=list)
    dropout: str | None = None
    is_normalized: bool = False
    statements: list[cst.SimpleStatementLine] = field(default_factory=list)


def fuse_attention(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`scaled_dot_product_attention(q, k, v, …)` in place of the statements."""
    take(settings)
    found: list[Placed | NotPlaced] = []
    for source in ground.sources():
        for block in source.blocks():
            found += _in_block(source, block)
    if not found:
        raise CannotPlaceError(NOT_FOUND)
    return found


def _in_block(source: SourceFile, block: Sequence[cst.CSTNode]) -> list[Placed | NotPlaced]:
    found: list[Placed | NotPlaced] = []
    chain: _Chain | None = None
    for statement in block:
        if chain is not None and chain.is_normalized:
            last = _end(source, statement, chain.name)
            if last is not None:
                found.append(_fused(source, chain, last, statement))
                chain = None
                continue
        assigned = _assigned(statement)
        if assigned is None:
            chain = None
            continue
        name, value, line = assigned
        chain = _read(source, chain, name, value)
        if chain is not None:
            chain.statements.append(line)
    return found


def _assigned(
    statement: cst.CSTNode,
) -> tuple[str, cst.BaseExpression, cst.SimpleStatementLine] | None:
    """Return the name and the value of `name = value`."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    part = statement.body[0]
    if not isinstance(part, cst.Assign) or len(part.targets) != 1:
        return None
    target = part.targets[0].target
    return (target.value, part.value, statement) if isinstance(target, cst.Name) else None


def _read(
    source: SourceFile, chain: _Chain | None, name: str, value: cst.BaseExpression
) -> _Chain | None:
    """Return the chain with what a value adds, the innermost step first; None if that is none."""
    found = _longer(source, chain, name, value) or _begun(source, name, value)
    inner = _inner(value)
    if found is not None or inner is None:
        return found
    return _longer(source, _read(source, chain, source.code(inner), inner), name, value)


def _inner(value: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return what a call is made of: the object of a method, the first argument of a function."""
    if not isinstance(value, cst.Call):
        return None
    if isinstance(value.func, cst.Attribute) and not m.matches(value.func.value, _PLAIN):
        return value.func.value
    return value.args[0].value if value.args else None


def _begun(source: SourceFile, name: str, value: cst.BaseExpression) -> _Chain | None:
    """Return a chain that begins with a scaled product of queries and transposed keys."""
    product, scale = value, "1.0"
    if isinstance(value, cst.BinaryOperation) and _factors(value) is None:
        product = value.left
        factor = source.code(value.right.with_changes(lpar=[], rpar=[]))
        if isinstance(value.operator, cst.Multiply):
            scale = factor
        elif isinstance(value.operator, cst.Divide):
            is_simple = isinstance(value.right, (*_SIMPLE,))
            scale = f"1.0 / {factor}" if is_simple else f"1.0 / ({factor})"
        else:
            return None
    factors = _factors(product)
    if factors is None:
        return None
    queries, turned = factors
    keys = _turned(source, turned)
    return None if keys is None else _Chain(name, source.code(queries), keys, scale)


def _factors(value: cst.BaseExpression) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Return the factors of `a @ b` and `torch.matmul(a, b)`."""
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.MatrixMultiply):
        return value.left, value.right
    is_call = isinstance(value, cst.Call) and last_word(value.func) == "matmul"
    if not is_call or not isinstance(value, cst.Call):
        return None
    if len(value.args) == 2 and not any(arg.keyword or arg.star for arg in value.args):
        return value.args[0].value, value.args[1].value
    return None


def _turned(source: SourceFile, value: cst.BaseExpression) -> str | None:
    """Return k of `k.transpose(-2, -1)` or `k.mT`."""
    if isinstance(value, cst.Attribute) and value.attr.value == "mT":
        return source.code(value.value)
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
        return None
    dims = [source.code(arg.value) for arg in value.args]
    if value.func.attr.value != "transpose" or sorted(dims) not in (["-1", "-2"], ["2", "3"]):
        return None
    return source.code(value.func.value)


def _longer(
    source: SourceFile, chain: _Chain | None, name: str, value: cst.BaseExpression
) -> _Chain | None:
    """Return the chain with one more step; None if this is none."""
    if chain is None or not isinstance(value, cst.Call):
        return None
    step = last_word(value.func)
    texts = [source.code(arg.value) for arg in value.args]
    is_method = (
        isinstance(value.func, cst.Attribute) and source.code(value.func.value) == chain.name
    )
    is_given = bool(texts) and texts[0] == chain.name
    if step == "masked_fill" and is_method and len(texts) == 2 and _hides(texts[1]):
        if chain.is_normalized:
            return None
        chain.masks.append(_shown(texts[0]))
    elif step == "softmax" and (is_method or is_given):
        dims = [text for text in texts if text != chain.name]
        if dims not in (["-1"], ["3"]) or chain.is_normalized:
            return None
        chain.is_normalized = True
    elif chain.is_normalized and texts == [chain.name] and _is_own_dropout(source, value):
        chain.dropout = source.code(value.func)
    else:
        return None
    chain.name = name
    return chain


def _is_own_dropout(source: SourceFile, call: cst.Call) -> bool:
    """Return whether a call is `self.dropout(...)`, whose probability is `self.dropout.p`."""
    words = source.code(call.func)
    return words.startswith("self.") and "drop" in words.lower()


def _hides(value: str) -> bool:
    plain = value.replace("'", '"').replace(" ", "")
    return plain in ('float("-inf")', '-float("inf")', "-math.inf", "-torch.inf", "-np.inf")


def _shown(hidden: str) -> str:
    """Return the mask of what is seen."""
    head, equals, tail = hidden.rpartition(" == ")
    return f"{head} != 0" if equals and tail == "0" else f"~({hidden})"


def _end(source: SourceFile, statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """Return the `weights @ v` in a statement that uses the weights for nothing else."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return None
    products = [
        node
        for node in m.findall(statement, m.BinaryOperation() | m.Call())
        if isinstance(node, (cst.BinaryOperation, cst.Call))
        and (factors := _factors(node)) is not None
        and source.code(factors[0]) == name
    ]
    uses = m.findall(statement, m.Name(value=name))
    targets = m.findall(statement, m.AssignTarget(target=m.Name(value=name)))
    return products[0] if len(products) == 1 and len(uses) - len(targets) == 1 else None


def _fused(
    source: SourceFile, chain: _Chain, last: cst.BaseExpression, ending: cst.CSTNode
) -> Placed | NotPlaced:
    factors = _factors(last)
    values = source.code(factors[1]) if factors is not None else ""
    where = f"{source.name}:{source.line_of(chain.statements[0])}"
    names = {
        one.targets[0].target.value
        for line in chain.statements
        for one in line.body
        if isinstance(one, cst.Assign) and isinstance(one.targets[0].target, cst.Name)
    }
    function = source.function_of(chain.statements[0])
    used = m.findall(function, m.Name()) if function is not None else []
    inside = {id(n) for one in (*chain.statements, ending) for n in m.findall(one, m.Name())}
    others = {n.value for n in used if isinstance(n, cst.Name) and id(n) not in inside}
    if function is None or names & others:
        return NotPlaced(f"{where} has scores or weights that are used elsewhere.", where)
    torch, needed = need_torch(source)
    arguments = [chain.queries, chain.keys, values]
    if chain.masks:
        arguments.append(f"attn_mask={_together(chain.masks)}")
    if chain.dropout is not None:
        arguments.append(f"dropout_p={chain.dropout}.p if self.training else 0.0")
    arguments.append(f"scale={chain.scale}")
    call = f"{torch}.nn.functional.scaled_dot_product_attention"
    inner = ",\n".join(f"    {one}" for one in arguments)
    text = f"{call}(\n{inner},\n)"
    changes: list[Change] = [*needed, Replace(source=source, node=last, text=text)]
    changes += [Remove(source=source, statement=one) for one in chain.statements]
    return Placed(where, tuple(changes))


def _together(masks: Sequence[str]) -> str:
    return masks[0] if len(masks) == 1 else " & ".join(f"({one})" for one in masks)
