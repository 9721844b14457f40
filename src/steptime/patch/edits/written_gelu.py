"""The edit of functions that write GELU out.

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))

returns `torch.nn.functional.gelu(x, approximate="tanh")`. Whether a function is GELU is found by
computing what it returns for some numbers, from its text alone; one that has branches, other
functions or attributes is left as it is.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence

import libcst as cst

from steptime.patch.changes import Change, Remove, Replace, need_torch
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, take
from steptime.patch.ground import Ground
from steptime.patch.source_file import SourceFile
from steptime.patch.values import CannotPlaceError

NOT_FOUND = (
    "No function was found in the files of the proof that returns GELU of its argument in single "
    "operators; in a class of an installed library it is not yours to edit."
)
NUMBERS = (-6.0, -2.5, -1.0, -0.3, 0.0, 0.1, 0.7, 1.9, 5.0)
CLOSE = 1e-6
"""Constants are written with six digits or more; the two forms of GELU differ by 0.0005."""

_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "tanh": math.tanh,
    "erf": math.erf,
    "sqrt": math.sqrt,
    "pow": math.pow,
    "square": lambda x: x * x,
    "mul": operator.mul,
    "add": operator.add,
    "div": operator.truediv,
}
_OF_TENSORS = ("torch", "torch.special", "torch.nn.functional", "F")
_OF_NUMBERS = ("math", "np", "numpy")
_NOT_GELU = (ArithmeticError, LookupError, SyntaxError, TypeError, ValueError)


def fuse_gelu(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`torch.nn.functional.gelu(x)` in place of what such a function returns."""
    take(settings)
    found = [
        placed
        for source in ground.sources()
        for block in source.blocks()
        if (placed := _in_block(source, block)) is not None
    ]
    if not found:
        raise CannotPlaceError(NOT_FOUND)
    return found


def _in_block(source: SourceFile, block: Sequence[cst.CSTNode]) -> Placed | None:
    function = source.function_of(block[0])
    if function is None or function.body.body is not block:
        return None
    name, result, lines = _argument(function), _returned(block[-1]), _assigned(block[:-1])
    if name is None or result is None or lines is None:
        return None
    texts = [(target, source.code(value)) for target, value, _ in lines]
    options = _form(name, [*texts, ("", source.code(result))])
    if options is None:
        return None
    torch, needed = need_torch(source)
    text = f"{torch}.nn.functional.gelu({name}{options})"
    changes: list[Change] = [*needed, Replace(source=source, node=result, text=text)]
    changes += [Remove(source=source, statement=line) for _, _, line in lines]
    return Placed(f"{source.name}:{source.line_of(block[-1])}", tuple(changes))


def _argument(function: cst.FunctionDef) -> str | None:
    """Return the name of a function's only argument, besides `self`."""
    parameters = function.params
    names = [one.name.value for one in parameters.params if one.default is None]
    others = (*parameters.kwonly_params, *parameters.posonly_params)
    is_more = others or parameters.star_kwarg or isinstance(parameters.star_arg, cst.Param)
    names = names[1:] if names[:1] == ["self"] else names
    is_plain = not (is_more or function.decorators or function.asynchronous)
    return names[0] if len(names) == 1 and is_plain else None


def _returned(statement: cst.CSTNode) -> cst.BaseExpression | None:
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    part = statement.body[0]
    return part.value if isinstance(part, cst.Return) else None


def _assigned(
    block: Sequence[cst.CSTNode],
) -> list[tuple[str, cst.BaseExpression, cst.SimpleStatementLine]] | None:
    """Return the assignments before the `return`, without a docstring; None if there is more."""
    found = []
    for number, line in enumerate(block):
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            return None
        part = line.body[0]
        if number == 0 and isinstance(part, cst.Expr) and isinstance(part.value, cst.SimpleString):
            continue
        if not isinstance(part, cst.Assign) or len(part.targets) != 1:
            return None
        target = part.targets[0].target
        if not isinstance(target, cst.Name):
            return None
        found.append((target.value, part.value, line))
    return found


def _form(name: str, texts: Sequence[tuple[str, str]]) -> str | None:
    """Return the further arguments of torch's GELU; None where it is another function."""
    try:
        trees = [(target, ast.parse(f"({text})", mode="eval").body) for target, text in texts]
        results = [_compute(trees, name, number) for number in NUMBERS]
    except _NOT_GELU:
        return None
    for function, options in ((_by_tanh, ', approximate="tanh"'), (_by_erf, "")):
        if all(abs(one - function(x)) <= CLOSE for one, x in zip(results, NUMBERS, strict=True)):
            return options
    return None


def _by_tanh(x: float) -> float:
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _by_erf(x: float) -> float:
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def _compute(trees: Sequence[tuple[str, ast.expr]], name: str, number: float) -> float:
    known = {name: number}
    for target, tree in trees:
        known[target] = _value(tree, known)
    return known[""]


def _value(node: ast.expr, known: Mapping[str, float]) -> float:
    """Return the number that an expression is; it raises what `_NOT_GELU` says for any other."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, known), _value(node.right, known))
    if isinstance(node, ast.Attribute) and node.attr == "pi":
        return dict.fromkeys(("torch", *_OF_NUMBERS), math.pi)[ast.unparse(node.value)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
        owner, operands = ast.unparse(node.func.value), list(node.args)
        if owner in _OF_NUMBERS:
            known = {}  # a function that computes with arrays is not torch's
        elif owner not in _OF_TENSORS:
            operands = [node.func.value, *operands]
        return _FUNCTIONS[node.func.attr](*(_value(one, known) for one in operands))
    raise ValueError(ast.dump(node))
