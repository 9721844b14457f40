"""Finds the statement after which a model has the name by which it is called in training.

In: the call of a model and its callers. Out: a statement, and the model's expression there. A
parameter is followed to the call that gave it; `self.model` to its one assignment in the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from steptime.patch.ground import FoundSite, Ground
from steptime.patch.source_file import SourceFile, Statement, last_word
from steptime.patch.values import CannotPlaceError
from steptime.tune.values.site_values import SourcePlace

_COMPOUND = cst.BaseCompoundStatement


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a model has got its name: behind `statement`, `expression` is the model."""

    source: SourceFile
    statement: Statement
    expression: str


def find_binding(ground: Ground, spot: FoundSite) -> Binding:
    """The last statement that gives the model of a call its name.

    Raises:
        CannotPlaceError: it is not clear which one that is.
    """
    return _follow(ground, spot.source, spot.call, spot.call.func, spot.site.callers)


def _follow(
    ground: Ground,
    source: SourceFile,
    use: cst.Call,
    model: cst.BaseExpression,
    callers: Sequence[SourcePlace],
) -> Binding:
    if isinstance(model, cst.Attribute) and isinstance(model.value, cst.Name):
        return _find_attribute(source, use, model)
    if not isinstance(model, cst.Name):
        raise CannotPlaceError(f"The model in {source.code(use)} has no name of its own.")
    name = model.value
    function = source.function_of(use)
    while function is not None:
        assigned = _assignments(source, function, name)
        if assigned:
            return Binding(source, _behind(ground, source, assigned, use, callers), name)
        if name in _parameters(function):
            if source.function_of(use) is not function or not callers:
                raise _unclear(source, name)
            return _follow_parameter(ground, function, name, callers)
        function = source.function_of(function)
    assigned = _assignments(source, None, name)
    if assigned:
        return Binding(source, _behind(ground, source, assigned, use, callers), name)
    for cell in ground.cells_before(source):
        assigned = _assignments(cell, None, name)
        if assigned:
            return Binding(cell, _outermost(cell, assigned[-1]), name)
    raise _unclear(source, name)


def _outermost(source: SourceFile, statement: Statement) -> Statement:
    """The statement of the module that holds another one: behind it, the cell ends."""
    around = [one for one in source.ancestors(statement) if isinstance(one, _COMPOUND)]
    return around[-1] if around else statement


def _follow_parameter(
    ground: Ground, function: cst.FunctionDef, name: str, callers: Sequence[SourcePlace]
) -> Binding:
    source, call = ground.call_at(callers[0])
    if last_word(call.func) != function.name.value:
        raise CannotPlaceError(f"It is not clear who gave `{name}` to {function.name.value}.")
    names = _parameters(function)
    if isinstance(call.func, cst.Attribute) and names[:1] in (["self"], ["cls"]):
        names = names[1:]
    given = _argument(call, names, name)
    if given is None:
        raise CannotPlaceError(f"It is not clear what {function.name.value} gets as `{name}`.")
    return _follow(ground, source, call, given, callers[1:])


def _argument(call: cst.Call, names: list[str], name: str) -> cst.BaseExpression | None:
    for number, arg in enumerate(call.args):
        if arg.star:
            return None
        found = arg.keyword.value if arg.keyword is not None else None
        if found is None and number < len(names):
            found = names[number]
        if found == name:
            return arg.value
    return None


def _find_attribute(source: SourceFile, use: cst.Call, model: cst.Attribute) -> Binding:
    """The one assignment of `self.model` in the class that uses it."""
    text, owner = source.code(model), source.class_of(use)
    found = (
        []
        if owner is None
        else [
            one
            for one in source.statements()
            if source.class_of(one) is owner and text in _targets(source, one)
        ]
    )
    blocks = {id(source.parent(one)) for one in found}
    if len(blocks) != 1 or source.function_of(found[0]) is None:
        raise _unclear(source, text)
    return Binding(source, found[-1], text)


def _unclear(source: SourceFile, name: str) -> CannotPlaceError:
    return CannotPlaceError(f"It is not clear where in {source.name} `{name}` gets its model.")


def _parameters(function: cst.FunctionDef) -> list[str]:
    parameters = function.params
    found = (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params)
    return [one.name.value for one in found]


def _assignments(
    source: SourceFile, function: cst.FunctionDef | None, name: str
) -> list[Statement]:
    """The statements of a function (of the module) that assign a name."""
    return [
        one
        for one in source.statements()
        if source.function_of(one) is function
        and source.class_of(one) is (None if function is None else source.class_of(function))
        and name in _targets(source, one)
    ]


def _targets(source: SourceFile, statement: Statement) -> list[str]:
    """What a simple statement assigns; a name in a tuple too."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return []
    found: list[cst.BaseExpression] = []
    for part in statement.body:
        if isinstance(part, cst.Assign):
            found += [target.target for target in part.targets]
        elif isinstance(part, cst.AnnAssign) and part.value is not None:
            found.append(part.target)
    texts = []
    for target in found:
        inner = [target]
        if isinstance(target, (cst.Tuple, cst.List)):
            inner = [element.value for element in target.elements]
        texts += [source.code(one).strip() for one in inner]
    return texts


def _behind(
    ground: Ground,
    source: SourceFile,
    assigned: list[Statement],
    use: cst.Call,
    callers: Sequence[SourcePlace],
) -> Statement:
    """The statement behind which the last assignment holds on every way to the use.

    An assignment in an `if` holds behind the whole `if`. Where the use stands in another function,
    the call that led there counts as the use.
    """
    here = _use_in(ground, source, source.function_of(assigned[0]), use, callers)
    if here is None:
        return assigned[-1]
    last = ([one for one in assigned if source.is_before(one, here)] or assigned)[-1]
    around, found = source.ancestors(here), last
    for above in source.ancestors(last):
        if above in around:
            break
        if isinstance(above, _COMPOUND):
            found = above
    return found


def _use_in(
    ground: Ground,
    source: SourceFile,
    function: cst.FunctionDef | None,
    use: cst.Call,
    callers: Sequence[SourcePlace],
) -> cst.Call | None:
    """The call on the way to the use that stands in a function (in the module)."""
    if source.function_of(use) is function:
        return use
    for place in callers:
        if ground.is_in(place, source):
            _, call = ground.call_at(place)
            if source.function_of(call) is function:
                return call
    return None
