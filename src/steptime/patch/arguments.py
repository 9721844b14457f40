"""Sets arguments of a call: replaces those that are there, and adds the others in the same layout.

In: a call's node and new arguments. Out: the node with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from steptime.patch.values import CannotPlaceError

_SPACE = cst.SimpleWhitespace(" ")


def set_arguments(
    call: cst.Call,
    values: Mapping[str, str],
    *,
    positions: Sequence[str] = (),
    dropped: Sequence[str] = (),
) -> cst.Call:
    """The call with these keyword arguments.

    Args:
        call: the node.
        values: source text by name.
        positions: the names of what may be given by position, in order.
        dropped: names of keyword arguments that must go.

    Raises:
        CannotPlaceError: the call unpacks positional arguments, so it is not known what is given.
    """
    if positions and any(arg.star == "*" for arg in call.args):
        raise CannotPlaceError("The call takes positional arguments from a variable.")
    left = dict(values)
    arguments = []
    for number, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword is not None else None
        if name is None and not arg.star and number < len(positions):
            name = positions[number]
        text = left.pop(name, None) if name is not None else None
        new = arg if text is None else arg.with_changes(value=cst.parse_expression(text))
        if arg.keyword is None or arg.keyword.value not in dropped:
            arguments.append(new)
    if len(arguments) < len(call.args):
        arguments = _close(call, arguments)
    changed = call.with_changes(args=arguments)
    unpacks = any(arg.star == "**" for arg in changed.args)
    return _unpack(changed, left) if unpacks else _append(changed, left)


def rename_argument(call: cst.Call, name: str, *, to: str, value: str) -> cst.Call | None:
    """The call with a keyword argument replaced by another one; None where it has none of it."""
    for number, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            keyword = arg.keyword.with_changes(value=to)
            new = arg.with_changes(keyword=keyword, value=cst.parse_expression(value))
            return call.with_changes(args=[*call.args[:number], new, *call.args[number + 1 :]])
    return None


def find_argument(call: cst.Call, name: str, *, position: int | None = None) -> cst.Arg | None:
    """The argument of a name, given by it or by its position."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg
    plain = [arg for arg in call.args if arg.keyword is None]
    before = plain[: (position or 0) + 1]
    if position is None or len(before) <= position or any(arg.star for arg in before):
        return None
    return before[position]


def _unpack(call: cst.Call, values: Mapping[str, str]) -> cst.Call:
    """Put them over what the last `**` gives, which may hold the same names."""
    if not values:
        return call
    number = max(i for i, arg in enumerate(call.args) if arg.star == "**")
    arg = call.args[number]
    items = [
        cst.StarredDictElement(arg.value),
        *(
            cst.DictElement(cst.SimpleString(f'"{name}"'), cst.parse_expression(text))
            for name, text in values.items()
        ),
    ]
    new = arg.with_changes(value=cst.Dict(items))
    return call.with_changes(args=[*call.args[:number], new, *call.args[number + 1 :]])


def _close(call: cst.Call, arguments: list[cst.Arg]) -> list[cst.Arg]:
    """Give what is last now the end of what was last before."""
    if not arguments:
        return arguments
    last = call.args[-1]
    ending = {"comma": last.comma, "whitespace_after_arg": last.whitespace_after_arg}
    return [*arguments[:-1], arguments[-1].with_changes(**ending)]


def _append(call: cst.Call, values: Mapping[str, str]) -> cst.Call:
    for name, text in values.items():
        call = _append_one(call, name, text)
    return call


def _append_one(call: cst.Call, name: str, text: str) -> cst.Call:
    new = cst.Arg(
        value=cst.parse_expression(text),
        keyword=cst.Name(name),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    if not call.args:
        return call.with_changes(args=[new])
    last = call.args[-1]
    if isinstance(last.value, cst.GeneratorExp) and len(call.args) == 1 and not last.value.lpar:
        raise CannotPlaceError("The call's only argument is a generator without parentheses.")
    if isinstance(last.comma, cst.Comma):  # a trailing comma: the new one gets it
        separator = _separator(call, last.comma.whitespace_after)
        tail = _without_comment(last.comma.whitespace_after)
        before = last.with_changes(comma=last.comma.with_changes(whitespace_after=separator))
        new = new.with_changes(comma=cst.Comma(whitespace_after=tail))
    else:
        separator = _separator(call, last.whitespace_after_arg)
        tail = _without_comment(last.whitespace_after_arg)
        before = last.with_changes(
            comma=cst.Comma(whitespace_after=separator),
            whitespace_after_arg=cst.SimpleWhitespace(""),
        )
        new = new.with_changes(whitespace_after_arg=tail)
    return call.with_changes(args=[*call.args[:-1], before, new])


def _separator(
    call: cst.Call, ending: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """What stands between the last argument and the new one: a new line where the others have it.

    A comment behind the last argument stays with it.
    """
    model: cst.BaseParenthesizableWhitespace = call.whitespace_before_args
    if len(call.args) > 1 and isinstance(call.args[-2].comma, cst.Comma):
        model = call.args[-2].comma.whitespace_after
    if isinstance(ending, cst.ParenthesizedWhitespace):
        if isinstance(model, cst.ParenthesizedWhitespace):
            return ending.with_changes(indent=model.indent, last_line=model.last_line)
        if ending.first_line.comment is not None:
            return ending
    if isinstance(model, cst.ParenthesizedWhitespace):
        return _without_comment(model)
    return _SPACE


def _without_comment(
    space: cst.BaseParenthesizableWhitespace,
) -> cst.BaseParenthesizableWhitespace:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    first = cst.TrailingWhitespace(newline=space.first_line.newline)
    return space.with_changes(first_line=first, empty_lines=())
