"""One file of the user's as a tree that keeps every byte, and the calls and statements in it.

In: a file's name, the folder of the command, and its hash at the proof. Out: a `SourceFile`, or
the reason why it is left alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from steptime.patch.values import CannotPlaceError
from steptime.record.regular_file import read_regular
from steptime.tune.trials.facts.source_sites import hash_file
from steptime.tune.values.site_values import SourcePlace

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement

_LINE_END = re.compile(r"\r\n|\r|\n")
_NOT_ALWAYS = (cst.Lambda, cst.BaseComp, cst.IfExp, cst.BooleanOperation)


class SourceFile:
    """A file with its tree; `name` is relative to the folder of the command."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.data = data
        try:
            module = cst.parse_module(data)
        except (cst.ParserSyntaxError, UnicodeDecodeError, LookupError, SyntaxError) as error:
            first = str(error).strip().splitlines()[0].rstrip(".")
            raise CannotPlaceError(f"{name} cannot be read as Python: {first}.") from error
        if module.bytes != data:
            raise CannotPlaceError(f"{name} cannot be written again byte for byte.")
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = module
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._lines = _LINE_END.split(module.code)
        self.names = {node.value for node in self._positions if isinstance(node, cst.Name)}

    # -- what stands where

    def line_of(self, node: cst.CSTNode) -> int:
        """The line of a node's first character, from 1."""
        return self._range(node).start.line

    def find_call(self, place: SourcePlace, *, name: str) -> cst.Call:
        """The call at a place.

        Args:
            place: as the guest told it.
            name: the last word of what is called; it decides where columns are not known.

        Raises:
            CannotPlaceError: there is none, or more than one could be meant.
        """
        calls = [node for node in self._positions if isinstance(node, cst.Call)]
        if place.column is not None:
            end = (place.end_line, place.end_column)
            found = [call for call in calls if self._end(call) == end]
        else:
            found = [call for call in calls if self.line_of(call) == place.line]
            named = [call for call in found if last_word(call.func) == name]
            found = named or found
        if len(found) == 1:
            return found[0]
        where = f"{self.name}:{place.line}"
        if not found:
            raise CannotPlaceError(f"No call was found at {where}.")
        raise CannotPlaceError(f"{where} has {len(found)} calls, and one was proven.")

    def _range(self, node: cst.CSTNode) -> CodeRange:
        found: CodeRange = self._positions[node]
        return found

    def _end(self, node: cst.CSTNode) -> tuple[int, int]:
        """The end of a node; its column counts bytes of UTF-8, as Python's columns do."""
        end = self._range(node).end
        text = self._lines[end.line - 1][: end.column]
        return end.line, len(text.encode("utf-8", "surrogatepass"))

    def is_before(self, one: cst.CSTNode, other: cst.CSTNode) -> bool:
        """Whether a node begins before another one."""
        a, b = self._range(one).start, self._range(other).start
        return (a.line, a.column) < (b.line, b.column)

    def lines(self, first: int, num: int) -> tuple[str, ...]:
        """Some lines of the file, without their ends; fewer where the file ends before."""
        return tuple(self._lines[first - 1 : first - 1 + num])

    def expressions(self, first: int, num: int) -> list[tuple[cst.BaseExpression, str, str]]:
        """The expressions in some lines, smallest first, with the text before and behind each."""
        found = []
        lines = self.lines(first, num)
        for node in self._positions:
            if not isinstance(node, cst.BaseExpression):
                continue
            start, end = self._range(node).start, self._range(node).end
            if first <= start.line and end.line < first + num:
                head = "\n".join((*lines[: start.line - first], lines[start.line - first]))
                head = head[: len(head) - len(lines[start.line - first]) + start.column]
                tail = "\n".join(lines[end.line - first :])[end.column :]
                found.append((node, head, tail))
        return sorted(found, key=lambda one: -len(one[1]) - len(one[2]))

    def statements_in(self, first: int, last: int) -> list[Statement]:
        """The outermost statements that fill some lines; none where one reaches beyond them."""
        found: list[Statement] = []
        for statement in self.statements():
            start, end = self._range(statement).start.line, self._range(statement).end.line
            is_inside = any(above in found for above in self.ancestors(statement))
            if first <= start <= last and not is_inside:
                if end > last:
                    return []
                found.append(statement)
        one_block = len({id(self.parent(statement)) for statement in found}) == 1
        return found if one_block and self.line_of(found[0]) == first else []

    # -- what contains what

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node that contains this one."""
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """All nodes that contain this one, the nearest first."""
        found = []
        above = self.parent(node)
        while above is not None:
            found.append(above)
            above = self.parent(above)
        return found

    def statement_of(self, call: cst.Call) -> cst.SimpleStatementLine:
        """The simple statement that contains a call, which is evaluated whenever it runs.

        Raises:
            CannotPlaceError: the call stands in the head of a compound statement, in a part that
                is not always evaluated, or in one of several statements on a line.
        """
        where = f"{self.name}:{self.line_of(call)}"
        for above in self.ancestors(call):
            if isinstance(above, _NOT_ALWAYS):
                raise CannotPlaceError(f"The call at {where} stands inside another expression.")
            if isinstance(above, cst.SimpleStatementLine):
                if len(above.body) > 1:
                    raise CannotPlaceError(f"{where} has several statements on one line.")
                return above
            if isinstance(above, (cst.SimpleStatementSuite, cst.BaseCompoundStatement)):
                break
        raise CannotPlaceError(f"The call at {where} is no statement of its own.")

    def function_of(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The innermost function that contains a node."""
        found = (one for one in self.ancestors(node) if isinstance(one, cst.FunctionDef))
        return next(found, None)

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The innermost class that contains a node."""
        found = (one for one in self.ancestors(node) if isinstance(one, cst.ClassDef))
        return next(found, None)

    def calls(self) -> list[cst.Call]:
        """All calls, in the order of the file."""
        found = [node for node in self._positions if isinstance(node, cst.Call)]
        return sorted(found, key=lambda node: (self.line_of(node), self._range(node).start.column))

    def blocks(self) -> list[Sequence[cst.CSTNode]]:
        """The statements of each block, in the order of the file."""
        found = [node for node in self._positions if isinstance(node, cst.IndentedBlock)]
        return [node.body for node in sorted(found, key=self.line_of)]

    def statements(self) -> list[Statement]:
        """All statements, in the order of the file."""
        kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        found = [node for node in self._positions if isinstance(node, kinds)]
        return sorted(found, key=lambda node: (self.line_of(node), self._range(node).start.column))

    # -- words for new lines

    def code(self, node: cst.CSTNode) -> str:
        """A node's text."""
        return self.module.code_for_node(node)

    def fresh_name(self, wanted: str) -> str:
        """A name that the file does not have."""
        return next(
            name
            for name in (wanted, f"model_{wanted}", *(f"{wanted}_{n}" for n in range(1, 100)))
            if name not in self.names
        )


def open_source(name: str, *, folder: Path, proven: str | None) -> SourceFile:
    """The file, if it is the one of the proof and may be edited.

    Raises:
        CannotPlaceError: it is not, or it may not.
    """
    if os.path.isabs(name):
        raise CannotPlaceError(f"{name} lies outside the folder of the command.")
    path = folder / name
    found = hash_file(path)
    if found is None:
        raise CannotPlaceError(f"{name} is not there, or cannot be read, in {folder}.")
    if proven is None:
        raise CannotPlaceError(f"The recipe does not say what {name} was like at the proof.")
    if found != proven:
        raise CannotPlaceError(f"{name} was changed since the proof.")
    if not os.access(path, os.W_OK):
        raise CannotPlaceError(f"{name} is read-only.")
    return SourceFile(name, read_regular(path))


def last_word(node: cst.CSTNode) -> str:
    """`AdamW` for `AdamW` and `torch.optim.AdamW`; empty for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    return node.attr.value if isinstance(node, cst.Attribute) else ""
