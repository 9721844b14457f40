"""Changes of a file: what edits ask for, and one pass over the tree that makes them all.

In: a SourceFile and its changes. Out: the new bytes. All changes name nodes of the tree as it was
read, so no change moves the place of another.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from steptime.patch.source_file import SourceFile, Statement
from steptime.patch.values import CannotPlaceError


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChange:
    """A call becomes another expression."""

    source: SourceFile
    call: cst.Call
    act: Callable[[cst.Call], cst.Call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrap:
    """A statement moves into a `with`, and a line follows it.

    Attributes:
        head: such as `with torch.no_grad():`.
        after: the lines that follow.
    """

    source: SourceFile
    statement: Statement
    head: str
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """A call moves into a `with` of its own before its statement.

    Attributes:
        name: takes its result.
        instead: the expression that takes its place in the statement.
    """

    source: SourceFile
    call: cst.Call
    statement: Statement
    head: str
    name: str
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """A line follows a statement."""

    source: SourceFile
    statement: Statement
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """An expression or a statement becomes another one.

    `text` has four spaces an indent, of its statement.
    """

    source: SourceFile
    node: cst.BaseExpression | Statement
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """A statement goes; the comments above it stay, above the next one."""

    source: SourceFile
    statement: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Text that follows the imports at the beginning of the file.

    Attributes:
        text: one statement.
        num_blank: empty lines before it.
    """

    source: SourceFile
    text: str
    num_blank: int = 1


Change = CallChange | Wrap | Lift | After | Beginning | Replace | Remove


def apply_changes(source: SourceFile, changes: Sequence[Change]) -> bytes:
    """The file with the changes.

    Raises:
        CannotPlaceError: what comes of them is no Python.
    """
    changed = source.module.visit(_Changer(source, changes))
    data = changed.bytes
    try:
        ast.parse(data)
    except (SyntaxError, ValueError) as error:
        raise CannotPlaceError(f"{source.name} would not be Python any more: {error}.") from error
    return data


def torch_name(source: SourceFile) -> str | None:
    """The name of the module torch in a file; None where its beginning does not import it."""
    for statement in leading_imports(source):
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for part in statement.body:
            if isinstance(part, cst.Import):
                for alias in part.names:
                    if alias.evaluated_name == "torch":
                        return alias.evaluated_alias or "torch"
                    if alias.evaluated_name.startswith("torch.") and alias.asname is None:
                        return "torch"
    return None


def need_torch(source: SourceFile) -> tuple[str, tuple[Change, ...]]:
    """The name of torch in a file, and the change that imports it where that is missing."""
    name = torch_name(source)
    if name is not None:
        return name, ()
    return "torch", (Beginning(source=source, text="import torch", num_blank=0),)


def leading_imports(source: SourceFile) -> list[Statement]:
    """The docstring and the imports with which a file begins."""
    found: list[Statement] = []
    for number, statement in enumerate(source.module.body):
        if not _is_import(statement) and not (number == 0 and _is_docstring(statement)):
            break
        found.append(statement)
    return found


def _is_import(statement: cst.CSTNode) -> bool:
    if isinstance(statement, cst.SimpleStatementLine):
        return all(isinstance(part, (cst.Import, cst.ImportFrom)) for part in statement.body)
    if isinstance(statement, cst.Try):  # one of two packages
        parts = [statement.body, *(handler.body for handler in statement.handlers)]
        return all(_is_import(one) or _is_flag(one) for part in parts for one in part.body)
    return False


def _is_flag(statement: cst.CSTNode) -> bool:
    """`has_apex = False`, or `pass`: what stands beside an import that may fail."""
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(part, cst.Pass)
        or (isinstance(part, cst.Assign) and isinstance(part.value, (cst.Name, cst.Integer)))
        for part in statement.body
    )


def _is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )


class _Changer(cst.CSTTransformer):
    def __init__(self, source: SourceFile, changes: Sequence[Change]) -> None:
        super().__init__()
        self._source = source
        self._config = source.module.config_for_parsing
        self._calls: dict[int, list[CallChange | Lift]] = {}
        self._statements: dict[int, list[Wrap | After | Lift]] = {}
        self._replaced = {id(one.node): one for one in changes if isinstance(one, Replace)}
        self._removed = {id(one.statement) for one in changes if isinstance(one, Remove)}
        self._left_over: list[Any] = []
        self._lifted: dict[int, cst.BaseExpression] = {}
        self._beginning = _unique([one for one in changes if isinstance(one, Beginning)])
        imports = leading_imports(source)
        self._anchor = imports[-1] if imports else None
        for change in changes:
            if isinstance(change, (CallChange, Lift)):
                self._calls.setdefault(id(change.call), []).append(change)
            if isinstance(change, (Wrap, After, Lift)):
                there = self._statements.setdefault(id(change.statement), [])
                if change not in there:
                    there.append(change)

    def on_visit(self, node: cst.CSTNode) -> bool:
        # What is in a statement that goes must not take the comments that are to stay.
        return super().on_visit(node) and id(node) not in self._removed

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        updated: Any = super().on_leave(original_node, updated_node)
        if id(original_node) in self._replaced:
            change = self._replaced[id(original_node)]
            if isinstance(original_node, cst.BaseExpression):
                return self._expression(change)
            updated = self._parse(change.text).with_changes(leading_lines=updated.leading_lines)
        if id(original_node) in self._removed:
            is_first = not self._left_over  # the empty lines above the first one stay, too
            lines = updated.leading_lines
            self._left_over += [one for one in lines if is_first or one.comment is not None]
            return cst.RemoveFromParent()
        if self._left_over and isinstance(original_node, cst.SimpleStatementLine):
            lines = [*self._left_over, *updated.leading_lines]
            self._left_over, updated = [], updated.with_changes(leading_lines=lines)
        if id(original_node) in self._calls:
            updated = self._leave_call(original_node, updated)
        if id(original_node) in self._statements:
            updated = self._leave_statement(original_node, updated)
        if self._anchor is not None and original_node is self._anchor:
            updated = cst.FlattenSentinel([updated, *self._make_beginning()])
        if isinstance(original_node, cst.Module) and self._anchor is None:
            updated = updated.with_changes(body=self._begin(updated.body))
        return updated

    def _expression(self, change: Replace) -> cst.BaseExpression:
        """The new expression; the tree adds the indent of its block to each of its lines."""
        module = self._source.module
        lines = [_indent(line, module.default_indent) for line in change.text.split("\n")]
        return cst.parse_expression(module.default_newline.join(lines), config=self._config)

    def _leave_call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        changes = self._calls[id(original)]
        for change in changes:
            if isinstance(change, CallChange):
                updated = change.act(updated)
        for change in changes:
            if isinstance(change, Lift):
                self._lifted[id(change)] = updated
                return cst.parse_expression(change.instead)
        return updated

    def _leave_statement(self, original: Any, updated: Any) -> Any:
        before: list[Any] = []
        after: list[Any] = []
        for change in self._statements[id(original)]:
            if isinstance(change, Wrap):
                updated = self._wrap(change.head, updated)
                after += [self._parse(line) for line in change.after]
            elif isinstance(change, After):
                after.append(self._parse(change.line))
            else:
                line = self._parse(f"{change.name} = 0")
                part = line.body[0].with_changes(value=self._lifted[id(change)])
                before.append(self._wrap(change.head, line.with_changes(body=[part])))
        if before:
            first = before[0].with_changes(leading_lines=updated.leading_lines)
            before, updated = [first, *before[1:]], updated.with_changes(leading_lines=())
        return cst.FlattenSentinel([*before, updated, *after])

    def _wrap(self, head: str, statement: Any) -> Any:
        outer = self._parse(f"{head}\n    pass\n")
        inner = cst.IndentedBlock(body=[statement.with_changes(leading_lines=())])
        return outer.with_changes(body=inner, leading_lines=statement.leading_lines)

    def _begin(self, body: Sequence[Any]) -> list[Any]:
        """The statements of a file without imports behind its beginning; off a class by lines."""
        before, rest = self._make_beginning(), list(body)
        num_blank = max((one.num_blank for one in self._beginning), default=0)
        if num_blank > 1 and rest:
            lines = [cst.EmptyLine(indent=False)] * num_blank
            rest[0] = rest[0].with_changes(leading_lines=[*lines, *rest[0].leading_lines])
        return [*before, *rest]

    def _make_beginning(self) -> list[Any]:
        # An import that is missing stands first.
        ordered = sorted(self._beginning, key=lambda one: one.num_blank)
        return [
            self._parse(one.text).with_changes(
                leading_lines=[cst.EmptyLine(indent=False)] * one.num_blank
            )
            for one in ordered
        ]

    def _parse(self, text: str) -> Any:
        """A statement with the file's own indents and line ends."""
        module = self._source.module
        lines = [_indent(line, module.default_indent) for line in text.split("\n")]
        return cst.parse_statement(module.default_newline.join(lines), config=self._config)


def _indent(line: str, indent: str) -> str:
    """The line with this indent instead of four spaces."""
    text = line.lstrip(" ")
    return indent * ((len(line) - len(text)) // 4) + text


def _unique(changes: list[Beginning]) -> list[Beginning]:
    found: dict[str, Beginning] = {}
    for change in changes:
        found.setdefault(change.text, change)
    return list(found.values())
