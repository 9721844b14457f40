"""Makes the part of the page on the whole time of a run: one bar, and a row for each part.

In: a RunDocument. Out: markup, or None where the whole time is not known.
"""

from __future__ import annotations

from steptime.core.units import format_count, format_percent, format_seconds
from steptime.measure.values.wall_time import WallPart, WallTime
from steptime.report.blocks.colors import wall_class_of
from steptime.report.document.run_document import RunDocument
from steptime.report.html.html_sections import told_part
from steptime.report.html.html_tags import Html, bar, joined_html, table, tag
from steptime.report.text.wall_lines import wall_lines
from steptime.report.words import run_words


def wall_part(run: RunDocument) -> Html | None:
    """Show what the whole time of the run was spent on."""
    wall = run.measurement.wall_time
    if wall is None or wall.total_s <= 0:
        return None
    shares = [(wall_class_of(part.name), part.total_s / wall.total_s) for part in wall.parts]
    heading = ["part", "", "share", "time", "times"]
    rows = [_cells(part, wall) for part in wall.parts]
    return joined_html(
        [
            told_part(run, (wall_lines,)),
            tag("div", bar(shares), class_="whole"),
            tag("div", table(heading, rows, left=2, name="Time of the run"), class_="phases"),
        ]
    )


def _cells(part: WallPart, wall: WallTime) -> list[Html | str]:
    color, share = wall_class_of(part.name), part.total_s / wall.total_s
    name = tag("span", tag("i", class_=f"dot {color}"), run_words.describe_wall_part(part.name))
    where = None if part.where is None else tag("code", part.where, class_="dim")
    return [
        name if where is None else joined_html([name, " ", where]),
        bar([(color, share)]),
        format_percent(share),
        format_seconds(part.total_s),
        "" if part.num is None else format_count(part.num),
    ]
