"""Makes the block of a run that `--stop-on` ended: why, what was wasted, and what that saved."""

from __future__ import annotations

from steptime.core.printable import printable
from steptime.core.units import format_count, format_seconds
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.stopped import StoppedRun
from steptime.report.blocks.values import Block, Labeled


def stopped_blocks(m: Measurement) -> list[Block]:
    """Return why the run was ended; nothing where it ended by itself."""
    one = m.stopped
    if one is None:
        return []
    parts = [
        f"`--stop-on {one.reason}` ended this run with {one.signal} after "
        f"{format_count(one.num_steps)} steps: {one.finding}",
        _wasted(one),
        _left(one),
    ]
    return [Labeled("stopped", printable(" ".join(filter(None, parts))), "yellow")]


def _wasted(one: StoppedRun) -> str:
    time = "" if one.wasted_s is None else format_seconds(one.wasted_s)
    if one.wasted_steps:
        taken = f", which took {time}" if time else ""
        return f"The last {format_count(one.wasted_steps)} steps were wasted{taken}."
    return f"{time} were wasted." if time else ""


def _left(one: StoppedRun) -> str:
    if one.left_steps is None:
        return "How many steps were left is not known: no run of this command has finished before."
    time = "" if one.left_s is None else f", which would have taken {format_seconds(one.left_s)}"
    return (
        f"The last finished run of this command made {format_count(one.left_steps)} steps more"
        f"{time}."
    )
