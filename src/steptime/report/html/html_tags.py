"""Makes markup that can be trusted: elements made from text that is always escaped.

In: text that may hold anything (arguments, paths, messages of exceptions). Out: `Html`. A plain
string never becomes markup: outside this file, `Html` is made only of the page's own style, scripts
and places for plots.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

from steptime.core.printable import printable

_VOID = frozenset({"br", "meta", "wbr"})


@dataclass(frozen=True, slots=True)
class Html:
    """Text that is already markup."""

    text: str


Child = Html | str | None


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Return an element; an attribute that is None or False is left out, `class_` is `class`.

    Names of elements and attributes are ours, never the user's.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.rstrip("_").replace("_", "-")
        parts.append(shown if value is True else f'{shown}="{escaped(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    if name in _VOID:
        return Html(opening)
    return Html(f"{opening}{joined_html(children).text}</{name}>")


def joined_html(children: Iterable[Child], *, between: str = "") -> Html:
    """Return the children one after the other, strings escaped; `between` is text as well."""
    texts = [c.text if isinstance(c, Html) else escaped(c) for c in children if c is not None]
    return Html(html.escape(between).join(texts))


def escaped(text: str) -> str:
    """Return the text as it is shown: no markup, no control character, no change of direction."""
    return html.escape(printable(text))


def breakable(text: str) -> Html:
    """Return the text, which a browser may fold behind each underscore."""
    first, *others = text.split("_")
    return joined_html([first, *(part for one in others for part in ("_", tag("wbr"), one))])


def preformatted(text: str) -> Html:
    """Return text that keeps its lines; each of them is escaped."""
    return tag("pre", joined_html(text.rstrip("\n").split("\n"), between="\n"))


def table(
    heading: Iterable[Child], rows: Iterable[Iterable[Child]], *, left: int = 1, name: str = ""
) -> Html:
    """Return a table in a box that scrolls; the first `left` columns are text, others numbers."""
    head = tag("tr", *(_cell("th", c, is_text=i < left) for i, c in enumerate(heading)))
    body = [
        tag("tr", *(_cell("td", c, is_text=i < left) for i, c in enumerate(row))) for row in rows
    ]
    whole = tag("table", tag("thead", head), tag("tbody", *body), aria_label=name or None)
    return tag("div", whole, class_="scroll")


def _cell(kind: str, child: Child, *, is_text: bool) -> Html:
    return tag(kind, child, class_=None if is_text else "number")
