"""What the names around a place are, where the source says so without a doubt.

In: a parsed file and a node in it. Out: whether an expression is a tensor, a flat one, a list of
indices. A name is known where it is bound once in its scope, to something that torch or Python's
`random` makes, to a slice of it, or to one of two such things by a condition. Whatever else may
happen to it (a parameter, a loop, `global`) makes it unknown.
"""

from __future__ import annotations

import ast

from steptime.measure.source.accumulation import last_name

_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_MAKERS = frozenset(
    (
        *("rand", "randn", "randint", "randperm", "zeros", "ones", "full", "arange", "linspace"),
        *("tensor", "from_numpy", "stack", "cat", "empty", "eye", "normal"),
    )
)
"""Functions of torch that return a tensor, whatever they are given."""

_FLAT = frozenset(("randperm", "arange", "linspace"))
_SAME = frozenset(("to", "float", "long", "double", "half", "clone", "contiguous", "cuda", "cpu"))
"""Methods of a tensor that return one of the same shape."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_NAMES = 10  # a name of a name of a name; also ends `x = x[1:]`


class Names:
    """The names that are visible at a node of a file."""

    def __init__(self, tree: ast.Module, node: ast.AST) -> None:
        self._tree = tree
        self._scope = _scopes_around(tree, node)[-1]
        self._hidden = _lambda_arguments(tree, node)

    def is_tensor(self, node: ast.expr) -> bool:
        """Return whether it is certainly a tensor of torch."""
        return self._is_tensor(node, self._scope, _MAX_NAMES)

    def _is_tensor(self, node: ast.expr | None, scope: _Scope | None, left: int) -> bool:
        """Return whether an expression is one in a scope; None for a scope that is not known."""
        if node is None or left == 0:
            return False
        if isinstance(node, ast.IfExp):
            return all(self._is_tensor(one, scope, left - 1) for one in (node.body, node.orelse))
        if isinstance(node, ast.Subscript):
            is_slice = isinstance(node.slice, ast.Slice)
            return is_slice and self._is_tensor(node.value, scope, left - 1)
        if isinstance(node, ast.Call):
            if _is_same(node):
                assert isinstance(node.func, ast.Attribute)
                return self._is_tensor(node.func.value, scope, left - 1)
            return _is_made(node)
        value, found = self._bound(node, scope)
        return self._is_tensor(value, found, left - 1)

    def is_flat(self, node: ast.expr) -> bool:
        """Return whether it is certainly a tensor with one dimension."""
        made = self._made_by(node)
        return made is not None and _is_flat(made)

    def are_indices(self, node: ast.expr) -> bool:
        """Return whether it is certainly a flat tensor or a list of whole numbers."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            node = node.value  # a part of them
        value = self._value_of(node)
        if value is None or not isinstance(value, ast.Call):
            return False
        source = ast.unparse(value.func)
        if source in ("random.sample", "random.choices") and value.args:
            first = value.args[0]
            return isinstance(first, ast.Call) and ast.unparse(first.func) == "range"
        is_whole = source in ("torch.randint", "torch.randperm", "torch.arange")
        numbers = [arg for arg in value.args if isinstance(arg, ast.Constant)]
        is_whole &= all(type(arg.value) is int for arg in numbers)
        # Indices on a device, or of another type, may index otherwise together than one by one.
        return is_whole and not _keywords(value) and _is_flat(value)

    def most_below_length(self, indices: ast.Name, data: str) -> dict[str, int] | None:
        """Return `n` of `torch.randint(len(data) - n, (b,))`, as names and a constant under "".

        Such indices are at least 0 and below `len(data) - n`. None for any others.
        """
        value, scope = self._bound(indices, self._scope)
        if scope is not self._scope:  # the names in it may be other ones here
            return None
        if not isinstance(value, ast.Call) or ast.unparse(value.func) != "torch.randint":
            return None
        if _keywords(value) or not _is_flat(value) or len(value.args) != 2:
            return None
        high = value.args[0]
        if not (isinstance(high, ast.BinOp) and isinstance(high.op, ast.Sub)):
            return None
        if ast.unparse(high.left) != f"len({data})":
            return None
        right = high.right
        if isinstance(right, ast.Constant) and type(right.value) is int:
            return {"": right.value}
        return {ast.unparse(right): 1} if isinstance(right, (ast.Name, ast.Attribute)) else None

    def num_uses(self, name: str) -> int:
        """Return how often a name stands in its scope, inner functions included."""
        nodes = ast.walk(self._scope)
        return sum(isinstance(node, ast.Name) and node.id == name for node in nodes)

    def is_used_outside(self, name: str, node: ast.AST) -> bool:
        """Return whether a name stands in the scope outside of a node."""
        inside = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))
        return self.num_uses(name) > inside

    def _made_by(self, node: ast.expr) -> ast.Call | None:
        """Return the call of torch that made a tensor; None where that is not certain."""
        value = self._value_of(node)
        while isinstance(value, ast.Call) and _is_same(value):
            assert isinstance(value.func, ast.Attribute)
            value = value.func.value
        if not isinstance(value, ast.Call):
            return None
        return value if _is_made(value) else None

    def _value_of(self, node: ast.expr) -> ast.expr | None:
        """Return the only value that a name or `self.name` is ever given."""
        return self._bound(node, self._scope)[0]

    def _bound(self, node: ast.expr, scope: _Scope | None) -> tuple[ast.expr | None, _Scope | None]:
        """Return the only value that a name or `self.name` is ever given, and its scope."""
        if isinstance(node, ast.Name) and scope is not None and node.id not in self._hidden:
            found = self._scope_with(node.id, scope)
            is_shared = any(
                isinstance(one, (ast.Global, ast.Nonlocal)) and node.id in one.names
                for one in ast.walk(self._tree)
            )
            return (None, None) if is_shared else (_only(_bindings(found, node.id)), found)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            is_self = node.value.id == "self"
            return (_only(_attribute_bindings(self._tree, node)) if is_self else None), None
        return (node if isinstance(node, ast.Call) else None), scope

    def _scope_with(self, name: str, scope: _Scope) -> _Scope:
        """Return the innermost function around a scope, itself included, that binds a name."""
        for one in reversed(_scopes_around(self._tree, scope)):
            if _bindings(one, name):
                return one
        return self._tree


def _only(bindings: list[ast.expr | None]) -> ast.expr | None:
    return bindings[0] if len(bindings) == 1 else None


def _scopes_around(tree: ast.Module, node: ast.AST) -> list[_Scope]:
    """Return the module and the functions that hold a node, outer ones first, itself included."""
    functions = [one for one in ast.walk(tree) if isinstance(one, _FUNCTIONS)]  # outer ones first
    return [tree, *(one for one in functions if any(part is node for part in ast.walk(one)))]


def _lambda_arguments(tree: ast.Module, node: ast.AST) -> set[str]:
    """Return the names of arguments of the lambdas that hold a node."""
    return {
        argument.arg
        for one in ast.walk(tree)
        if isinstance(one, ast.Lambda) and any(part is node for part in ast.walk(one))
        for argument in ast.walk(one.args)
        if isinstance(argument, ast.arg)
    }


def _bindings(scope: _Scope, name: str) -> list[ast.expr | None]:
    """Return the values that a name is given in a scope; None for one that is not a plain value."""
    found: list[ast.expr | None] = []
    if not isinstance(scope, ast.Module):
        arguments = scope.args
        named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        others = (one for one in (arguments.vararg, arguments.kwarg) if one is not None)
        found += [None for one in (*named, *others) if one.arg == name]
    values: dict[int, ast.expr] = {}
    for node in _own_nodes(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            values[id(node.targets[0])] = node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            values[id(node.target)] = node.value
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            found.append(values.get(id(node)))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found += [None for one in node.names if (one.asname or one.name) in (name, "*")]
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name == name:
            found.append(None)
    return found


def _own_nodes(scope: _Scope) -> list[ast.AST]:
    """Return the nodes of a scope, statements before what is in them, without inner functions'."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop(0)
        found.append(node)
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return found


def _attribute_bindings(tree: ast.Module, wanted: ast.Attribute) -> list[ast.expr | None]:
    """Return the values that `self.name`, or any object's attribute of that name, is given."""
    found: list[ast.expr | None] = []
    values: dict[int, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            values[id(node.targets[0])] = node.value
        is_same = isinstance(node, ast.Attribute) and node.attr == wanted.attr
        if is_same and isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.append(values.get(id(node)))
    return found


def _is_made(call: ast.Call) -> bool:
    """Return whether it is a call of torch that makes a tensor."""
    module, _, name = ast.unparse(call.func).rpartition(".")
    return module == "torch" and name in _MAKERS


def _is_same(call: ast.Call) -> bool:
    """Return whether it is a method that keeps the shape of a tensor: `x.to(device)`."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _SAME


def _is_flat(call: ast.Call) -> bool:
    """Return whether a call of torch, or of Python's `random`, makes one dimension."""
    name = last_name(call.func) or ""
    if name in _FLAT:
        return True
    sizes = [arg for arg in call.args if isinstance(arg, (ast.Tuple, ast.List))]
    if name in ("randint", "zeros", "ones", "full", "rand", "randn") and sizes:
        return len(sizes) == 1 and len(sizes[0].elts) == 1
    # A size may be a tuple by name; a number that is written down is none.
    is_number = len(call.args) == 1 and isinstance(call.args[0], ast.Constant)
    return name in ("zeros", "ones", "rand", "randn") and is_number


def _keywords(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}
