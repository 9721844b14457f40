"""Writes the edit of a loop over elements where one call certainly does the same.

In: a parsed file and a `Loop` in it. Out: an `Edit`, or None: in doubt there is none. Certain means
that every name is bound once, to something whose kind is known: a tensor made by torch, indices
that torch or Python drew. An edit keeps every number, or says that random numbers come from another
generator; it never guesses a type, a shape or a sign.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.measure.source.accumulation import last_name
from steptime.measure.source.python_loops import Comprehension, Loop, list_of, root_of
from steptime.measure.source.source_names import Names

EXACT, OTHER_RANDOM = "same_numbers", "other_random_numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replaces a part of a file.

    Attributes:
        start, end: the part, as line (from 1) and column (from 0, in bytes of UTF-8).
        text: what takes its place.
        keeps: `same_numbers`, or `other_random_numbers`: the same distribution, drawn by another
            generator.
    """

    start: tuple[int, int]
    end: tuple[int, int]
    text: str
    keeps: str


def edit_of(tree: ast.Module, loop: Loop) -> Edit | None:
    """Return the edit of a loop; None where none is certain."""
    node = loop.node
    names = Names(tree, node)
    if isinstance(node, ast.Call):
        found = _of_list(node, names)
        return None if found is None else _replace(node, node, *found)
    if isinstance(node, ast.ListComp):
        read = _of_reads(node, names)
        return None if read is None else _replace(node, node, read, EXACT)
    return _of_appends(tree, node, names) if isinstance(node, ast.For) else None


def _replace(first: ast.stmt | ast.expr, last: ast.stmt | ast.expr, text: str, keeps: str) -> Edit:
    return Edit(
        start=(first.lineno, first.col_offset),
        end=(last.end_lineno or last.lineno, last.end_col_offset or 0),
        text=text,
        keeps=keeps,
    )


def _of_list(call: ast.Call, names: Names) -> tuple[str, str] | None:
    """Return what a call on a comprehension becomes, and what that keeps."""
    made = list_of(call)
    name, root = last_name(call.func) or "", root_of(call.func)
    if made is None or len(call.args) > 1:
        return None
    if name == "stack" and root == "torch" and not call.keywords:
        text = _of_stack(made, names)
        return None if text is None else (text, EXACT)
    if name in ("tensor", "array") and not call.keywords:
        return _of_draws(made, root or "")
    return None


# -- one number after another


def shape(size: str) -> str:
    """Return the tuple of sizes that are separated by commas."""
    return f"({size})" if "," in size else f"({size},)"


_TORCH_DRAWS = {
    "random": lambda size, a: f"torch.rand({size})" if not a else None,
    "uniform": lambda size, a: (
        f"{a[0]} + ({a[1]} - {a[0]}) * torch.rand({size})" if len(a) == 2 else None
    ),
    "gauss": lambda size, a: (
        f"torch.normal({a[0]}, {a[1]}, {shape(size)})" if len(a) == 2 else None
    ),
    "randrange": lambda size, a: (
        f"torch.randint({', '.join(a)}, {shape(size)})" if len(a) in (1, 2) else None
    ),
    "randint": lambda size, a: (
        f"torch.randint({a[0]}, {_plus_one(a[1])}, {shape(size)})" if len(a) == 2 else None
    ),
}
"""What Python's `random` draws one by one, drawn at once by torch; `a` are the arguments."""

_NUMPY_DRAWS = {
    "rand": lambda size, a: f"np.random.rand({size})" if not a else None,
    "random": lambda size, a: f"np.random.random({shape(size)})" if not a else None,
    "randn": lambda size, a: f"np.random.randn({size})" if not a else None,
    "uniform": lambda size, a: (
        f"np.random.uniform({a[0]}, {a[1]}, {shape(size)})" if len(a) == 2 else None
    ),
    "normal": lambda size, a: (
        f"np.random.normal({a[0]}, {a[1]}, {shape(size)})" if len(a) == 2 else None
    ),
}
"""The same of NumPy's own generator, which draws the same numbers at once."""


def _of_draws(made: Comprehension, root: str) -> tuple[str, str] | None:
    """`torch.tensor([random.random() for _ in range(n)])`, in one or two dimensions."""
    sizes, elt = [], made
    while isinstance(elt, (ast.ListComp, ast.GeneratorExp)):
        size = _count_of(elt)
        if size is None or (isinstance(elt, ast.GeneratorExp) and root):
            return None
        sizes.append(size)
        elt = elt.elt  # type: ignore[assignment]
    if len(sizes) > 2 or not isinstance(elt, ast.Call) or elt.keywords:
        return None
    call: ast.Call = elt
    if not all(isinstance(arg, (ast.Name, ast.Attribute)) or _is_number(arg) for arg in call.args):
        return None
    arguments, size = [ast.unparse(arg) for arg in call.args], ", ".join(sizes)
    source, name = ast.unparse(call.func).rpartition(".")[::2]
    if source == "random" and name in _TORCH_DRAWS and root == "torch":
        text = _TORCH_DRAWS[name](size, arguments)
        return None if text is None else (text, OTHER_RANDOM)
    if source == "np.random" and name in _NUMPY_DRAWS and root in ("np", "torch"):
        text = _NUMPY_DRAWS[name](size, arguments)
        if text is not None and root == "torch":
            text = f"torch.tensor({text}, dtype=torch.get_default_dtype())"
        return None if text is None else (text, EXACT)
    return None


def _count_of(made: Comprehension) -> str | None:
    """Return `n` of `for _ in range(n)`, where nothing else depends on the loop."""
    if len(made.generators) != 1 or made.generators[0].ifs or made.generators[0].is_async:
        return None
    one = made.generators[0]
    is_range = isinstance(one.iter, ast.Call) and ast.unparse(one.iter.func) == "range"
    if not is_range or not isinstance(one.target, ast.Name):
        return None
    assert isinstance(one.iter, ast.Call)
    names = (n for n in ast.walk(made.elt) if isinstance(n, ast.Name))
    used = {n.id for n in names if isinstance(n.ctx, ast.Load)}
    if len(one.iter.args) != 1 or one.iter.keywords or one.target.id in used:
        return None
    count = one.iter.args[0]
    is_plain = isinstance(count, (ast.Name, ast.Attribute)) or _is_number(count) or _is_len(count)
    return ast.unparse(count) if is_plain else None


def _is_len(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "len"


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _plus_one(text: str) -> str:
    return str(int(text) + 1) if text.lstrip("-").isdigit() else f"{text} + 1"


# -- one sample after another


def _of_stack(made: Comprehension, names: Names) -> str | None:
    """`torch.stack([data[i] for i in indices])`, and slices `data[i : i + n]`."""
    one, elt = made.generators[0], made.elt
    if len(made.generators) != 1 or one.ifs or one.is_async or not isinstance(one.target, ast.Name):
        return None
    if not (isinstance(elt, ast.Subscript) and isinstance(elt.value, (ast.Name, ast.Attribute))):
        return None  # what is computed in each round may be another one each time
    data, counter = ast.unparse(elt.value), one.target.id
    if data == counter or not names.is_tensor(elt.value):
        return None
    if isinstance(elt.slice, ast.Name) and elt.slice.id == counter and names.are_indices(one.iter):
        return f"{data}[{ast.unparse(one.iter)}]"
    if isinstance(elt.slice, ast.Slice) and isinstance(one.iter, ast.Name):
        return _of_slices(elt.slice, counter, data, one.iter, names)
    return None


def _of_slices(
    part: ast.Slice, counter: str, data: str, indices: ast.Name, names: Names
) -> str | None:
    """`data[i + a : i + a + n]`, where the indices end early enough for every slice to be whole."""
    low, high = _sum_of(part.lower), _sum_of(part.upper)
    most = names.most_below_length(indices, data)
    if part.step is not None or low is None or high is None or most is None:
        return None
    if low.get(counter) != 1 or high.get(counter) != 1:
        return None
    offset = {name: n for name, n in low.items() if name != counter and n}
    length = _minus(high, low)
    beyond = _minus({**{name: n for name, n in high.items() if name != counter}}, most)
    # The largest index is `len(data) - most - 1`: its slice ends at the data's end, or before it.
    if set(beyond) - {""} or beyond.get("", 0) > 1 or any(n != 1 for n in _named(length).values()):
        return None
    starts = f"{indices.id} + {_text_of(offset)}" if offset else indices.id
    # A view of all windows, which costs nothing, and one read of those that begin there.
    return f"{data}.unfold(0, {_text_of(length)}, 1).movedim(-1, 1)[{starts}]" if length else None


def _sum_of(node: ast.expr | None) -> dict[str, int] | None:
    """Return names and a constant (under "") that are added; None for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return {"": node.value}
    if isinstance(node, (ast.Name, ast.Attribute)):
        return {ast.unparse(node): 1}
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
        return None
    left, right = _sum_of(node.left), _sum_of(node.right)
    if left is None or right is None:
        return None
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _minus(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """Return the difference of two sums, without what is zero."""
    found = {name: a.get(name, 0) - b.get(name, 0) for name in {**a, **b}}
    return {name: n for name, n in found.items() if n}


def _named(one: dict[str, int]) -> dict[str, int]:
    return {name: n for name, n in one.items() if name}


def _text_of(one: dict[str, int]) -> str:
    parts = sorted(_named(one)) + ([str(one[""])] if one.get("") else [])
    return " + ".join(parts)


# -- reads and appends


def _of_reads(made: ast.ListComp, names: Names) -> str | None:
    """`[v.item() for v in x]` of a tensor with one dimension."""
    one = made.generators[0]
    if len(made.generators) != 1 or one.ifs or not isinstance(one.target, ast.Name):
        return None
    is_item = ast.unparse(made.elt) == f"{one.target.id}.item()"
    return f"{ast.unparse(one.iter)}.tolist()" if is_item and names.is_flat(one.iter) else None


def _of_appends(tree: ast.Module, loop: ast.For, names: Names) -> Edit | None:
    """`xs = []`, a loop that appends, and `torch.stack(xs)`, one directly after another."""
    block = _block_with(tree, loop)
    place = block.index(loop)
    if not 0 < place < len(block) - 1 or loop.orelse or len(loop.body) != 1:
        return None
    before, after, appended = block[place - 1], block[place + 1], loop.body[0]
    if not (isinstance(before, ast.Assign) and ast.unparse(before.value) in ("[]", "list()")):
        return None
    if len(before.targets) != 1 or not isinstance(before.targets[0], ast.Name):
        return None
    name = before.targets[0].id
    if not (isinstance(appended, ast.Expr) and isinstance(appended.value, ast.Call)):
        return None
    call = appended.value
    if ast.unparse(call.func) != f"{name}.append" or len(call.args) != 1:
        return None
    counters = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    if names.num_uses(name) != 3 or any(names.is_used_outside(one, loop) for one in counters):
        return None
    made = ast.ListComp(
        elt=call.args[0],
        generators=[
            ast.comprehension(target=loop.target, iter=loop.iter, ifs=[], is_async=0),
        ],
    )
    return _of_use(before, after, name, made, names)


def _of_use(
    before: ast.stmt, after: ast.stmt, name: str, made: ast.ListComp, names: Names
) -> Edit | None:
    """Return the edit of the statement that uses the list, which takes the place of all three."""
    if not isinstance(after, ast.Assign) or not isinstance(after.value, ast.Call):
        return None
    call = copy.copy(after.value)
    if not (call.args and ast.unparse(call.args[0]) == name):
        return None
    call.args = [made, *call.args[1:]]
    found = _of_list(call, names)
    if found is None:
        return None
    targets = " = ".join(ast.unparse(target) for target in after.targets)
    return _replace(before, after, f"{targets} = {found[0]}", found[1])


def _block_with(tree: ast.Module, statement: ast.stmt) -> Sequence[ast.stmt]:
    """Return the list of statements that a statement is in."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and statement in block:
                return block
    raise ValueError("`statement` must be in `tree`")
