"""Paints a report as Markdown: for a pull request, an issue, or an agent that reads.

In: a report. Out: GitHub's Markdown. What the user wrote is escaped, so that it stays text; bars
and drawings are left out, as the numbers beside them say the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from functools import singledispatch

from steptime.core.printable import printable
from steptime.report.blocks.phrasing import capitalized, plain
from steptime.report.blocks.values import (
    Bar,
    Block,
    Cell,
    Code,
    CommandLine,
    Fold,
    Heading,
    Headline,
    Inline,
    Items,
    Labeled,
    Reach,
    Section,
    Sheet,
    TableBlock,
    Ticks,
)

_SPECIAL = re.compile(r"([\\`*\[\]<>|#~]|(?<!\w)_|_(?!\w))")
_ADDRESS = re.compile(r"(https?://[^\s<>]*[^\s<>.,;:)])")
_DRAWN = (Bar, Reach, Ticks)
_RULES = {True: "---", False: "---:"}


def paint_markdown(report: Sheet) -> str:
    """Return the whole report, each part under its title."""
    parts = [part for part in report.parts if part.only != "page"]
    head = [f"## Steptime: {report.kind}"]
    if report.command or report.title:
        name = _escaped(report.title)
        head += ["", _code_span(shlex.join(report.command)) if report.command else name]
    if report.facts:
        head += ["", " · ".join(_escaped(fact) for fact in report.facts)]
    text = "\n".join([*head, *(line for part in _by_title(parts) for line in part)])
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _by_title(parts: Iterable[Section]) -> Iterable[list[str]]:
    last = ""
    for part in parts:
        lines = paint(part.blocks)
        if not lines:
            continue
        title = (
            ["", f"### {_escaped(part.title)}", ""] if part.title and part.title != last else [""]
        )
        last = part.title or last
        yield [*title, *lines]


def paint(blocks: Iterable[Block]) -> list[str]:
    """Return the lines of blocks."""
    return [line for block in blocks for line in _paint(block)]


@singledispatch
def _paint(block: object) -> list[str]:
    return []


@_paint.register
def _(block: Labeled) -> list[str]:
    text = _inline(block.text)
    if not text:
        return []
    return [f"- **{_escaped(block.label.strip())}**: {text}" if block.label else f"  - {text}"]


@_paint.register
def _(block: Headline) -> list[str]:
    text = _inline(block.text)
    return ["", f"**{_escaped(capitalized(block.title))}**" + (f": {text}" if text else ""), ""]


@_paint.register
def _(block: Heading) -> list[str]:
    return ["", f"#### {_escaped(block.text)}", ""]


@_paint.register
def _(block: CommandLine) -> list[str]:
    lead = _inline(block.lead).strip()
    return ["", *([capitalized(lead), ""] if lead else []), *_fenced(block.command, "sh")]


@_paint.register
def _(block: Code) -> list[str]:
    return [
        "",
        *([f"{_escaped(block.label)}:", ""] if block.label else []),
        *_fenced(block.text, block.language),
    ]


@_paint.register
def _(block: Items) -> list[str]:
    signs = [f"{i}." if block.is_numbered else "-" for i in range(1, len(block.items) + 1)]
    return ["", *(f"{s} {_inline(one)}" for s, one in zip(signs, block.items, strict=True)), ""]


@_paint.register
def _(block: TableBlock) -> list[str]:
    if not block.rows:
        return []
    kept = [i for i, cell in enumerate(block.rows[0]) if not isinstance(cell, _DRAWN)]
    notes = block.notes or [""] * len(block.rows)
    has_notes = any(map(plain, notes))
    rows = [
        [*(_cell(row[i]) for i in kept), *([_inline(note)] if has_notes else [])]
        for row, note in zip(block.rows, notes, strict=True)
    ]
    heading = [*(_cell(block.heading[i]) for i in kept), *([""] if has_notes else [])]
    rules = [_RULES[i < block.left] for i in kept] + (["---"] if has_notes else [])
    return ["", *("| " + " | ".join(row) + " |" for row in (heading, rules, *rows)), ""]


@_paint.register
def _(block: Fold) -> list[str]:
    inside = paint(block.blocks)
    if not inside:
        return []
    title = f"<details><summary>{_escaped(block.title)}</summary>"
    return ["", title, "", *inside, "", "</details>"]


def _fenced(text: str, language: str = "") -> list[str]:
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = [printable(line) for line in text.rstrip("\n").split("\n")]
    return [f"{fence}{language}", *lines, fence, ""]


def _code_span(text: str) -> str:
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    ticks = "`" * (longest + 1)
    gap = " " if longest else ""
    return f"{ticks}{gap}{printable(text)}{gap}{ticks}"


def _cell(cell: Cell) -> str:
    return "" if isinstance(cell, _DRAWN) else _inline(cell)


def _inline(text: Inline) -> str:
    """Return the text escaped; what is bold stays bold."""
    if isinstance(text, str):
        return _escaped(plain(text))
    found, at = "", 0
    for span in sorted(text.spans, key=lambda one: one.start):
        if "bold" in str(span.style).split() and span.start >= at:
            found += _escaped(plain(text.plain[at : span.start]))
            bold = plain(text.plain[span.start : span.end])
            found += _bold(bold)
            at = span.end
    rest = _escaped(plain(text.plain[at:]))
    return _bold(plain(text)) if not found and "bold" in str(text.style).split() else found + rest


def _bold(text: str) -> str:
    """Return the text in bold; spaces at its ends stay outside."""
    bare = text.strip()
    return text.replace(bare, f"**{_escaped(bare)}**") if bare else text


def _escaped(text: str) -> str:
    """Return the text as it is shown; an address is a link."""
    parts = _ADDRESS.split(printable(text))
    return "".join(f"<{p}>" if i % 2 else _SPECIAL.sub(r"\\\1", p) for i, p in enumerate(parts))
