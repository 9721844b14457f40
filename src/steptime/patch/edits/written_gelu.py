"""The edit of modules that write GELU out.

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))

returns `torch.nn.functional.gelu(x, approximate="tanh")`. Which classes do so was found by what
they compute, in the study: the lever's settings name them.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from steptime.patch.changes import Change, Remove, Replace, need_torch
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, take
from steptime.patch.ground import Ground
from steptime.patch.source_file import SourceFile
from steptime.patch.values import CannotPlaceError

UNKNOWN = (
    "The recipe does not say which classes write GELU out: an older Steptime made it. Tune again."
)
NOT_FOUND = (
    "No class of this name was found in the files of the proof; one of an installed library is not "
    "yours to edit."
)


def fuse_gelu(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`torch.nn.functional.gelu(x)` in place of what the `forward` of such a class returns."""
    take(settings, "classes")
    if not settings.get("classes"):
        raise CannotPlaceError(UNKNOWN)
    pairs = [words.split() for words in str(settings["classes"]).split(", ")]
    names = [name for name, _ in pairs]
    return [_of_class(name, form, names.count(name), ground) for name, form in pairs]


def _of_class(name: str, form: str, num_forms: int, ground: Ground) -> Placed | NotPlaced:
    found = [
        (source, block)
        for source in ground.sources()
        for block in source.blocks()
        if (owner := source.class_of(block[0])) is not None and owner.name.value == name
        if (function := source.function_of(block[0])) is not None
        and function.name.value == "forward"
        and function.body.body is block
    ]
    if len(found) != 1 or num_forms != 1:
        why = f"{name} is there more than once, or in two forms." if found else NOT_FOUND
        return NotPlaced(why, name)
    (source, block), lines = found[0], _lines(found[0][1])
    argument, where = _argument(source, block), f"{source.name}:{source.line_of(block[-1])}"
    if argument is None or lines is None:
        return NotPlaced(f"The forward of {name} is more than assignments and a result.", where)
    torch, needed = need_torch(source)
    options = ', approximate="tanh"' if form == "tanh" else ""
    text = f"{torch}.nn.functional.gelu({argument}{options})"
    assigned, result = lines
    changes: list[Change] = [*needed, Replace(source=source, node=result, text=text)]
    return Placed(where, (*changes, *(Remove(source=source, statement=line) for line in assigned)))


def _argument(source: SourceFile, block: Sequence[cst.CSTNode]) -> str | None:
    """Return the name of a `forward`'s only argument, besides `self`."""
    function = source.function_of(block[0])
    assert function is not None
    parameters = function.params
    others = (*parameters.kwonly_params, *parameters.posonly_params)
    is_more = others or parameters.star_kwarg or isinstance(parameters.star_arg, cst.Param)
    names = [one.name.value for one in parameters.params]
    return names[1] if len(names) == 2 and not (is_more or function.decorators) else None


def _lines(
    block: Sequence[cst.CSTNode],
) -> tuple[list[cst.SimpleStatementLine], cst.BaseExpression] | None:
    """Return the assignments and the result, without a docstring; None if there is more."""
    assigned: list[cst.SimpleStatementLine] = []
    for number, line in enumerate(block):
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            return None
        part = line.body[0]
        if isinstance(part, cst.Return) and part.value is not None:
            return (assigned, part.value) if line is block[-1] else None
        if isinstance(part, cst.Assign):
            assigned.append(line)
        elif number or not isinstance(part, cst.Expr):
            return None
    return None
