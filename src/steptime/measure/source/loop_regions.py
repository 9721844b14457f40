"""Finds what may have run between two markers, and whether all of it can be read.

In: a parsed file and the lines of a site. Out: the parts of the code that lie between these lines,
with the functions of the same file that they call. A `Region` is plain where each call in it is
known: another function, of a library say, may have taken the time as well.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from steptime.measure.source.accumulation import last_name
from steptime.measure.source.live_branches import live
from steptime.measure.source.python_loops import Loop, find_loops, root_of

_MAX_DEPTH = 4
"""Calls of calls that are followed."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_KNOWN_ROOTS = frozenset(
    (
        *("torch", "np", "numpy", "random", "math", "itertools", "F", "operator", "bisect"),
        *("collections", "functools", "heapq", "sys", "warnings"),
    )
)
_SLOW = frozenset(("load", "save", "compile", "loadtxt", "genfromtxt", "memmap", "fromfile"))
_SLOW_BUILTINS = frozenset(("open", "input", "exec", "eval", "compile", "__import__"))
_KNOWN_METHODS = frozenset(
    (
        *("append", "extend", "insert", "pop", "popleft", "appendleft", "add", "clear", "remove"),
        *("get", "items", "keys", "values", "update", "copy", "setdefault", "sort", "index"),
        *("to", "cuda", "cpu", "item", "tolist", "numpy", "detach", "clone", "contiguous"),
        *("view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "t"),
        *("size", "dim", "numel", "float", "long", "int", "half", "double", "bool", "type"),
        *("astype", "sum", "mean", "max", "min", "argmax", "argmin", "abs", "clamp", "sqrt"),
        *("round", "floor", "ceil", "exp", "log", "unique", "replace"),
        *("expand", "repeat", "eq", "ne", "lt", "gt", "random", "rand", "randn", "randint"),
        *("randrange", "uniform", "normal", "gauss", "choice", "choices", "sample", "shuffle"),
        *("integers", "permutation", "fill_", "zero_", "copy_", "mul_", "add_", "div_", "sub_"),
        *("zero_grad", "train", "eval", "parameters", "named_parameters", "requires_grad_"),
        *("format", "join", "split", "strip", "lower", "startswith", "endswith", "count"),
        *("standard_normal", "manual_seed", "seed", "set_to_none", "pin_memory", "chunk"),
        *("get_last_lr", "set_postfix", "set_description", "perf_counter", "monotonic", "time"),
    )
)
"""Methods that take little beside a loop over elements, whatever object has them."""

_STEPPERS = ("sched", "opt", "scaler", "lr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What may have run at a site.

    Attributes:
        loops: the loops over elements, the deepest first.
        is_plain: whether nothing else there can have taken much time, as far as the source shows.
    """

    loops: tuple[Loop, ...]
    is_plain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A parsed file with its functions by name; methods stand under their own name.

    `imported` are the functions of the user's modules that it imports, each with its file;
    `aliases` are the names that it gives them.
    """

    tree: ast.Module
    functions: Mapping[str, Sequence[_Function]] = field(default_factory=dict)
    classes: Mapping[str, ast.ClassDef] = field(default_factory=dict)
    imported: Mapping[str, Sequence[tuple[_Function, str]]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> tuple[_Function, str] | None:
        """Return the only function of a name with its file; None where there are several."""
        own = [(one, "") for one in self.functions.get(name, ())]
        found = own or list(self.imported.get(name, ()))
        return found[0] if len(found) == 1 else None  # else nobody knows which one


def make_program(tree: ast.Module) -> Program:
    """Return a file with its functions and classes."""
    functions: dict[str, list[_Function]] = {}
    classes: dict[str, ast.ClassDef] = {}
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            aliases |= {one.asname: one.name for one in node.names if one.asname}
    return Program(tree=tree, functions=functions, classes=classes, aliases=aliases)


def with_imports(program: Program, modules: Mapping[str, Program]) -> Program:
    """Return a file with the functions of modules that it imports, by their files."""
    imported: dict[str, list[tuple[_Function, str]]] = {}
    for file, module in modules.items():
        for name, functions in module.functions.items():
            imported.setdefault(name, []).extend((one, file) for one in functions)
    return replace(program, imported=imported)


def region_between(program: Program, line: int, end_line: int) -> Region:
    """Return what lies between two markers; a first line above the last is around a loop.

    The calls on the first and the last line made the markers, so they belong to other phases.
    """
    body = _innermost_body(program, line, end_line)
    edges = {line, end_line}
    around = _element_loop_with(body, min(line, end_line), max(line, end_line))
    if around is not None:
        return _RegionReader(program, edges).read([around], body)
    if line <= end_line:
        inside = [(line, end_line)]
    else:
        loop = _loop_with(body, end_line, line)
        if loop is None:
            return Region(loops=(), is_plain=False)
        inside = [(loop.lineno, end_line), (line, loop.end_lineno or line)]
    nodes = [node for first, last in inside for node in _between(body, first, last)]
    return _RegionReader(program, edges).read(nodes, body)


def region_of_functions(
    program: Program,
    functions: Sequence[_Function],
    words: Mapping[str, Mapping[str, object]] | None = None,
) -> Region:
    """Return what lies in whole functions.

    Args:
        program: the file that they are in.
        functions: of it.
        words: the attributes of objects, as far as they were seen, by the name of their class.
            Branches that they rule out are not read.
    """
    parts = []
    for one in functions:
        owner = next((c for c in program.classes.values() if one in c.body), None)
        known = (words or {}).get(owner.name, {}) if owner is not None else {}
        members = {node for node in owner.body if is_function(node)} if owner is not None else set()
        reader = _RegionReader(program, set(), known, members)
        parts.append(reader.read(reader.live(one), one.body))
    loops = [loop for part in parts for loop in part.loops]
    is_plain = bool(parts) and all(part.is_plain for part in parts)
    return Region(loops=tuple(sorted(loops, key=_deepest)), is_plain=is_plain)


def _deepest(loop: Loop) -> tuple[int, int]:
    return -loop.depth, loop.node.lineno


def methods(program: Program, name: str) -> list[_Function]:
    """Return the methods of this name of all classes of a file."""
    return [
        node
        for one in program.classes.values()
        for node in one.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ]


def collate_functions(program: Program) -> list[_Function]:
    """Return the functions that the file hands to a loader as `collate_fn`."""
    names = {
        last_name(keyword.value)
        for node in ast.walk(program.tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "collate_fn"
    }
    return [one for name in names if name for one in program.functions.get(name, ())]


def is_function(node: ast.AST) -> TypeGuard[_Function]:
    """Return whether a statement defines a function."""
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


# -- lines


def _innermost_body(program: Program, line: int, end_line: int) -> list[ast.stmt]:
    """Return the body of the innermost function that holds both lines."""
    low, high = min(line, end_line), max(line, end_line)
    around = [
        node
        for functions in program.functions.values()
        for node in functions
        if node.lineno <= low and high <= _end(node)
    ]
    inner = max(around, key=lambda node: node.lineno, default=None)
    return program.tree.body if inner is None else inner.body


def _loop_with(body: Sequence[ast.stmt], line: int, end_line: int) -> ast.stmt | None:
    """Return the innermost loop of a function that holds both lines."""
    found = None
    for statement in body:
        for node in _own_statements(statement):
            is_loop = isinstance(node, (ast.For, ast.While, ast.AsyncFor))
            if is_loop and node.lineno <= line and end_line <= _end(node):
                found = node
    return found


def _element_loop_with(body: Sequence[ast.stmt], line: int, end_line: int) -> ast.stmt | None:
    """Return the outermost loop over elements that holds both lines: markers lie inside of it."""
    for statement in body:
        for node in _own_statements(statement):
            if isinstance(node, ast.For) and node.lineno <= line <= end_line <= _end(node):
                loops = find_loops([node], body)
                if loops and loops[0].node is node:
                    return node
    return None


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _own_statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield a statement and those in it, outer ones first, without those of inner functions."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for child in _children(node):
        yield from _own_statements(child)


def _children(node: ast.stmt) -> Iterator[ast.stmt]:
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(node, name, None) or ()
    for name in ("handlers", "cases"):
        for part in getattr(node, name, None) or ():
            yield from part.body


def _between(body: Sequence[ast.stmt], first: int, last: int) -> Iterator[ast.AST]:
    """Yield what lies in these lines: whole statements, and the heads of those that stick out."""
    for node in body:
        end = _end(node)
        if end < first or last < node.lineno:
            continue
        is_compound = any(True for _ in _children(node))
        if not is_compound or (first <= node.lineno and end <= last):
            yield node
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if first <= node.lineno <= last:
            yield from _head(node)
        yield from _between(list(_children(node)), first, last)


def _head(node: ast.stmt) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.expr, ast.withitem)):
            yield child


# -- calls


class _RegionReader:
    """Reads parts of a function and what they call."""

    def __init__(
        self,
        program: Program,
        edges: set[int],
        words: Mapping[str, object] | None = None,
        members: Collection[_Function] = (),
    ) -> None:
        self._program = program
        self._edges = edges
        self._words = words or {}
        self._members = members
        self._seen: set[_Function] = set()
        self._loops: list[Loop] = []
        self._is_plain = True

    def read(self, nodes: Sequence[ast.AST], body: Sequence[ast.stmt]) -> Region:
        self._read(nodes, body, 0, "")
        return Region(loops=tuple(sorted(self._loops, key=_deepest)), is_plain=self._is_plain)

    def live(self, function: _Function) -> Sequence[ast.AST]:
        """Return the body of a function without branches that attributes of its object rule out."""
        is_member = function in self._members and bool(self._words)
        return list(live(function.body, self._words)) if is_member else function.body

    def _read(
        self, nodes: Sequence[ast.AST], body: Sequence[ast.stmt], depth: int, file: str
    ) -> None:
        self._loops += [replace(loop, file=file) for loop in find_loops(nodes, body)]
        for node in nodes:
            is_edge = depth == 0 and self._is_at_edge(node)
            for call in _calls_made(node):
                found = self._function_of(call)
                if found is not None and depth < _MAX_DEPTH:
                    function, place = found
                    self._follow(function, depth, place or file, is_edge=is_edge)
                elif not (is_edge or _is_known(call)):
                    self._is_plain = False

    def _follow(self, function: _Function, depth: int, file: str, *, is_edge: bool) -> None:
        """Read a function that is called; at the edge it may be the one that holds the marker."""
        if function in self._seen:
            return
        self._seen.add(function)
        if not is_edge:
            self._read(self.live(function), function.body, depth + 1, file)
            return
        inner = _RegionReader(self._program, set())
        inner._read(function.body, function.body, 0, file)
        self._loops += inner._loops if inner._is_plain else []

    def _is_at_edge(self, node: ast.AST) -> bool:
        """Return whether a line of a marker lies in it, and it is no statement with others in it.

        The call at a marker is another phase's.
        """
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None) or 0
        is_compound = isinstance(node, ast.stmt) and any(True for _ in _children(node))
        return not is_compound and any(first <= line <= last for line in self._edges)

    def _function_of(self, call: ast.Call) -> tuple[_Function, str] | None:
        """Return the user's function that a call reaches, where its name says which, and its file.

        The file is empty for the one that is searched.
        """
        name = last_name(call.func) or ""
        name = self._program.aliases.get(name, name)
        if isinstance(call.func, ast.Name):
            made = self._program.classes.get(name)
            if made is not None:
                return next(((m, "") for m in made.body if _is_init(m)), None)
        elif not isinstance(call.func, ast.Attribute) or root_of(call.func) in _KNOWN_ROOTS:
            return None
        found = self._program.find(name)
        is_own = isinstance(call.func, ast.Attribute) and root_of(call.func) == "self"
        if found is not None and found[1] and is_own and not _is_method(found[0]):
            return None  # an attribute that is called, named like a function of another module
        return found


def _is_method(function: _Function) -> bool:
    return [one.arg for one in function.args.args[:1]] == ["self"]


def _is_init(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


def _calls_made(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a part, without those of inner functions and of rare branches.

    A branch is rare where its condition counts: `if step % 100 == 0`.
    """
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, ast.Raise) or (isinstance(node, ast.If) and _counts(node.test)):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls_made(child)


def _counts(test: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test))


def _is_known(call: ast.Call) -> bool:
    """Return whether a call takes little beside a loop over elements."""
    name, func = last_name(call.func) or "", call.func
    if isinstance(func, ast.Name):
        return hasattr(builtins, name) and name not in _SLOW_BUILTINS
    if not isinstance(func, ast.Attribute):
        return False
    if root_of(func) in _KNOWN_ROOTS:
        return name not in _SLOW
    if name == "step":
        return any(word in (last_name(func.value) or "").lower() for word in _STEPPERS)
    return name in _KNOWN_METHODS
