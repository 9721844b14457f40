"""Decides whether a loss is a mean over its batch that nothing divides or multiplies.

In: the expression on which backward is called, and the scopes in which its names are assigned.
Out: a yes only where every source of the loss is understood; in doubt it is a no.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from enum import Enum

_SAME_VALUE = {"float", "double", "half", "to", "cuda", "cpu", "squeeze", "contiguous", "clone"}
_FUNCTIONS = {
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
    "triplet_margin_loss",
}
"""Losses of torch.nn.functional whose default reduction is the mean over all elements."""

_MODULES = {
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HuberLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "SmoothL1Loss",
    "TripletMarginLoss",
}
_SCALING = {"div", "div_", "divide", "divide_", "mul", "mul_", "multiply", "multiply_", "copy_"}
_MODELS = ("model", "net", "module", "gpt", "bert", "transformer")
"""Words in the names of models that may return their own loss."""


class _Kind(Enum):
    MEAN = "mean"  # a mean over the batch, unchanged
    NOTHING = "nothing"  # no information: a constant, or the name itself
    OTHER = "other"  # scaled, summed, or not understood


class LossReader:
    """Reads the losses of one loop; `number` is the name of the number of micro-batches."""

    def __init__(
        self,
        tree: ast.Module,
        *,
        scope: Sequence[ast.stmt],
        body: Sequence[ast.stmt],
        number: str | None,
    ) -> None:
        self._tree = tree
        self._scope = scope
        self._body = body
        self._number = number

    def is_undivided(self, loss: ast.expr) -> bool:
        """Return whether the loss is certainly a mean that is used unchanged."""
        return not self._is_divided_elsewhere() and self._kind(loss, ()) is _Kind.MEAN

    def _is_divided_elsewhere(self) -> bool:
        """Return whether gradients are scaled by hand, or anything is divided by the number.

        `len(loader) / number` only counts updates.
        """
        return any(self._divides(node) for node in ast.walk(self._tree))

    def _divides(self, node: ast.AST) -> bool:
        if isinstance(node, ast.AugAssign):
            return _has_name(node.target, "grad")
        if isinstance(node, ast.Call):
            name = _name(node.func) or ""
            is_scaling = name in _SCALING and _has_name(node.func, "grad")
            return is_scaling or (name.startswith("register_") and name.endswith("hook"))
        if isinstance(node, ast.BinOp) and self._number and isinstance(node.op, ast.Div):
            is_length = any(_name(call.func) == "len" for call in _calls(node.left))
            if _has_name(node.right, self._number) and not is_length:
                return True
        return isinstance(node, ast.BinOp) and _has_name(node.left, "grad")

    def _kind(self, node: ast.expr, seen: tuple[str, ...]) -> _Kind:
        if self._number and _has_name(node, self._number):
            return _Kind.OTHER
        if isinstance(node, ast.Constant):
            return _Kind.NOTHING
        if isinstance(node, ast.Name):
            return self._name_kind(node.id, seen)
        if isinstance(node, ast.UnaryOp):
            return self._kind(node.operand, seen)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return _together([self._kind(node.left, seen), self._kind(node.right, seen)])
        if isinstance(node, ast.IfExp):
            return _together([self._kind(node.body, seen), self._kind(node.orelse, seen)])
        if isinstance(node, ast.Call):
            return self._call_kind(node, seen)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self._part_kind(node, seen)
        return _Kind.OTHER

    def _name_kind(self, name: str, seen: tuple[str, ...]) -> _Kind:
        """Return the kind of all that is assigned to a name in the loop, else around it."""
        if name in seen:
            return _Kind.NOTHING
        if self._is_scaled(name):
            return _Kind.OTHER
        for body in (self._body, self._scope):
            kinds = [
                self._assigned_kind(target, value, (*seen, name))
                for target, value in _assignments(body)
                if _holds(target, name)
            ]
            if kinds:
                return _together(kinds)
        return _Kind.OTHER

    def _assigned_kind(
        self, target: ast.expr, value: ast.expr | None, seen: tuple[str, ...]
    ) -> _Kind:
        if value is None:
            return _Kind.OTHER
        if isinstance(target, (ast.Tuple, ast.List)):
            is_loss = "loss" in seen[-1].lower() and _is_model(value)
            return _Kind.MEAN if is_loss else _Kind.OTHER
        return self._kind(value, seen)

    def _is_scaled(self, name: str) -> bool:
        """Return whether the loop multiplies or divides the value of this name."""
        for target, value in _assignments(self._body):
            is_product = isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div))
            if _holds(target, name) and (value is None or is_product):
                return True
        calls = (call for node in self._body for call in _calls(node))
        owners = (
            c.func.value
            for c in calls
            if isinstance(c.func, ast.Attribute) and c.func.attr in _SCALING
        )
        return any(_holds(owner, name) for owner in owners)

    def _part_kind(self, node: ast.Attribute | ast.Subscript, seen: tuple[str, ...]) -> _Kind:
        """`outputs.loss`, `outputs["loss"]`, `model(x)[0]`: the model's own loss."""
        if isinstance(node, ast.Attribute) and node.attr != "loss":
            return _Kind.OTHER
        owner = node.value
        if isinstance(owner, ast.Name) and owner.id not in seen:
            values = [v for t, v in _assignments(self._body) if _holds(t, owner.id)]
            is_ours = values and all(value is not None and _is_model(value) for value in values)
            return _Kind.MEAN if is_ours else _Kind.OTHER
        return _Kind.MEAN if _is_model(owner) else _Kind.OTHER

    def _call_kind(self, call: ast.Call, seen: tuple[str, ...]) -> _Kind:
        function, name = call.func, _name(call.func) or ""
        if _reduction(call) not in (None, "mean"):
            return _Kind.OTHER
        if isinstance(function, ast.Attribute):
            owner = function.value
            if name == "mean":
                parts = list(ast.walk(owner))
                names = {part.id for part in parts if isinstance(part, ast.Name)}
                is_scaled = any(isinstance(part, ast.Div) for part in parts)
                is_scaled = is_scaled or any(map(self._is_scaled, names))
                return _Kind.OTHER if is_scaled else _Kind.MEAN
            if name in _SAME_VALUE:
                return self._kind(owner, seen)
            if name == "scale" and "scaler" in (_name(owner) or "").lower() and call.args:
                return self._kind(call.args[0], seen)
            if name in _FUNCTIONS and _name(owner) in ("F", "functional"):
                return _Kind.MEAN
        if name in _FUNCTIONS and isinstance(function, ast.Name):
            return _Kind.MEAN if self._is_from_torch(name) else _Kind.OTHER
        return _Kind.MEAN if self._is_loss_module(name) else _Kind.OTHER

    def _is_from_torch(self, name: str) -> bool:
        """Return whether the name is imported unchanged from torch.nn or its functional."""
        return any(
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("torch.nn")
            and any(alias.name == name and alias.asname in (None, name) for alias in node.names)
            for node in ast.walk(self._tree)
        )

    def _is_loss_module(self, name: str) -> bool:
        """Return whether the file assigns only torch's losses, as means, to the name."""
        made = [value for target, value in _assignments([self._tree]) if _name(target) == name]
        return bool(made) and all(value is not None and self._makes_loss(value) for value in made)

    def _makes_loss(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call) or _reduction(value) not in (None, "mean"):
            return False
        if isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
            return self._makes_loss(value.func.value)
        name = _name(value.func) or ""
        if isinstance(value.func, ast.Attribute):
            return name in _MODULES and _name(value.func.value) == "nn"
        return name in _MODULES and self._is_from_torch(name)


def _together(kinds: list[_Kind]) -> _Kind:
    if _Kind.OTHER in kinds:
        return _Kind.OTHER
    return _Kind.MEAN if _Kind.MEAN in kinds else _Kind.NOTHING


def _reduction(call: ast.Call) -> object:
    """Return the word for `reduction`; complicated values and the old flags count as no mean."""
    for keyword in call.keywords:
        if keyword.arg == "reduction":
            value = keyword.value
            return value.value if isinstance(value, ast.Constant) else "unknown"
        if keyword.arg in ("size_average", "reduce", None):
            return "unknown"
    return None


def _is_model(node: ast.expr) -> bool:
    """Return whether an expression calls something that is named like a model."""
    if not isinstance(node, ast.Call):
        return False
    name = (_name(node.func) or "").lower()
    return any(word in name for word in _MODELS)


def _assignments(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield the targets and values in these statements; None where the value is scaled in place."""
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Assign):
                yield from ((target, node.value) for target in node.targets)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
                yield node.target, node.value
            elif isinstance(node, ast.AugAssign):
                is_sum = isinstance(node.op, (ast.Add, ast.Sub))
                yield node.target, node.value if is_sum else None


def _holds(target: ast.expr, name: str) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_holds(part, name) for part in target.elts)
    return isinstance(target, ast.Name) and target.id == name


def _has_name(node: ast.AST, name: str) -> bool:
    """Return whether a name or an attribute of that name is in the tree."""
    return any(
        (isinstance(part, ast.Name) and part.id == name)
        or (isinstance(part, ast.Attribute) and part.attr == name)
        for part in ast.walk(node)
    )


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Call))


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None
