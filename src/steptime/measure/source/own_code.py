"""Joins what was timed with what the source shows: loops over elements behind the sites of a step.

In: parsed files and the sites of the record. Out: rows of `source.json`. The time of a site bounds
the time of the loop that is in it from above. A site is joined only where the source shows nothing
else there that can take much time.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import Any

from steptime.measure.source.live_edits import live_edits
from steptime.measure.source.loop_edits import EXACT, OTHER_RANDOM, Edit, edit_of
from steptime.measure.source.loop_marks import LoopMark, write_loop_row
from steptime.measure.source.loop_regions import (
    Program,
    Region,
    collate_functions,
    make_program,
    methods,
    region_between,
    region_of_functions,
    with_imports,
)
from steptime.measure.source.python_loops import Loop

_MAX_MODULES = 20
_MAX_TEXT = 80
_MAX_DIFF = 4000
_CONTEXT = 2  # lines around an edit, so that `git apply` finds its place
_ITEM_METHODS = ("__getitem__", "__getitems__", "__iter__")
_IN_LINES = ("other",)
"""Phases that have the lines between two markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCode:
    """The user's files.

    Attributes:
        trees: by absolute path.
        lines: by absolute path.
        scripts: the main scripts, by absolute path.
        read: reads one more file; None if it is not there.
        cwd: the folder in which the command was started.
        data_sets: the classes of data sets that training read from, as far as the record says.
        data_files: the files of these classes.
        words: plain attributes of the data sets, by class; those in which two of them differ are
            left out.
    """

    trees: Mapping[str, ast.Module]
    lines: Mapping[str, list[str]]
    scripts: Collection[str]
    read: Callable[[str], tuple[ast.Module, list[str]] | None]
    cwd: str
    data_sets: Collection[str] = ()
    data_files: Collection[str] = ()
    words: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def loop_rows(own: OwnCode, sites: Iterable[tuple[str, str, int, int]]) -> list[dict[str, Any]]:
    """Return the rows of `source.json` on loops over elements."""
    modules = dict(_modules(own))
    lines = {**own.lines, **{file: text for file, (_, text) in modules.items()}}
    trees = {**own.trees, **{file: tree for file, (tree, _) in modules.items()}}
    whole = replace(own, trees=trees, lines=lines)
    programs = {file: make_program(tree) for file, tree in whole.trees.items()}
    marks = []
    for what, file, line, end_line in sorted(sites):
        if what in _IN_LINES and file in programs:
            region = region_between(_with_others(programs, file), line, end_line)
            marks += _marks(whole, region, file, what, (file, line, end_line))
    marks += _marks_of_data(whole, programs)
    return [write_loop_row(mark) for mark in marks]


def _with_others(programs: Mapping[str, Program], file: str) -> Program:
    """Return a file with the functions of the others."""
    others = {name: one for name, one in programs.items() if name != file}
    return with_imports(programs[file], others)


def _marks_of_data(own: OwnCode, known: Mapping[str, Program]) -> Iterator[LoopMark]:
    """Yield the loops in data sets and collate functions."""
    # A wrapper such as torch's Subset is no class of the user's: then any of them may be read.
    names = {name for one in known.values() for name in one.classes} & set(own.data_sets)
    items = partial(_item_methods, names=names)
    for what, find in (("fetch", items), ("collate", collate_functions)):
        regions = {
            file: region_of_functions(_with_others(known, file), found, own.words)
            for file, program in known.items()
            if (found := find(program))
        }
        # Which of several data sets a loader reads is not known, so all must be readable.
        if all(region.is_plain for region in regions.values()):
            for file, region in regions.items():
                yield from _marks(own, region, file, what, None)


def _item_methods(
    program: Program, *, names: Collection[str]
) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return what reads samples, in the classes of these names, or in all where there are none."""
    classes = {n: one for n, one in program.classes.items() if n in names or not names}
    narrow = replace(program, classes=classes)
    return [one for name in _ITEM_METHODS for one in methods(narrow, name)]


def _modules(own: OwnCode) -> Iterator[tuple[str, tuple[ast.Module, list[str]]]]:
    """Yield the files of data sets, and the modules that scripts and these import, nearest first.

    They are searched beside the script and in the folder of the command.
    """
    roots = [os.path.dirname(script) for script in sorted(own.scripts)]
    roots += [own.cwd] if own.cwd else []
    waiting = [one for script in sorted(own.scripts) for one in _imported(own, script, roots)]
    waiting = [*sorted(own.data_files), *waiting]
    tried, num = set[str](), 0
    while waiting and num < _MAX_MODULES:
        file = waiting.pop(0)
        if file in tried or file in own.trees:
            continue
        tried.add(file)
        found = own.read(file)
        if found is not None:
            num += 1
            yield file, found
            waiting += _files_of(found[0], file, roots)


def _imported(own: OwnCode, script: str, roots: Sequence[str]) -> list[str]:
    return _files_of(own.trees[script], script, roots) if script in own.trees else []


def _files_of(tree: ast.Module, file: str, roots: Sequence[str]) -> list[str]:
    """Return where the modules that a file imports may be."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(roots, one.name) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = os.path.dirname(file)
            for _ in range(node.level - 1):
                folder = os.path.dirname(folder)
            inside = [folder] if node.level else roots
            module = node.module or ""
            found += [(inside, module)] if module else []
            found += [(inside, f"{module}.{one.name}".strip(".")) for one in node.names]
    paths = [os.path.join(root, *name.split(".")) for inside, name in found for root in inside]
    return [file for path in sorted(set(paths)) for file in (f"{path}.py", f"{path}/__init__.py")]


def _marks(
    own: OwnCode, region: Region, file: str, what: str, site: tuple[str, int, int] | None
) -> list[LoopMark]:
    """Return the deepest loop of a region, or none where something else may have taken the time."""
    if not region.loops or not region.is_plain:
        return []
    loop = region.loops[0]
    file = loop.file or file
    text = own.lines[file]
    edits = _edits(own, file, [one for one in region.loops if (one.file or file) == file], text)
    edit = _diff(own, file, edits)
    steps = site[1:] if site is not None and site[0] == file else ()
    live = live_edits(own.trees[file], edits, steps=steps)
    number = loop.node.lineno
    return [
        LoopMark(
            code=loop.code,
            file=file,
            line=number,
            end_line=loop.node.end_lineno or number,
            text=text[number - 1].strip()[:_MAX_TEXT],
            what=what,
            site=site,
            num_others=len(region.loops) - 1,
            diff=None if edit is None else edit[0],
            keeps=None if edit is None else edit[1],
            live=_live_diff(own, file, live),
        )
    ]


def _edits(own: OwnCode, file: str, loops: Sequence[Loop], lines: list[str]) -> list[Edit]:
    """Return the edits of these loops; none where no diff of the file would apply."""
    if not os.path.isabs(file):  # the cell of a notebook is in no file
        return []
    edits = [edit for loop in loops if (edit := edit_of(own.trees[file], loop)) is not None]
    last = max((one.end[0] for one in edits), default=0)
    # A diff of an unfinished last line needs a line of its own.
    return [] if lines[-1] and last + _CONTEXT >= len(lines) else edits


def _diff(own: OwnCode, file: str, edits: Sequence[Edit]) -> tuple[str, str] | None:
    """Return edits as a unified diff, and what it keeps."""
    diff = unified(own.lines[file], edits, name=_name(file, own.cwd)) if edits else ""
    keeps = EXACT if all(one.keeps == EXACT for one in edits) else OTHER_RANDOM
    return (diff, keeps) if 0 < len(diff) <= _MAX_DIFF else None


def _live_diff(own: OwnCode, file: str, edits: Sequence[Edit]) -> str | None:
    """Return edits as a diff with a line that holds the hash of the text that they are of."""
    found = _diff(own, file, edits)
    text = "\n".join(own.lines[file])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return None if found is None else f"# sha256:{digest}\n{found[0]}"


def unified(lines: list[str], edits: Sequence[Edit], *, name: str) -> str:
    """Return edits of a file as a unified diff that `git apply` takes.

    Args:
        lines: of the file.
        edits: what is replaced; no two of them overlap.
        name: of the file, relative to the folder in which the diff is applied.
    """
    before = lines if lines[-1] else lines[:-1]  # what follows the last line's end is no line
    after = before
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        (first, begin), (last, end) = edit.start, edit.end
        head = after[first - 1].encode()[:begin].decode()
        tail = after[last - 1].encode()[end:].decode()
        after = [*after[: first - 1], f"{head}{edit.text}{tail}", *after[last:]]
    found = difflib.unified_diff(
        before, after, fromfile=f"a/{name}", tofile=f"b/{name}", lineterm="", n=_CONTEXT
    )
    return "\n".join(found) + "\n"


def _name(file: str, cwd: str) -> str:
    path = PurePath(file)
    return str(path.relative_to(cwd)) if cwd and path.is_relative_to(cwd) else file
