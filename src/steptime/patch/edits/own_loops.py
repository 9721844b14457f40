"""The edit of loops over elements, as the lever's diff has it: expressions, or whole statements.

In: the diff of `vectorized_loops`. Out: changes of the tree of each file, so that other levers can
change the same file. A file that is not the one of the proof is left alone, and the answer says so.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import libcst as cst

from steptime.levers.tools.line_edits import FileEdit, LineChange, read_edits
from steptime.patch.changes import Change, Remove, Replace
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, take
from steptime.patch.ground import Ground
from steptime.patch.source_file import SourceFile, Statement
from steptime.patch.values import CannotPlaceError


def take_out_loops(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`data[at]` in place of `torch.stack([data[i] for i in at])`, and whatever is in the diff."""
    take(settings, "diff")
    edits = read_edits(str(settings["diff"]))
    return [one for edit in edits for one in _in_file(edit, ground)]


def _in_file(edit: FileEdit, ground: Ground) -> Iterator[Placed | NotPlaced]:
    try:
        source = ground.source(edit.name)
    except CannotPlaceError as error:
        yield NotPlaced(str(error), edit.name)
        return
    for one in edit.changes:
        where = f"{edit.name}:{one.line}"
        changes = _changes(source, one)
        if changes is None:
            yield NotPlaced(f"{where} does not have the lines of the proof.", where)
        else:
            yield Placed(where, changes)


def _changes(source: SourceFile, one: LineChange) -> tuple[Change, ...] | None:
    """Return what makes these lines the others; None where that is not clear."""
    if source.lines(one.line, len(one.before)) != one.before:
        return None
    parts = _by_line(one) if len(one.before) == len(one.after) else [one]
    replaced = [_replaced(source, part) for part in parts]
    found = [change for change in replaced if change is not None]
    return tuple(found) if len(found) == len(replaced) else _statements(source, one)


def _by_line(one: LineChange) -> list[LineChange]:
    pairs = enumerate(zip(one.before, one.after, strict=True), one.line)
    return [LineChange(number, (a,), (b,)) for number, (a, b) in pairs if a != b]


def _replaced(source: SourceFile, one: LineChange) -> Replace | None:
    """Return the smallest expression in the lines that alone differs."""
    new = "\n".join(one.after)
    for node, head, tail in source.expressions(one.line, len(one.before)):
        text = new[len(head) : len(new) - len(tail)]
        if head + text + tail == new and _is_expression(text):
            return Replace(source=source, node=node, text=text)
    return None


def _is_expression(text: str) -> bool:
    try:
        cst.parse_expression(text)
    except cst.ParserSyntaxError:
        return False
    return True


def _statements(source: SourceFile, one: LineChange) -> tuple[Change, ...] | None:
    """Return the change of whole statements of one block: the last ones become the new ones."""
    try:
        new = cst.parse_module(textwrap.dedent("\n".join(one.after))).body
    except cst.ParserSyntaxError:
        return None
    last = one.line + len(one.before) - 1
    old: list[Statement] = source.statements_in(one.line, last)
    if not 0 < len(new) <= len(old):
        return None
    texts = [cst.Module(body=[part]).code.strip("\n") for part in new]
    num = len(old) - len(new)  # those that go come first, so that their comments have a place
    changes: list[Change] = [Remove(source=source, statement=statement) for statement in old[:num]]
    pairs = zip(old[num:], texts, strict=True)
    changes += [Replace(source=source, node=statement, text=text) for statement, text in pairs]
    return tuple(changes)
