"""Paints a report for a terminal: labels at the left, text wrapped, tables with bars.

In: blocks. Out: lines on a console. On a terminal with little room, parts go in the order of their
rank, and a line names those that went; into a file or a pipe, everything is written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import singledispatch

from rich.console import Console
from rich.text import Text

from steptime.core.printable import printable
from steptime.report.blocks.phrasing import GLUE, joined, plain, shortened
from steptime.report.blocks.values import (
    Bar,
    Blank,
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
    LinePlot,
    Markup,
    Reach,
    Section,
    Sheet,
    TableBlock,
    Ticks,
    Tiles,
)
from steptime.report.text.page import LABEL_WIDTH, Page, page_of

_TONES = {
    "info": "bold cyan",
    "warning": "bold yellow",
    "critical": "bold red",
    "good": "bold green",
    "bad": "bold red",
}
_BAR, _MIN_LAST, _MIN_DRAWN = 16, 8, 8
_NOTE_INDENT = 4
_REACH = {False: ("├", "─", "┤", "●", "│"), True: ("|", "-", "|", "o", ":")}
_MAX_CODE = 8
_SENTENCES = re.compile(r"(?<=[.:]) (?=[A-Z])")


def print_report(
    report: Sheet, *, console: Console, room: int | None = None, how: str | None = None
) -> None:
    """Print a report; a terminal has `room` lines for it, and `how` shows what did not fit."""
    page = page_of(console)
    parts = [part for part in report.parts if part.only != "page"]
    lines = _whole(report, parts, page)
    gone: list[str] = []
    while room is not None and console.is_terminal and len(lines) > room:
        least = max((part for part in parts if part.blocks), key=lambda part: part.rank)
        if not least.rank:
            break
        short = replace(least, blocks=least.brief, rank=least.brief_rank, brief=())
        parts = [short if part is least else part for part in parts]
        gone.append(least.name or least.title.lower())
        lines = _whole(report, parts, page, gone, how)
    page.write(lines)


def print_blocks(blocks: Iterable[Block], *, console: Console) -> None:
    """Print blocks that are no whole report."""
    page = page_of(console)
    page.write(paint(blocks, page))


def paint(blocks: Iterable[Block], page: Page) -> list[Text]:
    """Return the lines of blocks."""
    return [line for block in blocks for line in _paint(block, page)]


def _whole(
    report: Sheet,
    parts: Sequence[Section],
    page: Page,
    gone: Sequence[str] = (),
    how: str | None = None,
) -> list[Text]:
    blocks: list[Block] = []
    if report.command and report.is_headed:
        command = shortened(shlex.join(report.command), page.width - LABEL_WIDTH)
        blocks.append(Labeled("steptime", Text(command, style="bold")))
    if report.facts and report.is_headed:
        blocks.append(Labeled(report.kind, joined(map(printable, report.facts))))
    blocks += [block for part in parts[:-1] for block in part.blocks]
    if gone:
        blocks.append(Labeled("left out", Text(_left_out(gone, how, page), style="dim")))
    blocks += [block for part in parts[-1:] for block in part.blocks]
    return paint(_without_double_gaps(blocks), page)


def _left_out(gone: Sequence[str], how: str | None, page: Page) -> str:
    """Name what there was no room for, in one line, and the command that shows it."""
    names = list(dict.fromkeys(reversed(gone)))
    for num in range(len(names), 0, -1):
        more = f" and {len(names) - num} more" if num < len(names) else ""
        text = f"{', '.join(names[:num])}{more}" + (f"; {how} has all" if how else "")
        if len(text) <= page.width - LABEL_WIDTH:
            break
    return text


def _without_double_gaps(blocks: Iterable[Block]) -> list[Block]:
    kept: list[Block] = []
    for block in blocks:
        if isinstance(block, Tiles | LinePlot | Fold):
            continue
        if isinstance(block, Blank) and (not kept or isinstance(kept[-1], Blank)):
            continue
        kept.append(block)
    return kept[:-1] if kept and isinstance(kept[-1], Blank) else kept


# -- blocks


@singledispatch
def _paint(block: object, page: Page) -> list[Text]:
    return []  # pictures, tiles and what is folded are for the page


@_paint.register
def _(block: Blank, page: Page) -> list[Text]:
    return [Text()]


@_paint.register
def _(block: Labeled, page: Page) -> list[Text]:
    text = _safe(block.text)
    if block.max_lines is not None:
        text = shortened(plain(text), block.max_lines * (page.width - LABEL_WIDTH))
    return page.block(block.label, text, style=block.style)


@_paint.register
def _(block: Headline, page: Page) -> list[Text]:
    title = Text(printable(block.title), style=_TONES[block.severity])
    text = _safe(block.text)
    sentences = _SENTENCES.split(text) if isinstance(text, str) and block.max_lines else [text]
    while True:
        joint = " ".join(sentences) if len(sentences) > 1 else sentences[0]  # type: ignore[arg-type]
        told = [": ", joint] if plain(joint) else []
        lines = page.block(block.label, Text.assemble(title, *told))
        if len(sentences) == 1 or len(lines) <= (block.max_lines or len(lines)):
            return lines
        sentences.pop()


@_paint.register
def _(block: Heading, page: Page) -> list[Text]:
    return [Text(), Text(printable(block.text), style="bold")]


@_paint.register
def _(block: CommandLine, page: Page) -> list[Text]:
    lead = Text(block.lead) if isinstance(block.lead, str) else block.lead
    command = printable(block.command)
    if block.is_below or LABEL_WIDTH + lead.cell_len + len(command) > page.width:
        head = page.block(block.label, lead) if block.label or lead.plain else []
        return [*head, Text(" " * LABEL_WIDTH + command, style="bold")]
    return page.block(block.label, Text.assemble(lead, (command.replace(" ", GLUE), lead.style)))


@_paint.register
def _(block: Code, page: Page) -> list[Text]:
    lines = block.text.splitlines()
    if block.language == "diff":  # without the names of the files and what stays
        lines = [line for line in lines[2:] if line.startswith(("-", "+"))]
    if block.is_whole:
        return [Text(f"  {printable(line)}".rstrip()) for line in lines]
    styles = {"-": "red", "+": "green"}
    shown = [
        Text.assemble(
            " " * LABEL_WIDTH,
            (shortened(line, page.width - LABEL_WIDTH), styles.get(line[:1], "")),
        )
        for line in lines[:_MAX_CODE]
    ]
    if len(lines) > _MAX_CODE:
        more = f"more lines in the document of --json: {len(lines) - _MAX_CODE}"
        shown += page.block("", more, style="dim")
    head = page.block(block.label, _safe(block.lead)) if block.label or plain(block.lead) else []
    return [*head, *shown]


@_paint.register
def _(block: Items, page: Page) -> list[Text]:
    lines: list[Text] = []
    for number, item in enumerate(block.items, start=1):
        head = f"{number:>3}. " if block.is_numbered else "  - "
        body = Text(item) if isinstance(item, str) else item.copy()
        rows = page.folded(body, page.width - len(head))
        lines += [
            Text.assemble((" " * len(head) if index else head, "dim"), row)
            for index, row in enumerate(rows)
        ]
    return lines


@_paint.register
def _(block: TableBlock, page: Page) -> list[Text]:
    more = len(block.rows) - (block.most or len(block.rows))
    if more > 0:
        kept = replace(block, rows=block.rows[: block.most], notes=block.notes[: block.most])
        return [*_paint(kept, page), Text(f"and {more:,} more", style="dim")]
    indent = 0 if block.label is None else LABEL_WIDTH
    drawn = next((i for i, c in enumerate(_first(block)) if isinstance(c, Bar | Reach)), None)
    is_last = drawn is not None and drawn == len(block.heading) - 1
    width = _BAR
    if drawn is not None:
        left = page.width - indent - _laid_out(block, page, drawn, 0)[0].cell_len
        is_wide = is_last or any(isinstance(row[drawn], Reach) for row in block.rows)
        width = left if is_wide else min(left, _BAR)
        width = width if width >= _MIN_DRAWN else 0  # else the numbers would have no room
    lines = _laid_out(block, page, drawn, width)
    if block.cut_last and page.console.is_terminal:
        for line in lines:
            line.truncate(max(_MIN_LAST, page.width - indent), overflow="ellipsis")
    return _with_notes(block, _labeled(block, lines), page)


def _first(block: TableBlock) -> Sequence[Cell]:
    return block.rows[0] if block.rows else ()


def _laid_out(block: TableBlock, page: Page, drawn: int | None, width: int) -> list[Text]:
    has_heading = any(not isinstance(cell, str) or cell for cell in block.heading)
    rows = [block.heading, *block.rows] if has_heading else list(block.rows)
    cells = [
        [_cell(cell, page, width if i == drawn else _BAR) for i, cell in enumerate(row)]
        for row in rows
    ]
    if not cells:
        return []
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        for i, cell in enumerate(row):
            is_last = i == len(row) - 1
            is_text = i < block.left or i == drawn or (is_last and block.cut_last)
            if not (is_last and is_text):
                cell.align("left" if is_text else "right", widths[i])
        lines.append(Text("  ").join(row))
    if has_heading:
        lines[0].stylize("dim")
    return lines


def _labeled(block: TableBlock, lines: list[Text]) -> list[Text]:
    if block.label is None:
        return lines
    return [
        Text.assemble((f"{'' if i else block.label:<{LABEL_WIDTH}}", "dim"), line)
        for i, line in enumerate(lines)
    ]


def _with_notes(block: TableBlock, lines: list[Text], page: Page) -> list[Text]:
    if not block.notes:
        return lines
    found = lines[: len(lines) - len(block.rows)]
    for line, note in zip(lines[len(found) :], block.notes, strict=True):
        found.append(line)
        if plain(note):
            body = Text(note, style="dim") if isinstance(note, str) else note
            rows = body.wrap(page.console, page.width - _NOTE_INDENT)
            found += [Text(" " * _NOTE_INDENT) + row for row in rows]
    return found


def _cell(cell: Cell, page: Page, width: int) -> Text:
    if isinstance(cell, Bar):
        return Text(_drawn(cell, page, width), style=cell.tone) if width else Text()
    if isinstance(cell, Reach):
        return Text(drawn_reach(cell, width, ascii_only=page.ascii_only)) if width else Text()
    if isinstance(cell, Ticks):
        return Text(_ticks(cell, width)) if width else Text()
    if isinstance(cell, Markup):
        return Text()
    text = Text(printable(plain(cell))) if isinstance(cell, str) else cell.copy()
    text.plain = text.plain.replace(GLUE, " ")
    return text


def _drawn(cell: Bar, page: Page, width: int) -> str:
    whole = sum(max(0.0, part) for _, part in cell.parts)
    if not cell.begins:
        return page.bar(whole, width)
    start = min(round(cell.begins * width), width - 1)
    length = max(1, round((cell.begins + whole) * width) - start)
    return (" " * start + page.bar(1.0, length)).ljust(width)[:width]


def drawn_reach(cell: Reach, width: int, *, ascii_only: bool) -> str:
    """Return an interval with its ends and its estimate, and the mark of no change."""
    start, line, end, dot, one = _REACH[ascii_only]
    cells = [" "] * width

    def column(place: float) -> int:
        return min(width - 1, max(0, round(place * (width - 1))))

    cells[column(cell.one)] = one
    if cell.interval is not None:
        low, middle, high = map(column, cell.interval)
        cells[low : high + 1] = [line] * (high - low + 1)
        cells[low], cells[high] = start, end
        cells[middle] = dot
    return "".join(cells)


def _ticks(cell: Ticks, width: int) -> str:
    """Return the words of the marks that have room, the first of them first."""
    cells = [" "] * width
    for word, place, _ in cell.marks:
        start = max(0, min(width - len(word), round(place * (width - 1)) - len(word) // 2))
        around = cells[max(0, start - 1) : start + len(word) + 1]
        if all(one == " " for one in around):
            cells[start : start + len(word)] = list(word)
    return "".join(cells)


def _safe(text: Inline) -> Inline:
    """Return plain text without control characters; styled text is safe already."""
    if not isinstance(text, str):
        return text
    return GLUE.join(map(printable, text.split(GLUE)))
