"""Makes the blocks on the lines of the script that take the time, the most expensive first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent, format_seconds
from steptime.measure.values.measurement import SPANS, Measurement
from steptime.measure.values.observations import Site
from steptime.report.blocks.values import Block, Cell, Fold, Labeled, TableBlock
from steptime.report.words.run import run_words

_COVERED = 0.5
"""A fraction of a phase: lines that were timed for less of it are not the whole of it."""

_SMALL = 0.005
"""A fraction of the time of all lines of a step: lines that take less are folded away."""


_HOW = (
    "How a phase is shared among its lines was timed in a few early steps; the times are scaled to "
    "the mean of the phase, and sum to it."
)


def site_blocks(m: Measurement) -> list[Block]:
    """Return the most expensive lines of a step, then those of the whole run."""
    ordered = sorted(scaled_sites(m), key=lambda site: -(site.s_per_step or 0.0))
    apart = [site for site in ordered if site.what in SPANS]
    steps = [site for site in ordered if site.what not in SPANS]
    least_s = _SMALL * sum(site.s_per_step or 0.0 for site in steps)
    large = [site for site in steps if (site.s_per_step or 0.0) > least_s]
    small = [site for site in steps if site not in large]
    few = format_percent(_SMALL)
    title = f"{len(small)} more, below {few} of these or only counted"
    return [
        *([_table("in a step", large, "per step")] if large else []),
        *([Fold(title, [_table("in a step", small, "per step")])] if small else []),
        *([Labeled("", _HOW, style="dim")] if steps else []),
        *([_table("beside the steps", apart, "in the run")] if apart else []),
    ]


def scaled_sites(m: Measurement) -> list[Site]:
    """Return the lines with times that sum to the mean of their phase.

    Lines are timed in a few early steps, which say how a phase is shared among them; how long a
    phase takes in a usual step, the steady steps say. Where they cover little of a phase, as of
    the code between others, they stay as they were timed.
    """
    means = {phase.name: phase.mean_s for phase in m.phases if phase.mean_s is not None}
    sums: dict[str, float] = {}
    for site in m.sites:
        sums[site.what] = sums.get(site.what, 0.0) + (site.s_per_step or 0.0)
    return [
        replace(site, s_per_step=site.s_per_step * means[site.what] / sums[site.what])
        if site.s_per_step and sums[site.what] >= _COVERED * means.get(site.what, math.inf)
        else site
        for site in m.sites
    ]


def _table(name: str, sites: Sequence[Site], per: str) -> Block:
    rows: list[list[Cell]] = [
        [
            Text.assemble(printable(site.place), " ", (printable(site.text or ""), "dim")),
            _what(site),
            format_count(site.calls_per_step),
            "–" if site.s_per_step is None else format_seconds(site.s_per_step),
        ]
        for site in sites
    ]
    heading = [f"line, {name}", "what", f"calls {per}", f"time {per}"]
    return TableBlock(heading, rows, 2, f"Lines, {name}", "lines")


def _what(site: Site) -> str:
    is_span = site.what in SPANS
    return run_words.describe_span(site.what) if is_span else run_words.describe_phase(site.what)
