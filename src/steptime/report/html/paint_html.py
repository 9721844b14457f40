"""Paints a report as a page: one file that needs no network, with its contents at the side.

In: blocks. Out: markup, or the text of the whole file. Texts are escaped by `html_tags`; drawings
are markup that this package made.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from functools import singledispatch
from importlib import resources
from itertools import groupby, pairwise

from steptime.report.blocks.phrasing import GLUE, capitalized, plain
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
from steptime.report.html.html_tags import Html, breakable, joined_html, preformatted, table, tag
from steptime.report.html.line_plot import draw_plot

_CLASSES = {"yellow": "warn", "green": "good", "red": "bad", "dim": "dim", "cyan": "code"}
_MAX_ROWS, _MAX_FOLDED = 64, 500
_POLICY = (
    "default-src 'none'; script-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""No address may be reached, no script runs, styles are inline."""


def paint_page(report: Sheet, *, version: str = "") -> str:
    """Return the whole file; `version` is that of Steptime."""
    parts = [part for part in report.parts if part.only in (None, "page")]
    top = [part for part in parts if not part.title]
    titled = [part for part in parts if part.title]
    titles = list(dict.fromkeys(part.title for part in titled if paint(part.blocks)))
    sections = [
        tag(
            "section",
            tag("h2", title),
            *(_top(part) for part in titled if part.title == title),
            id=_anchor(title),
        )
        for title in titles
    ]
    opening = [_header(report, version), *filter(None, map(_top, top))]
    contents = [_contents(titles)] if len(titles) > 2 else []
    title = f"steptime {report.facts[0] if report.facts else report.title}".strip()
    return _frame(title, [*opening, *contents, *sections])


def _frame(title: str, parts: Sequence[Html]) -> str:
    """Return the file with its style."""
    style = (resources.files("steptime.report") / "assets" / "page.css").read_text("utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(style)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *parts), lang='en').text}\n"


def _contents(titles: Sequence[str]) -> Html:
    links = [tag("li", tag("a", title, href=f"#{_anchor(title)}")) for title in titles]
    return tag("nav", tag("ul", *links), aria_label="Contents", class_="contents screen")


def _anchor(title: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in title.lower())


def _header(report: Sheet, version: str) -> Html:
    words = [tag("span", shlex.quote(word), class_="word") for word in report.command]
    name = f" report of one {report.kind}" + (f" · Steptime {version}" if version else "")
    return tag(
        "header",
        tag("p", tag("b", "steptime"), name, class_="dim"),
        tag("h1", tag("code", joined_html(words, between=" ")) if words else report.title),
        tag("p", " · ".join(report.facts), class_="bad" if report.style else "dim"),
    )


def _top(part: Section) -> Html | None:
    """Return a part: as a card where it has a headline."""
    found = paint(part.blocks)
    first = next((one for one in part.blocks if isinstance(one, Headline)), None)
    if found is None or first is None:
        return found
    severity = {"good": "info", "bad": "critical"}.get(first.severity, first.severity)
    return tag("div", found, class_=f"card {severity}")


def paint(blocks: Iterable[Block]) -> Html | None:
    """Return the markup of blocks; lines that follow each other are one group."""
    found: list[Html] = []
    for is_line, group in groupby(blocks, key=lambda block: isinstance(block, Labeled)):
        made = [one for one in map(_paint, group) if one is not None]
        if made:
            found += [tag("div", *made, class_="told")] if is_line else made
    return joined_html(found) if found else None


# -- blocks


@singledispatch
def _paint(block: object) -> Html | None:
    return None


@_paint.register
def _(block: Blank) -> Html | None:
    return None


@_paint.register
def _(block: Labeled) -> Html | None:
    label = tag("span", f"{block.label} ", class_="dim") if block.label else None
    return tag("p", label, inline(block.text), class_=_CLASSES.get(block.style))


@_paint.register
def _(block: Headline) -> Html | None:
    text = plain(block.text)
    return joined_html(
        [tag("h2", capitalized(block.title)), tag("p", capitalized(text)) if text else None]
    )


@_paint.register
def _(block: Heading) -> Html | None:
    return tag("h3", block.text)


@_paint.register
def _(block: CommandLine) -> Html | None:
    lead = plain(block.lead).strip()
    return joined_html([tag("p", capitalized(lead)) if lead else None, preformatted(block.command)])


@_paint.register
def _(block: Code) -> Html | None:
    lead = inline(block.lead) if plain(block.lead) else tag("b", block.label)
    has_lead = block.label or plain(block.lead)
    return joined_html([tag("p", lead) if has_lead else None, preformatted(block.text)])


@_paint.register
def _(block: Items) -> Html | None:
    items = [tag("li", inline(item)) for item in block.items]
    return tag("ol" if block.is_numbered else "ul", *items, class_="notes") if items else None


@_paint.register
def _(block: TableBlock) -> Html | None:
    if not block.rows:
        return None
    notes = block.notes or [""] * len(block.rows)
    rows = [
        [_cell(cell, note if i == 0 else "") for i, cell in enumerate(row)]
        for row, note in zip(block.rows, notes, strict=True)
    ]
    heading = [_cell(cell, "") for cell in block.heading]
    shown = _table(block, heading, rows[:_MAX_ROWS])
    more = rows[_MAX_ROWS:_MAX_FOLDED]
    if not more:
        return shown
    left = len(rows) - len(more) - _MAX_ROWS
    told = tag("p", f"{left:,} more are in the document of --json.", class_="dim") if left else None
    title = tag("summary", f"{len(rows) - _MAX_ROWS:,} more")
    return joined_html([shown, tag("details", title, _table(block, heading, more)), told])


def _table(block: TableBlock, heading: Sequence[Html], rows: Sequence[Sequence[Html]]) -> Html:
    shown = table(heading, rows, left=block.left, name=block.name)
    return tag("div", shown, class_=block.kind) if block.kind else shown


@_paint.register
def _(block: Tiles) -> Html | None:
    found = [
        tag(
            "div",
            tag("span", one.name, class_="dim"),
            tag("strong", one.value),
            tag("span", one.detail, class_="dim"),
        )
        for one in block.tiles
    ]
    return tag("div", *found, class_="tiles") if found else None


@_paint.register
def _(block: LinePlot) -> Html | None:
    return draw_plot(block)


@_paint.register
def _(block: Fold) -> Html | None:
    inside = paint(block.blocks)
    return None if inside is None else tag("details", tag("summary", block.title), inside)


# -- inline


def inline(text: Inline) -> Html:
    """Return text with its styles as elements."""
    if isinstance(text, str):
        return joined_html([text.replace(GLUE, " ")])
    parts = []
    ends = sorted({0, len(text), *(e for span in text.spans for e in (span.start, span.end))})
    for begin, end in pairwise(ends):
        words = text.plain[begin:end].replace(GLUE, " ")
        styles = " ".join(str(s.style) for s in text.spans if s.start <= begin and end <= s.end)
        parts.append(_styled(words, styles or str(text.style)))
    return joined_html(parts)


def _styled(words: str, styles: str) -> Html | str:
    names = [_CLASSES[word] for word in styles.split() if word in _CLASSES]
    if "bold" in styles.split() and "not" not in styles.split():
        return tag("b", words, class_=" ".join(names) or None)
    return tag("span", words, class_=" ".join(names)) if names else words


def _cell(cell: Cell, note: Inline) -> Html:
    if isinstance(cell, Bar):
        return _bar(cell)
    if isinstance(cell, Reach):
        return _reach(cell)
    if isinstance(cell, Ticks):
        return _ticks(cell)
    if isinstance(cell, Markup):
        return Html(cell.markup)
    told = breakable(cell) if isinstance(cell, str) and "_" in cell else inline(cell)
    if not plain(note):
        return told
    return joined_html([told, tag("span", inline(note), class_="arithmetic dim")])


def _bar(cell: Bar) -> Html:
    marks, begun = [], cell.begins
    for kind, share in cell.parts:
        if share > 0:
            marks.append(_piece(kind, begun, begun + share))
            begun += share
    if cell.reach is not None:
        marks.append(_piece("reach", *cell.reach))
    return tag("span", *marks, class_="step-bar", aria_hidden="true")


def _piece(kind: str, low: float, high: float) -> Html:
    left, width = 100 * min(max(low, 0.0), 0.995), max(0.3, 100 * (min(high, 1.0) - low))
    color = f"background:{kind};" if kind.startswith("#") else ""
    style = f"{color}left:{left:.2f}%;width:{width:.2f}%"
    return tag("i", class_=None if color else kind, style=style)


def _reach(cell: Reach) -> Html:
    marks: list[Html] = []
    if cell.noise is not None:
        marks.append(_piece("noise", *cell.noise))
    marks.append(tag("i", class_="one", style=f"left:{100 * cell.one:.1f}%"))
    if cell.interval is not None:
        low, middle, high = cell.interval
        marks.append(_piece(f"reach {cell.kind}", low, high))
        marks.append(tag("i", class_=f"middle {cell.kind}", style=f"left:{100 * middle:.1f}%"))
    return tag("span", *marks, class_="forest", aria_hidden="true")


def _ticks(cell: Ticks) -> Html:
    marks = [
        tag("i", word, class_=None if is_narrow else "minor", style=f"left:{100 * place:.1f}%")
        for word, place, is_narrow in cell.marks
    ]
    return tag("span", *marks, class_="forest axis")
