"""Makes the blocks of what libraries said while a command ran: warnings and log records.

In: a Measurement. Out: blocks, with the first message at the beginning.
"""

from __future__ import annotations

from steptime.core.printable import printable
from steptime.core.units import format_count
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.said import LibraryMessage
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.run.counted_steps import more_blocks
from steptime.report.blocks.values import Block, Labeled

_LINES = 3
"""Of a terminal; the page has the whole text."""

UNREAD = "Lines that libraries write to standard error themselves are not read."


def said_blocks(m: Measurement, *, limit: int | None = None) -> list[Block]:
    """Return each message with who said it, from which line, how often and in which updates."""
    if not m.said:
        return []
    shown: list[Block] = [
        Labeled("said", _describe(one), style="dim", max_lines=_LINES) for one in m.said[:limit]
    ]
    is_read = any(one.channel == "stderr" for one in m.said)
    unread = [] if limit is not None or is_read else [Labeled("", UNREAD, style="dim")]
    return [*shown, *unread, *more_blocks("messages of libraries", len(m.said) - len(shown))]


def _describe(one: LibraryMessage) -> str:
    where = "" if one.where is None else f"at {printable(one.where)}"
    parts = [printable(one.who), where, _times(one)]
    return f"{joined([part for part in parts if part])}: {printable(one.text)}"


def _times(one: LibraryMessage) -> str:
    times = "once" if one.num == 1 else f"{format_count(one.num)} times"
    ranks = "" if one.num_ranks == 1 else f" in {one.num_ranks} ranks"
    first, last = one.first_update, one.last_update
    if first is None:
        return f"{times}{ranks}"
    if last is None or last == first:
        updates = f"{format_count(first)} update{'s' if first > 1 else ''}"
        return f"{times}{ranks} {f'after {updates}' if first else 'before the first update'}"
    return f"{times}{ranks} from update {format_count(first)} to {format_count(last)}"
