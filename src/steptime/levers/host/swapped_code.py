"""Gives functions of a running script the code that an edit of their file would have given them.

This is no lever, as it has no `LEVER`. A function is changed only if its code is what its file, as
it is on the disk, compiles to. Code that runs already goes on as it was; the next call has the new
one. torch.compile and other caches hold on to code objects, so a new one is new to them.
"""

from __future__ import annotations

import gc
import os
import sys
import tokenize
import warnings
from collections.abc import Iterator
from inspect import CO_NEWLOCALS, CO_OPTIMIZED
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..tools.line_edits import FileEdit, edited, is_for


def check_files(edits: tuple[FileEdit, ...]) -> None:
    """Check that the files that edits name are as they were, as far as they are found.

    Raises:
        ValueError: a file in the working folder was changed since its edit was found.
    """
    for edit in edits:
        text = _text(edit.name)
        if text is not None and not is_for(edit, text):
            raise ValueError(
                f"{edit.name} is not as it was when its loop was found: tune the script again"
            )


class SwappedCode:
    """The functions that have another code, and the one that they had."""

    def __init__(self, edits: tuple[FileEdit, ...]) -> None:
        self._edits = edits
        self._before: list[tuple[FunctionType, CodeType, CodeType]] = []
        self._pairs: dict[str, list[tuple[CodeType, CodeType]]] = {}

    def swap(self) -> int:
        """Give the functions that are there their new code; return how many there were."""
        num = 0
        for function in _functions():
            code = function.__code__
            if code.co_filename not in self._pairs:
                self._pairs[code.co_filename] = self._pairs_of(code.co_filename)
            for before, after in self._pairs[code.co_filename]:
                if code == before and code.co_freevars == after.co_freevars:
                    function.__code__ = after
                    self._before.append((function, code, after))
                    num += 1
        return num

    def swap_back(self) -> None:
        """Give the functions their old code back, unless somebody gave them another one."""
        for function, before, after in self._before:
            if function.__code__ is after:
                function.__code__ = before
        self._before.clear()

    def _pairs_of(self, filename: str) -> list[tuple[CodeType, CodeType]]:
        """Return the old and the new code of all functions of a file that an edit changes."""
        found = []
        for edit in self._edits:
            if not _is_named(filename, edit.name):
                continue
            text = _text(filename)
            if text is None or not is_for(edit, text):
                continue  # another file that is called alike, or one that was changed since
            old, new = (_codes(_compiled(one, filename)) for one in (text, edited(edit, text)))
            found += [(old[key], new[key]) for key in old if key in new and old[key] != new[key]]
        return found


def _is_named(filename: str, name: str) -> bool:
    """Return whether a file may be the one that an edit names."""
    name = os.path.normpath(name)
    if os.path.basename(filename) != os.path.basename(name):
        return False
    paths = (os.path.abspath(filename), os.path.realpath(filename))
    return any(path == name or path.endswith(os.sep + name) for path in paths)


def _text(filename: str) -> str | None:
    """Return what is in a file of Python now; None if it cannot be read."""
    try:
        with tokenize.open(filename) as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def _compiled(text: str, filename: str) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the script has said them already
        return compile(text, filename, "exec", dont_inherit=True)


def _codes(code: CodeType, path: str = "") -> dict[tuple[str, int], CodeType]:
    """Return the code of all functions in a code by their path and first line.

    Two of one name on one line are left out. Comprehensions and classes are no functions.
    """
    found: dict[tuple[str, int], CodeType] = {}
    doubles = set()
    for one in code.co_consts:
        if not isinstance(one, CodeType):
            continue
        inner = f"{path}.{one.co_name}"
        key, is_function = (inner, one.co_firstlineno), CO_OPTIMIZED | CO_NEWLOCALS
        if one.co_flags & is_function == is_function and not one.co_name.startswith("<"):
            doubles |= {key} & set(found)
            found[key] = one
        found.update(_codes(one, inner))
    return {key: one for key, one in found.items() if key not in doubles}


def _functions() -> Iterator[FunctionType]:
    """Yield the functions that are in the process, each once.

    `gc.freeze` hides what was there from a search, so functions and methods of modules are
    looked for by their names as well.
    """
    seen = set()
    for one in [*gc.get_objects(), *_named_functions()]:
        if type(one) is FunctionType and id(one) not in seen:
            seen.add(id(one))
            yield one


def _named_functions() -> Iterator[Any]:
    if not gc.get_freeze_count():
        return
    # `isinstance` asks an object that may import something, or warn
    modules = [one for one in list(sys.modules.values()) if issubclass(type(one), ModuleType)]
    for module in modules:
        for value in list(vars(module).values()):
            yield value
            if issubclass(type(value), type):
                yield from map(_plain, list(vars(value).values()))


def _plain(member: Any) -> Any:
    """Return the function of a static or class method; other members may resolve themselves."""
    return member.__func__ if type(member) in (staticmethod, classmethod) else member
