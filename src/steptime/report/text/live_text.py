"""Writes the line that `steptime run --live` shows while the command runs.

In: how far the ranks have come. Out: one line of text that fits the terminal.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.units import format_count, format_seconds
from steptime.report.blocks.phrasing import shortened

_SILENT = 10
"""The line says that no update comes after this many times the usual time between updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How far a command has come.

    `num_updates` is of the rank that has fewest, None before the first; `usual_s` the median time
    from update to update; `silent_s` the time since the last one was heard of; `num_beside` the
    other trainings that step; `job_cores` what the command kept busy over the last sample.
    """

    elapsed_s: float
    num_updates: int | None = None
    usual_s: float | None = None
    silent_s: float = 0.0
    num_ranks: int = 0
    training: int | None = None
    num_beside: int = 0
    job_cores: float | None = None
    num_cores: int | None = None


def live_line(pace: Pace, *, width: int) -> str:
    """Return the line, cut to `width` columns."""
    parts = [f"steptime {format_seconds(float(round(pace.elapsed_s)))}"]
    if pace.training is not None:
        beside = f" ({pace.num_beside} beside it)" if pace.num_beside else ""
        parts.append(f"training {pace.training}{beside}")
    parts.append(_updates(pace))
    if pace.usual_s is not None:
        parts.append(f"{format_seconds(pace.usual_s)} each")
        if pace.silent_s > max(_SILENT * pace.usual_s, 2.0):
            parts.append(f"none for {format_seconds(float(round(pace.silent_s)))}")
    if pace.num_ranks > 1:
        parts.append(f"{pace.num_ranks} ranks")
    if pace.job_cores is not None:
        of = "" if pace.num_cores is None else f" of {pace.num_cores}"
        parts.append(f"{format_count(round(pace.job_cores, 1))}{of} cores")
    return shortened(" · ".join(parts), max(1, width))


def _updates(pace: Pace) -> str:
    if pace.num_updates is None:
        return "no update yet"
    return f"{format_count(pace.num_updates)} updates"
