"""Shows widths of a model that would suit its device better, with gain and price.

In: a `ShapeAdvice`. Out: lines of labeled blocks and a table.
"""

from __future__ import annotations

from rich.text import Text

from steptime.plan.values.shape_values import ShapeAdvice
from steptime.report.blocks.phrasing import joined
from steptime.report.text.page import Page, columns
from steptime.report.words import shape_words as words

_LABELS = {"gated": "mlp", "inner": "mlp", "vocabulary": "vocab"}


def shapes_lines(advice: ShapeAdvice, *, page: Page) -> list[Text]:
    """Return what was seen, the proposals as a table, and the widths that stay."""
    told = joined([words.describe_seen(advice.seen), words.describe_device(advice.device)])
    lines = [*page.block("seen", told), Text()]
    if advice.rule is None:
        text = words.describe_unknown(advice.device)
        return [*lines, *page.block("device", text), *_kept_lines(advice, page)]
    if not advice.proposals:
        lines += page.block("widths", words.ALL_SUIT)
    else:
        rows = [words.describe_proposal(one) for one in advice.proposals]
        lines += columns([words.HEAD, *rows], left=4)
        lines.append(Text())
        for one in advice.proposals:
            lines += page.block(_LABELS.get(one.role, one.role), joined(words.describe_where(one)))
        lines.append(Text())
        for note in words.describe_notes(advice.proposals):
            lines += page.block("note", note)
    return [*lines, *_kept_lines(advice, page)]


def _kept_lines(advice: ShapeAdvice, page: Page) -> list[Text]:
    lines: list[Text] = []
    for sizes, why in words.describe_kept(advice):
        lines += page.block("stays", f"{joined(sizes)}: {why}")
    return lines
