"""Opens the user's source: lines that findings point to, and what looks wrong around them.

In: a run folder whose command has ended. This module reads and parses the files that its places,
errors and main scripts name; it never imports or executes them. Cells of a notebook are in no file:
the guest wrote their text down. Out: `source.json`, and what is read back from it. `accumulation`
and `source_switches` decide what looks wrong.
"""

from __future__ import annotations

import ast
import io
import json
import os
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from steptime.core.schema import SCHEMA
from steptime.core.store import read_document, write_text
from steptime.measure.source.loop_marks import LoopMark, read_loop_rows
from steptime.record import files, kinds, rows
from steptime.record.lines import Line, kind_of, read_lines
from steptime.record.loaders import batch_rows
from steptime.record.loaders.batch_rows import SpentRow
from steptime.record.regular_file import read_regular

NAME = "source.json"
_MAX_FILES = 50
_MAX_LINES = 1000  # far more than there are sites
_MAX_FILE_BYTES = 1 << 20  # a longer file is generated, or not a script
_MAX_TEXT = 80
# Most suspicions of a file, and of those without a place.
_MANY = (
    *(kinds.UPDATES, kinds.MARKERS, kinds.BLOCK, kinds.PROGRESS, kinds.RESTED),
    *(kinds.DEVICE_TIMES, kinds.MEMORY),
    *(kinds.TAGS, kinds.COST, kinds.PAUSES, kinds.LOSSES, kinds.BATCHES),
)
# Lines of other people's code are shown, but nothing in them is suspected.
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

Place = tuple[str, int]
Row = list[object]
HeldPlace = tuple[str, str]
"""The class of a data set, and one of its attributes."""

SitePlace = tuple[str, str, int, int]
"""What happened there, the file, the first line and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMark:
    """Something in the source: a code of the contract, its place, and the line as it is."""

    code: str
    file: str
    line: int
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What `source.json` says; `texts` are lines by absolute file and number.

    `cells` has the number of a notebook's cell by the file name that its code was compiled under.
    `losses` are the lines that compute a loss, by the place of a backward call.
    `spent` has what instructions do that took time, by file, line and column (-1: not known).
    `loops` are loops over elements in the user's own code; `held` are the lines that set
    attributes of data sets, by holder and attribute.
    """

    texts: Mapping[Place, str] = field(default_factory=dict)
    cells: Mapping[str, int] = field(default_factory=dict)
    suspicions: tuple[SourceMark, ...] = ()
    switches: tuple[SourceMark, ...] = ()
    padding: tuple[SourceMark, ...] = ()
    loops: tuple[LoopMark, ...] = ()
    held: Mapping[HeldPlace, SourceMark] = field(default_factory=dict)
    reads: tuple[SourceMark, ...] = ()
    losses: Mapping[Place, SourceMark] = field(default_factory=dict)
    spent: Mapping[tuple[str, int, int], str] = field(default_factory=dict)


def write_source(run_folder: Path, *, cwd: str | None) -> None:
    """Read the source and write `source.json`; write nothing where no source can be read.

    Args:
        run_folder: folder of a run whose command has ended.
        cwd: the folder in which the command was started.

    Raises:
        OSError: the run folder cannot be read or written.
    """
    cells = read_cells(run_folder)
    named_by = _named(run_folder, cwd or "", cells)
    places, scripts = named_by.places, named_by.scripts
    held_in = {file for _, _, file in named_by.held if os.path.isabs(file)}
    named = sorted({*scripts, *held_in, *(file for file, _ in places)})[:_MAX_FILES]
    data = {file: text for file in named if (text := _content(file, cells)) is not None}
    numbers = [[file, cell.number] for file, cell in sorted(cells.items())]
    if not (data or numbers):
        return
    from steptime.measure.sense.loss_origin import loss_rows
    from steptime.measure.source.accumulation import find_suspicions
    from steptime.measure.source.data_reads import find_reads
    from steptime.measure.source.held_lines import find_held_lines
    from steptime.measure.source.kept_results import find_kept
    from steptime.measure.source.own_code import OwnCode, loop_rows
    from steptime.measure.source.pad_calls import find_padding_lines
    from steptime.measure.source.source_switches import find_switches
    from steptime.measure.spent.needless_calls import needless_rows

    lines = {file: _lines(content) for file, content in data.items()}
    suspicions, switches, padding = list[Row](), list[Row](), list[Row]()
    trees: dict[str, ast.Module] = {}
    for file, content in data.items():
        tree = None if _is_installed(file) else _parse(content)
        if tree is not None:
            trees[file] = tree
            for code, line in [*find_suspicions(tree), *find_kept(tree)]:
                suspicions.append([code, file, line, _text(lines[file], line)])
            switches += [[code, file, line] for code, line in find_switches(tree)]
            padding += [[code, file, line] for code, line in find_padding_lines(tree)]
    texts = [[file, n, _text(lines[file], n)] for file, n in sorted(places) if file in lines]
    marks: dict[str, object] = {"suspicions": suspicions, "switches": switches, "padding": padding}
    marks["spent"] = needless_rows(trees, named_by.spent)
    own = OwnCode(
        trees=trees,
        lines=lines,
        scripts=scripts,
        read=_read_module,
        cwd=cwd or "",
        data_sets=named_by.data_sets,
        data_files=[file for file in named_by.data_files if not _is_installed(file)],
        words=named_by.words,
    )
    with suppress(RecursionError):  # an expression of a thousand terms
        marks["loops"] = loop_rows(own, named_by.sites)
    marks["held"] = [
        [holder, attribute, file, line, _text(lines[file], line) or ""]
        for holder, attribute, file, line in find_held_lines(trees, sorted(named_by.held))
    ]
    files_of_sets = [file for file in named_by.data_files if not _is_installed(file)]
    mine = {file: module[0] for file in files_of_sets if (module := _read_module(file))}
    names = named_by.data_sets | set(named_by.words)
    marks["reads"] = [
        [name, file, line, _text(_lines(_read(file) or b""), line) or ""]
        for name, file, line in find_reads({**trees, **mine}, names)
    ]
    marks["losses"] = loss_rows(trees, named_by.places, lines)
    document = {"schema": SCHEMA, "lines": _known(texts), **marks}
    document |= {"cells": numbers} if numbers else {}
    write_text(run_folder / NAME, json.dumps(document) + "\n")


def _known(texts: list[list[Any]]) -> list[list[Any]]:
    return [row for row in texts if row[2] is not None][:_MAX_LINES]


def _is_installed(file: str) -> bool:
    """Return whether a file is other people's code."""
    return any(part in file for part in _INSTALLED)


def read_source(run_folder: Path) -> Source:
    """Return what `source.json` says, or nothing if it is missing, damaged or foreign."""
    document = read_document(run_folder / NAME)
    texts = {(row[0], row[1]): row[2] for row in _rows(document, "lines", (str, int, str))}
    suspicions = _rows(document, "suspicions", (str, str, int, str))
    switches = _rows(document, "switches", (str, str, int))
    padding = _rows(document, "padding", (str, str, int))
    held = _rows(document, "held", (str, str, str, int, str))
    reads = _rows(document, "reads", (str, str, int, str))
    losses = _rows(document, "losses", (str, int, int, str))
    spent = _rows(document, "spent", (str, str, int, int))
    return Source(
        texts=texts,
        cells=dict(_rows(document, "cells", (str, int))),
        suspicions=tuple(SourceMark(code=c, file=f, line=n, text=t) for c, f, n, t in suspicions),
        switches=tuple(SourceMark(code=c, file=f, line=n) for c, f, n in switches),
        padding=tuple(SourceMark(code=c, file=f, line=n) for c, f, n in padding),
        loops=read_loop_rows(document.get("loops")),
        held={(h, a): SourceMark(code="held", file=f, line=n, text=t) for h, a, f, n, t in held},
        losses={(f, n): SourceMark(code="loss", file=f, line=m, text=t) for f, n, m, t in losses},
        reads=tuple(SourceMark(code=c, file=f, line=n, text=t) for c, f, n, t in reads),
        spent={(file, line, column): code for code, file, line, column in spent},
    )


def _rows(document: Mapping[str, Any], name: str, types: tuple[type, ...]) -> list[Any]:
    """Return the rows of this shape; others are left out."""
    found = document.get(name)
    return [
        row
        for row in (found if isinstance(found, list) else ())
        if isinstance(row, list) and tuple(map(type, row)) == types
    ]


# -- the places that the record names


class _Named(NamedTuple):
    """What the record names: places, main scripts, sites of steps, and classes of data sets.

    `held` are attributes of data sets: the class, the attribute, and the class's file;
    `data_files` are the files of their classes, and `words` plain attributes by class.
    """

    places: set[Place]
    scripts: set[str]
    sites: set[SitePlace]
    data_sets: set[str]
    held: set[tuple[str, str, str]]
    data_files: set[str]
    words: dict[str, dict[str, object]]
    spent: set[SpentRow]


def _named(run_folder: Path, cwd: str, cells: Mapping[str, Cell]) -> _Named:
    places: set[Place] = set()
    scripts: set[str] = set()
    sites: set[SitePlace] = set()
    data_sets: set[str] = set()
    held: set[tuple[str, str, str]] = set()
    spent: set[SpentRow] = set()
    classes: list[tuple[str, str, dict[str, object]]] = []
    for path in sorted(run_folder.glob(files.RANKS)):
        for line in read_lines(path, without=_MANY):
            with suppress(LookupError, TypeError, ValueError):
                if kind_of(line) == kinds.HEAD:
                    scripts.add(os.path.join(cwd, str(line["argv"][0])))
                else:
                    places |= set(_places_of(line))
                if kind_of(line) == kinds.SITES:
                    sites |= {(s.what, s.file, s.line, s.end_line) for s in rows.sites(line)}
                if kind_of(line) == kinds.SPENT:
                    spent = set(batch_rows.spent(line))  # sums: the last line counts
                    places |= {(row.file, row.line) for row in spent}
                if kind_of(line) == kinds.LOADERS:
                    data_sets |= {str(one["dataset"]) for one in line["loaders"]}
                    held |= {
                        (str(one["holder"]), str(one["attribute"]), str(one["file"]))
                        for loader in line["loaders"]
                        for one in loader.get("objects", ())
                    }
                    classes += [
                        (str(one["name"]), str(one["file"]), dict(one["words"]))
                        for loader in line["loaders"]
                        for one in loader.get("classes", ())
                    ]
    for line in read_lines(run_folder / files.PROCESSES):
        error = line.get("error")
        if isinstance(error, dict):
            places |= set(_place(error.get("file"), error.get("line")))
    places = {place for place in places if os.path.isabs(place[0]) or place[0] in cells}
    scripts = {script for script in scripts if os.path.isabs(script)}
    data_files = {file for _, file, _ in classes if os.path.isabs(file)}
    return _Named(places, scripts, sites, data_sets, held, data_files, _words(classes), spent)


def _words(classes: list[tuple[str, str, dict[str, object]]]) -> dict[str, dict[str, object]]:
    """Return the attributes in which all data sets of a class agree."""
    found: dict[str, dict[str, object]] = {}
    for name, _, words in classes:
        same = found.get(name, words)
        found[name] = {key: same[key] for key in same if key in words and words[key] == same[key]}
    return found


def _places_of(line: Line) -> Iterator[Place]:
    if kind_of(line) in (kinds.SITES, kinds.SPANS):
        for site in rows.sites(line):
            yield from _place(site.file, site.line)
    elif kind_of(line) == kinds.AGAIN:
        for row in batch_rows.again(line):
            yield from _place(row.file, row.line)
    elif kind_of(line) == kinds.NON_FINITE:
        yield from _place(line.get("file"), line.get("line"))
    elif kind_of(line) == kinds.SENSE:
        facts = [line.get("evaluated"), line.get("broadcast"), *line.get("rates", ())]
        for one in filter(None, (fact and fact.get("place") for fact in facts)):
            yield from _place(one.get("file"), one.get("line"))
    elif kind_of(line) == kinds.COMPILED:
        _, breaks, recompiles = rows.compile_events(line)
        for event in (*breaks, *recompiles):
            yield from _place(event.file, event.line)


def _place(file: object, line: object) -> Iterator[Place]:
    if isinstance(file, str) and isinstance(line, int):
        yield file, line


# -- the cells of a notebook


class Cell(NamedTuple):
    """A cell: the number in the brackets of `In [3]`, and its text where the guest wrote it."""

    number: int
    text: str | None


def read_cells(run_folder: Path) -> dict[str, Cell]:
    """Return the cells that the guest told of, by the file names of their code."""
    cells: dict[str, Cell] = {}
    for line in read_lines(run_folder / files.PROCESSES):
        if not _is_about_cells(line):
            continue
        for name, number, text in _rows(line, "cells", (str, int, str)):
            cells[name] = Cell(number, text)
        for name, number, _ in _rows(line, "cells", (str, int, type(None))):
            cells[name] = Cell(number, cells[name].text if name in cells else None)
    return cells


def _is_about_cells(line: Line) -> bool:
    with suppress(LookupError, TypeError, ValueError):
        return kind_of(line) == kinds.CELLS
    return False


# -- what is in the source there


def _content(file: str, cells: Mapping[str, Cell]) -> bytes | None:
    """Return the text of a cell or a file; None if it is not known."""
    if file not in cells:
        return _read(file)
    text = cells[file].text
    return None if text is None else text.encode("utf-8", "replace")


def _read(file: str) -> bytes | None:
    """Return a file's bytes; None if it is gone, too long, or not plain (a pipe would block)."""
    try:
        return read_regular(file, max_bytes=_MAX_FILE_BYTES)
    except OSError:
        return None


def _read_module(file: str) -> tuple[ast.Module, list[str]] | None:
    """Return a module of the user's that a script imports; None if it is not there."""
    content = _read(file)
    tree = None if content is None else _parse(content)
    return None if content is None or tree is None else (tree, _lines(content))


def _lines(content: bytes) -> list[str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError:
        encoding = "utf-8"
    # Only Python's line ends count: `str.splitlines` has more, and the numbers would not match.
    text = content.decode(encoding, errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _text(lines: list[str], number: int) -> str | None:
    if not 0 < number <= len(lines):
        return None
    return lines[number - 1].strip()[:_MAX_TEXT] or None


def _parse(content: bytes) -> ast.Module | None:
    """Return the tree; None if this Python cannot parse it, because of newer syntax for example."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd escapes in the user's strings
        try:
            return ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
