"""Makes the part of the page on what the watch saw: stalls, and lasting changes of the step time.

In: Stalls and Shifts. Out: markup, with the stacks of every rank folded away.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_count, format_seconds, format_speedup
from steptime.diagnose.values.finding import Shift
from steptime.measure.values.stall import Stall, StalledRank
from steptime.report.html.html_tags import Html, joined_html, table, tag
from steptime.report.text.stall_text import describe_stall, stack_lines
from steptime.report.words.run_words import CHANGES, describe_phase


def stalls_part(stalls: Sequence[Stall], *, started_unix_s: float) -> Html | None:
    """Show each stall: how long it lasted, who waited for whom, and the stacks."""
    if not stalls:
        return None
    return joined_html([_stall(stall, started_unix_s) for stall in stalls])


def _stall(stall: Stall, started_unix_s: float) -> Html:
    first, *ranks = describe_stall(stall)
    at = format_seconds(max(0.0, stall.began_unix_s - started_unix_s))
    end = ", and the run never went on" if stall.duration_s is None else ""
    return tag(
        "div",
        tag("p", tag("b", f"{at} into the run"), f": {first}{end}."),
        tag("ul", *(tag("li", sentence) for sentence in ranks)),
        *[_stacks(rank) for rank in stall.ranks if rank.stacks],
        class_="card critical" if stall.duration_s is None else "card warning",
    )


def _stacks(rank: StalledRank) -> Html:
    who = "a process" if rank.rank is None else f"rank {rank.rank}"
    title = tag("summary", f"Stacks of {who}, process {rank.pid}, the innermost call last")
    return tag("details", title, tag("pre", joined_html(stack_lines(rank), between="\n")))


def shifts_part(shifts: Sequence[Shift]) -> Html | None:
    """Show each lasting change of the step time, and what changed with it."""
    if not shifts:
        return None
    heading = ["from step", "rank", "what changed with it", "before", "after", "ratio (interval)"]
    rows = [
        [
            format_count(shift.index),
            str(shift.rank),
            ", ".join(map(describe_change, shift.causes)) or "nothing that was observed",
            format_seconds(shift.before_s),
            format_seconds(shift.after_s),
            f"{format_speedup(shift.ratio.estimate)} ({shift.ratio.low:.2f} to "
            f"{shift.ratio.high:.2f})",
        ]
        for shift in shifts
    ]
    title = tag("h3", "Lasting changes of the step time")
    return joined_html([title, table(heading, rows, left=3, name="Lasting changes")])


def describe_change(word: str) -> str:
    """Say what the machine word for the cause of a shift means."""
    if word.startswith("phase:"):
        return f"the time of {describe_phase(word.removeprefix('phase:'))}"
    return CHANGES.get(word, word)
