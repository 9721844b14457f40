"""Makes the report of `plan shapes`: better widths, their gains, price and place.

In: a `ShapeAdvice`. Out: blocks. Words come from `shape_words`.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_count, format_seconds
from steptime.plan.values.shape_values import Product, Proposal, ShapeAdvice
from steptime.report.blocks.phrasing import joined, labeled, sections
from steptime.report.blocks.values import (
    Block,
    Headline,
    Reach,
    Sheet,
    TableBlock,
    Ticks,
)
from steptime.report.words.fit import shape_words as words

_LABELS = {"gated": "mlp", "inner": "mlp", "vocabulary": "vocab"}
_MOST_PRODUCTS = 20
_GAINS, _PRODUCTS = "What a better width gives", "The matmuls and convolutions of a step"


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
        (_GAINS, _gains(proposals)),
        ("The proposals", [TableBlock(words.HEAD, rows, left=4, name="Widths")] if rows else []),
        ("Where they are", labeled(*where)),
        ("What to know", labeled(*(("note", note) for note in notes), *stay)),
        (_PRODUCTS, _products(advice)),
    )
    return Sheet(
        kind="advice on widths", command=command, parts=sections(parts, pages=(_GAINS, _PRODUCTS))
    )


def _answer(advice: ShapeAdvice) -> str:
    if advice.rule is None:
        return words.describe_unknown(advice.device)
    num = len({(one.role, one.old) for one in advice.proposals})
    if not num:
        return words.ALL_SUIT
    if num == 1:
        return "one width of which another size suits the device better"
    return f"{num} widths of which another size suits the device better"


def _gains(proposals: Sequence[Proposal]) -> list[Block]:
    """Draw each proposal's rate of work over today's: predicted, and measured with its interval."""
    if not proposals:
        return []
    drawn = [row for one in proposals for row in _gains_of(one)]
    low = min(0.9, *(span[0] for _, span in drawn))
    high = 1.02 * max(1.1, *(span[2] for _, span in drawn))

    def place(gain: float) -> float:
        return (gain - low) / (high - low)

    rows = [
        (
            name,
            Reach((place(least), place(middle), place(most)), place(1.0), _kind(least, most)),
            f"{middle:.2f}x",
        )
        for name, (least, middle, most) in drawn
    ]
    heading = ("", Ticks([("1.00x", place(1.0), True)]), "rate of work")
    told = (
        "Work per second of the operators that change, as a multiple of today's. Measured (with "
        "--measure): the operators alone, old and new in turns, with the interval."
    )
    table = TableBlock(heading, rows, left=2, name=_GAINS, kind="gains")
    return [table, *labeled(("", told))]


def _gains_of(one: Proposal) -> list[tuple[str, tuple[float, float, float]]]:
    """Return the predicted gain, and the measured one, each with the ends of its interval."""
    name = f"{words.ROLES[one.role]} {one.old} to {one.new}"
    found = [(f"{name}, predicted", (one.predicted_gain,) * 3)]
    gain = None if one.measured is None else one.measured.gain
    if gain is not None:
        low, high = _ends(one) or (gain, gain)
        found.append((f"{name}, measured", (low, gain, high)))
    return found


def _kind(low: float, high: float) -> str:
    return "gain" if low > 1 else "loss" if high < 1 else "even"


def _ends(one: Proposal) -> tuple[float, float] | None:
    """The interval of the measured rate: that of the time, turned over and scaled by the work."""
    found = one.measured
    if found is None or found.gain is None or found.time_ratio is None:
        return None
    ratio = found.time_ratio
    if min(ratio.low, ratio.estimate, ratio.high) <= 0:
        return None
    work = found.gain * ratio.estimate
    return work / ratio.high, work / ratio.low


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
