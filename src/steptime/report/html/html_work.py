"""Makes the part of the page on steps whose inputs differ in size: how often, and their work."""

from __future__ import annotations

from steptime.core.units import format_count, format_flops, format_percent
from steptime.measure.values.model.work import Count, SizeGroup
from steptime.report.html.html_tags import Html, table


def sizes_part(count: Count | None) -> Html | None:
    """Return one row for each size, or group of sizes; nothing where all steps have one size."""
    basis = None if count is None else count.basis
    if basis is None or not basis.sizes:
        return None
    whole = sum(one.num_steps * one.mean_flops for one in basis.sizes)
    num = sum(one.num_steps for one in basis.sizes)
    rows = [_cells(one, num=num, whole=whole) for one in basis.sizes]
    heading = ["rows", "elements", "steps", "share of steps", "mean work", "share of work"]
    return table(heading, rows, name="Steps by the size of their inputs")


def _cells(one: SizeGroup, *, num: int, whole: int) -> list[str]:
    return [
        _between(one.low_rows, one.high_rows),
        _between(one.low_elements, one.high_elements),
        format_count(one.num_steps),
        format_percent(one.num_steps / num),
        format_flops(one.mean_flops),
        format_percent(one.num_steps * one.mean_flops / whole) if whole else "–",
    ]


def _between(low: int, high: int) -> str:
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"
