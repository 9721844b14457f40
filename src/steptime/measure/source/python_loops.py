"""Finds loops over elements in the user's code: work that one call on whole tensors could do.

In: a parsed file. Out: a `Loop` for each loop or comprehension of a known pattern. Loops that train
(a backward pass or an update lies in them), loops over parameters and layers, and loops of a few
rounds are none. Nothing here knows what takes time: `loop_regions` decides where to search.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steptime.measure.source.accumulation import last_name

RANDOM, TENSOR, STACK = "random_per_element", "tensor_of_list", "stack_of_list"
SAMPLED, GROWING = "sampled_one_by_one", "growing_tensor"
READS, WRITES = "element_reads", "element_writes"
PATTERNS = (GROWING, SAMPLED, RANDOM, READS, WRITES, STACK, TENSOR)
"""The patterns; where a loop shows several, the first of them names it."""

FEW = 16
"""Rounds of a loop that are too few to matter: the channels of an image, the heads of a model."""

MAKES = frozenset(("tensor", "as_tensor", "array", "asarray", "FloatTensor", "LongTensor"))
STACKS = frozenset(("stack", "cat", "concat", "concatenate", "vstack", "hstack", "column_stack"))
DRAWS = frozenset(
    (
        *("random", "rand", "randn", "randint", "randrange", "uniform", "normal", "gauss"),
        *("choice", "choices", "normalvariate", "random_sample", "integers", "standard_normal"),
        *("expovariate", "betavariate", "exponential", "poisson", "binomial"),
    )
)
_SIZED = frozenset(("rand", "randn", "random", "random_sample", "standard_normal"))
"""Of these the first argument is a size."""

_GENERATORS = ("random", "ra", "rng", "rnd", "rand", "np", "numpy", "torch", "gen", "generator")
_OF_MODELS = (
    "param",
    "grad",
    "layer",
    "module",
    "group",
    "block",
    "optim",
    "head",
    "buffers",
    "hook",
)
_TRAINS = frozenset(("backward", "zero_grad"))
_LOOPS = (ast.For, ast.ListComp, ast.GeneratorExp)
Comprehension = ast.ListComp | ast.GeneratorExp


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One loop over elements.

    Attributes:
        code: the pattern.
        node: the outermost loop or, of a list that is made into a tensor, the call that makes it.
        depth: how many loops lie in each other.
        file: the file that it is in; empty for the file that is searched.
    """

    code: str
    node: ast.stmt | ast.expr
    depth: int
    file: str = ""


def find_loops(nodes: Sequence[ast.AST], body: Sequence[ast.stmt]) -> list[Loop]:
    """Return the loops over elements in these nodes, the deepest first.

    Args:
        nodes: parts of a function, without what should not be searched.
        body: the whole function, in which a list may later be made into a tensor.
    """
    found: list[Loop] = []
    for node in nodes:
        _search(node, body, found)
    return sorted(found, key=lambda one: (-one.depth, one.node.lineno))


def _search(node: ast.AST, body: Sequence[ast.stmt], found: list[Loop]) -> None:
    """Add the outermost loops below a node; what lies in them belongs to them."""
    loop = _loop_at(node, body)
    if loop is not None:
        found.append(loop)
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    for child in ast.iter_child_nodes(node):
        _search(child, body, found)


def _loop_at(node: ast.AST, body: Sequence[ast.stmt]) -> Loop | None:
    made = list_of(node)
    if made is not None and isinstance(node, ast.Call):
        code = _pattern_of_list(node, made)
        return None if code is None else Loop(code=code, node=node, depth=_depth(made))
    if isinstance(node, ast.For):
        code = None if _is_other(node) else _pattern_of_for(node, body)
        return None if code is None else Loop(code=code, node=node, depth=_depth(node))
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and not _are_other(node):
        code = _pattern_of_element(node.elt, node)
        return None if code is None else Loop(code=code, node=node, depth=_depth(node))
    return None


# -- lists that become tensors


def list_of(node: ast.AST) -> Comprehension | None:
    """Return the comprehension of `torch.tensor([... for ...])` and the like; None if none."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    if (last_name(node.func) or "") not in MAKES | STACKS or _is_method(node):
        return None
    first = node.args[0]
    return first if isinstance(first, (ast.ListComp, ast.GeneratorExp)) else None


def _is_method(call: ast.Call) -> bool:
    """Return whether it is a method of something other than torch or numpy."""
    func = call.func
    return isinstance(func, ast.Attribute) and root_of(func) not in ("torch", "np", "numpy")


def _pattern_of_list(call: ast.Call, made: Comprehension) -> str | None:
    if _are_other(made):
        return None
    inner = _pattern_of_element(made.elt, made)
    if inner is not None:
        return inner
    if isinstance(made.elt, (ast.Name, ast.Constant)) or _takes_a_field(made):
        return None  # what is there already is put together in one call
    if (last_name(call.func) or "") in STACKS:
        return STACK
    return TENSOR if any(_is_work(node) for node in ast.walk(made.elt)) else None


def _is_work(node: ast.AST) -> bool:
    """Return whether it is work on one element; `a + b` of names may join two lists."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    return isinstance(node, (ast.Call, ast.Subscript))


def _takes_a_field(made: Comprehension) -> bool:
    """`[y for _, y in samples]`, `[s[1] for s in samples]`, `[s.label for s in samples]`."""
    elt = made.elt
    if isinstance(elt, ast.Subscript):
        return isinstance(elt.slice, ast.Constant) and isinstance(elt.value, ast.Name)
    return isinstance(elt, ast.Attribute) and isinstance(elt.value, ast.Name)


def _pattern_of_element(elt: ast.expr, made: Comprehension) -> str | None:
    """Return what a comprehension does for each element, if that is a pattern by itself."""
    if isinstance(elt, ast.ListComp):
        return _pattern_of_element(elt.elt, elt)
    draws = [call for call in _calls(elt) if is_draw(call)]
    names = _targets(made)
    for call in _calls(elt):
        if _is_read(call, names):
            return READS
    if not draws:
        return None
    is_index = any(
        isinstance(node, ast.Subscript) and any(is_draw(call) for call in _calls(node.slice))
        for node in ast.walk(elt)
    )
    return SAMPLED if is_index else RANDOM


# -- statements


def _pattern_of_for(loop: ast.For, body: Sequence[ast.stmt]) -> str | None:
    names = {name for one in _inner_loops(loop) for name in _names_in(one.target)}
    counters = {name for one in _inner_loops(loop) for name in _counters(one)}
    found = set()
    for node in (part for statement in loop.body for part in ast.walk(statement)):
        if isinstance(node, ast.Assign) and _grows(node):
            found.add(GROWING)
        elif isinstance(node, (ast.Assign, ast.AugAssign)) and _writes_element(node, counters):
            found.add(WRITES)
        if isinstance(node, ast.Call):
            if is_draw(node):
                found.add(RANDOM)
            if _is_read(node, names):
                found.add(READS)
            if _appends_to_stacked(node, body):
                found.add(STACK)
        elif isinstance(node, ast.Compare) and _compares_elements(node, counters):
            found.add(READS)
    if RANDOM in found and _draws_an_index(loop):
        found.add(SAMPLED)
    return next((code for code in PATTERNS if code in found), None)


def _inner_loops(loop: ast.For) -> list[ast.For]:
    return [node for node in ast.walk(loop) if isinstance(node, ast.For)]


def _counters(loop: ast.For) -> set[str]:
    """Return what counts the rounds: `i` of `range(n)` and of `enumerate(x)`."""
    iterated = loop.iter
    name = last_name(iterated.func) if isinstance(iterated, ast.Call) else None
    if name == "range":
        return _names_in(loop.target)
    if name == "enumerate" and isinstance(loop.target, ast.Tuple):
        return _names_in(loop.target.elts[0])
    return set()


def _grows(node: ast.Assign) -> bool:
    """`x = torch.cat([x, y])`, which copies all of `x` again."""
    target, value = node.targets[0], node.value
    name = last_name(target)
    if not isinstance(value, ast.Call) or name is None or not value.args:
        return False
    if last_name(value.func) == "append" and root_of(value.func) in ("np", "numpy"):
        return last_name(value.args[0]) == name
    if (last_name(value.func) or "") not in STACKS:
        return False
    parts = value.args[0]
    return isinstance(parts, (ast.List, ast.Tuple)) and any(
        ast.unparse(one) == ast.unparse(target) for one in parts.elts
    )


def _writes_element(node: ast.Assign | ast.AugAssign, names: set[str]) -> bool:
    """`x[i] = …` or `x[i, j] = …`, where a loop counts `i`; not the slot of a dictionary."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, ast.Subscript):
        return False
    used = {n.id for n in ast.walk(target.slice) if isinstance(n, ast.Name)}
    return bool(used & names)


def _is_read(call: ast.Call, names: set[str]) -> bool:
    """`x[i].item()`, `v.item()`, `float(x[i])`, `int(x[i, j])`, where a loop sets `i` or `v`."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "item" and not call.args:
        parts = list(ast.walk(func.value))
        if any(isinstance(part, ast.Call) for part in parts):
            return False  # it reads what was computed of many elements
        return bool({n.id for n in parts if isinstance(n, ast.Name)} & names)
    if not (isinstance(func, ast.Name) and func.id in ("int", "float", "bool")):
        return False
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Subscript):
        return False
    used = {n.id for n in ast.walk(call.args[0].slice) if isinstance(n, ast.Name)}
    return bool(used & names)


def _compares_elements(node: ast.Compare, names: set[str]) -> bool:
    """`x[i] == y[i]`: both sides are elements that the same loop names."""
    sides = [node.left, *node.comparators]
    return len(sides) == 2 and all(
        isinstance(side, ast.Subscript)
        and {n.id for n in ast.walk(side.slice) if isinstance(n, ast.Name)} & names
        for side in sides
    )


def _appends_to_stacked(call: ast.Call, body: Sequence[ast.stmt]) -> bool:
    """`xs.append(…)`, where the same function stacks `xs` or makes a tensor of it."""
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr in ("append", "extend")):
        return False
    name = ast.unparse(func.value)
    return any(
        isinstance(node, ast.Call)
        and (last_name(node.func) or "") in STACKS | MAKES
        and bool(node.args)
        and ast.unparse(node.args[0]) == name
        for statement in body
        for node in ast.walk(statement)
    )


def _draws_an_index(loop: ast.For) -> bool:
    """Return whether a drawn number is the index of what a round takes."""
    drawn = {
        name
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign) and any(is_draw(call) for call in _calls(node.value))
        for name in _names_in(node.targets[0])
    }
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            used = {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}
            if used & drawn or any(is_draw(call) for call in _calls(node.slice)):
                return True
    return False


# -- what is no loop over elements


def _is_other(loop: ast.For) -> bool:
    """Return whether the loop trains, goes over parts of a model, or has few rounds."""
    if any((last_name(call.func) or "") in _TRAINS for s in loop.body for call in _calls(s)) or any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(loop)
    ):
        return True
    return _goes_over_model(loop.iter) or _are_few(loop)


def _are_other(made: Comprehension) -> bool:
    """Return the same of a comprehension."""
    return any(_goes_over_model(one.iter) for one in made.generators) or _are_few(made)


def _goes_over_model(iterated: ast.expr) -> bool:
    text = ast.unparse(iterated).lower()
    return any(word in text for word in _OF_MODELS)


def _are_few(loop: ast.For | Comprehension) -> bool:
    """Return whether the rounds are known and few, those of inner loops included."""
    rounds = 1
    for one in _ranges(loop):
        number = _rounds(one)
        if number is None:
            return False
        rounds *= number
    return rounds <= FEW


def _ranges(loop: ast.For | Comprehension) -> Iterator[ast.expr]:
    """Yield what each of the loops goes over."""
    for node in ast.walk(loop):
        if isinstance(node, ast.For):
            yield node.iter
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            yield from (one.iter for one in node.generators)


def _rounds(iterated: ast.expr) -> int | None:
    """Return the number of rounds where it is written down."""
    if isinstance(iterated, (ast.List, ast.Tuple)):
        return len(iterated.elts)
    if not (isinstance(iterated, ast.Call) and last_name(iterated.func) == "range"):
        return None
    values = [one.value for one in iterated.args if isinstance(one, ast.Constant)]
    numbers = [one for one in values if isinstance(one, int)]
    return len(range(*numbers)) if len(numbers) == len(iterated.args) else None


def _depth(loop: ast.AST) -> int:
    """Return how many loops lie in each other, itself included."""
    inner = max((_depth(child) for child in ast.iter_child_nodes(loop)), default=0)
    own = len(loop.generators) if isinstance(loop, (ast.ListComp, ast.GeneratorExp)) else 0
    return inner + own + isinstance(loop, ast.For)


# -- small readers


def root_of(node: ast.expr) -> str | None:
    """Return `np` of `np.random.rand`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def is_draw(call: ast.Call) -> bool:
    """Return whether a call draws one random number, or a few, as far as the source shows."""
    func = call.func
    name = last_name(func) or ""
    if not isinstance(func, ast.Attribute) or name not in DRAWS or call.keywords:
        return False
    root = root_of(func) or last_name(func.value) or ""
    sizes = [one.value for one in call.args if isinstance(one, ast.Constant)]
    is_sized = name in _SIZED and any(isinstance(one, int) and one > FEW for one in sizes)
    if root == "torch" or is_sized:
        return False  # one call for all
    return root.strip("_").lower() in _GENERATORS or "rng" in root.lower()


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Call))


def _targets(made: Comprehension) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(made):
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            found |= {name for one in node.generators for name in _names_in(one.target)}
    return found


def _names_in(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
