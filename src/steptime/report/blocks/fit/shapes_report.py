"""Makes the report of `plan shapes`: better widths, their gains, price and place.

In: a `ShapeAdvice`. Out: blocks. Words come from `shape_words`.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_count, format_seconds
from steptime.plan.values.shape_values import Product, ShapeAdvice
from steptime.report.blocks.phrasing import joined, labeled, sections
from steptime.report.blocks.values import (
    Block,
    Headline,
    Sheet,
    TableBlock,
)
from steptime.report.words.fit import shape_words as words

_LABELS = {"gated": "mlp", "inner": "mlp", "vocabulary": "vocab"}
_MOST_PRODUCTS = 20
_PRODUCTS = "The matmuls and convolutions of a step"


def shapes_report(advice: ShapeAdvice, *, command: Sequence[str]) -> Sheet:
    """Return the report of an advice on widths for the user's command."""
    proposals = advice.proposals if advice.rule is not None else ()
    rows = [words.describe_proposal(one) for one in proposals]
    where = [(_LABELS.get(p.role, p.role), joined(words.describe_where(p))) for p in proposals]
    notes = words.describe_notes(proposals) if proposals else []
    stay = [("stays", f"{joined(sizes)}: {why}") for sizes, why in words.describe_kept(advice)]
    seen = joined([words.describe_seen(advice.seen), words.describe_device(advice.device)])
    parts: tuple[tuple[str, list[Block]], ...] = (
        ("", [Headline("widths", _answer(advice)), *labeled(("seen", seen))]),
        ("The proposals", [TableBlock(words.HEAD, rows, left=4, name="Widths")] if rows else []),
        ("Where they are", labeled(*where)),
        ("What to know", labeled(*(("note", note) for note in notes), *stay)),
        (_PRODUCTS, _products(advice)),
    )
    told = sections(parts, pages=(_PRODUCTS,))
    return Sheet(kind="advice on widths", command=command, parts=told)


def _answer(advice: ShapeAdvice) -> str:
    if advice.rule is None:
        return words.describe_unknown(advice.device)
    num = len({(one.role, one.old) for one in advice.proposals})
    if not num:
        return words.ALL_SUIT
    if num == 1:
        return "one width of which another size suits the device better"
    return f"{num} widths of which another size suits the device better"


def _products(advice: ShapeAdvice) -> list[Block]:
    """List the products that took longest, and say how many more there are."""
    seen = advice.seen
    rows = [_product(one) for one in seen.products[:_MOST_PRODUCTS]]
    heading = ("product", "pass", "module", "sizes", "type", "times", "time")
    num = len(seen.products) - len(rows) + seen.num_left_out
    more = f"{format_count(num)} more, shorter ones." if num else None
    return [TableBlock(heading, rows, left=5, name=_PRODUCTS), *labeled(("", more))] if rows else []


def _product(one: Product) -> tuple[str, ...]:
    return (
        one.kind,
        one.which,
        one.module or one.module_kind or "–",
        words.describe_sizes(one),
        one.dtype,
        str(one.num),
        "–" if one.time_s is None else format_seconds(one.time_s),
    )
