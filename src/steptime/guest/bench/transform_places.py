"""Where the script makes its transforms: the line of each element of a chain."""

from __future__ import annotations

import ast
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

CHAINS = (
    "torchvision.transforms.transforms",
    "torchvision.transforms.v2._container",
    "albumentations.core.composition",
)
TRANSFORMS = "albumentations.core.transforms_interface"

MADE_AT: dict[int, tuple[Any, str, int]] = {}
"""By id of a chain or a transform: itself, weakly, and the file and line that made it."""


def watch_chains(targets: dict[str, Callable[[Any], None]]) -> None:
    """Note where chains are made, once the library that has them was executed."""
    for name in CHAINS:
        targets[name] = lambda module: note_makers(module, "Compose")
    targets[TRANSFORMS] = lambda module: note_makers(module, "BasicTransform")


def note_makers(module: Any, name: str) -> None:
    """Note the line that calls a class, each time that it does."""
    owner = getattr(module, name, None)
    if owner is None:
        return
    original = owner.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        frame: Any = sys._getframe(1)
        while frame is not None and is_library(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            MADE_AT[id(self)] = weakref.ref(self), frame.f_code.co_filename, frame.f_lineno
        original(self, *args, **kwargs)

    owner.__init__ = __init__


def made_at(made: Any) -> str | None:
    """Return the place at which something was made, as `train.py:12`."""
    reference, file, line = MADE_AT.get(id(made), (None, "", 0))
    return None if reference is None or reference() is not made else told(file, line)


def element_place(chain: Any, index: int) -> str | None:
    """Return where the element of a chain stands: its line in the list that the chain is given."""
    reference, file, line = MADE_AT.get(id(chain), (None, "", 0))
    if reference is None or reference() is not chain:
        return None
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return told(file, line)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    for call in sorted(calls, key=lambda node: (node.end_lineno or 0) - node.lineno):
        for value in (*call.args, *(keyword.value for keyword in call.keywords)):
            is_list = isinstance(value, (ast.List, ast.Tuple))
            if is_list and len(value.elts) == len(chain.transforms):  # type: ignore[attr-defined]
                return told(file, value.elts[index].lineno)  # type: ignore[attr-defined]
    return told(file, line)


def code_place(call: Any) -> str | None:
    """Return where the code of a transform of the script's own stands; None for a library's."""
    method = call if hasattr(call, "__code__") else None
    for name in ("forward", "__call__"):
        method = method or getattr(type(call), name, None)
    code = getattr(method, "__code__", None)
    if code is None or is_library(code.co_filename):
        return None
    return told(code.co_filename, code.co_firstlineno)


def is_library(file: str) -> bool:
    """Return whether a file belongs to an installed library, or to us."""
    return "site-packages" in file or file.startswith(("<", os.path.dirname(os.__file__)))


def told(file: str, line: int) -> str:
    """Return a place as a person reads it: below the current folder from there on."""
    here = os.getcwd() + os.sep
    return f"{file.removeprefix(here)}:{line}"
