"""Finds the lines of a script that pad: a tokenizer, a collator, a function of torch.

In: a parsed file. Out: a code and a line each. A finding on padding names them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

TO_LENGTH, TO_LONGEST = "pads_to_length", "pads_to_longest"

_FUNCTIONS = frozenset(("pad_sequence", "pad_packed_sequence"))
_COLLATORS = frozenset(
    (
        *("DataCollatorWithPadding", "DataCollatorForLanguageModeling", "DataCollatorForSeq2Seq"),
        *("DataCollatorForTokenClassification", "DataCollatorForMultipleChoice"),
    )
)
_MAX_LINES = 20


def find_padding_lines(tree: ast.Module) -> list[tuple[str, int]]:
    """Return the code and the line of calls that pad, those to a given length first."""
    found = sorted(set(_calls(tree)), key=lambda one: (one[0] != TO_LENGTH, one[1]))
    return found[:_MAX_LINES]


def _calls(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        how = _asked(node)
        if how is not None:
            yield how, node.lineno
        elif _name_of(node.func) in _FUNCTIONS | _COLLATORS:
            yield TO_LONGEST, node.lineno


def _asked(call: ast.Call) -> str | None:
    """Return what `padding=` asks for; None where it is not given, or says no."""
    for keyword in call.keywords:
        if keyword.arg == "padding" and isinstance(keyword.value, ast.Constant):
            value = keyword.value.value
            if value == "max_length":
                return TO_LENGTH
            if value is True or value == "longest":
                return TO_LONGEST
    return None


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
