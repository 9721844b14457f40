"""Makes the part of the page on lengths: a picture of their distribution, and the batch sizes."""

from __future__ import annotations

from steptime.core.units import format_count, format_percent
from steptime.measure.values.model.useful_work import LengthBin, Padding
from steptime.report.blocks.colors import class_of
from steptime.report.html.html_tags import Html, bar, joined_html, table, tag

_PADDING_COLOR = "forward"


def lengths_part(padding: Padding | None) -> Html | None:
    """Return one bar for each range of lengths; nothing where all rows have one length."""
    if padding is None or len(padding.lengths.bins) <= 1:
        return None
    most = max(one.num_rows for one in padding.lengths.bins)
    num = padding.lengths.num_rows
    rows = [_cells(one, most=most, num=num) for one in padding.lengths.bins]
    heading = ["length", "", "share of rows", "rows"]
    shown = table(heading, rows, left=2, name="Lengths of rows without padding")
    sizes = ", ".join(
        f"{format_count(one.num_rows)} ({format_count(one.num_batches)}x)"
        for one in padding.batch_sizes
    )
    told = tag("p", f"Rows of a batch, and how often: {sizes}.", class_="dim")
    return joined_html([tag("div", shown, class_="phases"), told])


def _cells(one: LengthBin, *, most: int, num: int) -> list[Html | str]:
    low, high = format_count(one.low), format_count(one.high)
    return [
        low if one.low == one.high else f"{low} to {high}",
        bar([(class_of(_PADDING_COLOR), one.num_rows / most)]),
        format_percent(one.num_rows / num),
        format_count(one.num_rows),
    ]
