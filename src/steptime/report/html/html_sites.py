"""Makes the part of the page on the lines of the script that take the time.

In: a Measurement. Out: markup, the most expensive lines of a step first.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_count, format_percent, format_seconds
from steptime.measure.values.measurement import SPANS, Measurement
from steptime.measure.values.observations import Site
from steptime.report.html.html_tags import Html, joined_html, table, tag
from steptime.report.words import run_words

_SMALL = 0.005
"""A fraction of the time of all lines of a step: lines that take less are folded away."""


def sites_part(m: Measurement) -> Html | None:
    """Return the most expensive lines of a step, then those of the whole run."""
    ordered = sorted(m.sites, key=lambda site: -(site.s_per_step or 0.0))
    apart = [site for site in ordered if site.what in SPANS]
    steps = [site for site in ordered if site.what not in SPANS]
    least_s = _SMALL * sum(site.s_per_step or 0.0 for site in steps)
    large = [site for site in steps if (site.s_per_step or 0.0) > least_s]
    small = [site for site in steps if site not in large]
    parts = [
        _table("in a step", large, "a step") if large else None,
        tag(
            "details",
            tag(
                "summary",
                f"{len(small)} more, below {format_percent(_SMALL)} of these or only counted",
            ),
            _table("in a step", small, "a step"),
        )
        if small
        else None,
        _table("beside the steps", apart, "in the run") if apart else None,
    ]
    return joined_html(parts) if m.sites else None


def _table(name: str, sites: Sequence[Site], per: str) -> Html:
    rows: list[list[Html | str]] = [
        [
            joined_html([tag("code", site.place), " ", tag("code", site.text or "", class_="dim")]),
            _what(site),
            format_count(site.calls_per_step),
            "–" if site.s_per_step is None else format_seconds(site.s_per_step),
        ]
        for site in sites
    ]
    heading = [f"line, {name}", "what", f"calls {per}", f"time {per}"]
    return tag("div", table(heading, rows, left=2, name=f"Lines, {name}"), class_="lines")


def _what(site: Site) -> str:
    is_span = site.what in SPANS
    return run_words.describe_span(site.what) if is_span else run_words.describe_phase(site.what)
