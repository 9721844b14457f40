"""Writes the page of one run: a single file that needs no network.

In: `PageFacts` and the plots drawn from them. Out: the text of the file. Sections are a visible
list; `html_frame` makes the file of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steptime.diagnose.values.finding import Shift
from steptime.launch.values import CommandRecord
from steptime.measure.values.over_time import RunSeries
from steptime.measure.values.stall import Stall
from steptime.report.document.run_document import RunDocument
from steptime.report.html import html_sections as sections
from steptime.report.html.html_frame import asset, frame, script_text, section
from steptime.report.html.html_layers import layers_part
from steptime.report.html.html_memory import anatomy_part
from steptime.report.html.html_padding import lengths_part
from steptime.report.html.html_profile import profile_part
from steptime.report.html.html_roofs import roofline_part, waterfall_part
from steptime.report.html.html_sites import sites_part
from steptime.report.html.html_tags import Html, tag
from steptime.report.html.html_trainings import trainings_part
from steptime.report.html.html_wall import wall_part
from steptime.report.html.html_watch import shifts_part, stalls_part
from steptime.report.html.html_work import sizes_part
from steptime.report.text.padding_lines import padding_lines
from steptime.report.text.work_lines import work_lines

if TYPE_CHECKING:
    from steptime.report.html.html_plots import Plot, Plots


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """What is known of one run; `version` is the version of Steptime.

    `store` is the folder that holds the store of the run, if that is not the store of this folder.
    """

    document: RunDocument
    record: CommandRecord | None
    series: RunSeries
    stalls: tuple[Stall, ...] = ()
    shifts: tuple[Shift, ...] = ()
    version: str = ""
    store: str | None = None


def render_page(facts: PageFacts, plots: Plots | None) -> str:
    """Return the whole page; without plots, it is enclosed in a notebook, which others read.

    That one has no script, and does not list the environment.
    """
    scripts = [] if plots is None else [script_text(text) for text in plots.scripts]
    if scripts:
        scripts.append(script_text(asset("page.js")))
    title = f"steptime {facts.document.measurement.run_id}"
    return frame(title, _body(facts, plots), scripts=scripts)


def _body(facts: PageFacts, plots: Plots | None) -> list[Html]:
    run, drawn = facts.document, _Drawn(plots)
    m = run.measurement
    shifts = shifts_part(facts.shifts)
    stalls = stalls_part(facts.stalls, started_unix_s=m.started_unix_s)
    parts = [
        section("Trainings of this command", trainings_part(run)),
        section("Also found", sections.findings_part(run)),
        section("The run stood still", stalls),
        section("Steps over time", drawn.of("steps", hint=_HINT), shifts),
        section("Layers", layers_part(m)),
        section("Time of the run", wall_part(run)),
        section("Where a step's time goes", sections.phases_part(m), drawn.of("phases")),
        section("Where did my MFU go", waterfall_part(run.waterfall)),
        section("Operators under the roofs", drawn.of("roofline"), roofline_part(run.roofline)),
        section("Lines of the script", sites_part(m)),
        section("Under the profiler", profile_part(m)),
        section("Ranks", sections.ranks_part(m), drawn.of("ranks")),
        section("Work of a step", sections.told_part(run, (work_lines,)), sizes_part(m.count)),
        section(
            "Lengths and padding",
            sections.told_part(run, (padding_lines,)),
            lengths_part(m.padding),
        ),
        section("Memory", anatomy_part(m.memory, run.memory_fit), sections.memory_part(run)),
        section("The machine over time", drawn.of("machine", is_grid=True)),
        section("Devices over time", _devices(facts.series), drawn.of("devices", is_grid=True)),
        None if plots is None else _environment(facts),
    ]
    return [
        sections.header(run),
        sections.verdict(m, run.diagnosis, store=facts.store),
        sections.tiles(run, energy_j=facts.series.energy_per_step_j()),
        *(part for part in parts if part is not None),
    ]


def _environment(facts: PageFacts) -> Html | None:
    m = facts.document.measurement
    part = sections.environment_part(m, facts.record, version=facts.version)
    return section("Environment", part)


_HINT = "Drag along a stretch of time to see it closer in all plots; ↺ beside a plot goes back."


class _Drawn:
    """The plots by the section they belong to."""

    def __init__(self, plots: Plots | None) -> None:
        self._plots = () if plots is None else plots.plots

    def of(self, part: str, *, is_grid: bool = False, hint: str | None = None) -> Html | None:
        found = [_figure(plot) for plot in self._plots if plot.part == part]
        if not found:
            return None
        advice = hint and tag("p", hint, class_="dim screen")
        return tag("div", advice, *found, class_="grid" if is_grid and len(found) > 1 else None)


def _figure(plot: Plot) -> Html:
    items = [
        tag("span", tag("i", class_="dot", style=f"background:{color}"), name)
        for color, name in plot.legend
    ]
    legend = tag("div", *items, plot.note and tag("span", plot.note), class_="legend")
    return tag("figure", tag("figcaption", plot.title, legend), plot.place)


def _devices(series: RunSeries) -> Html | None:
    names = list(dict.fromkeys(point.device for point in series.devices))
    if not names:
        return None
    listed = ", ".join(f"device {i}: {name}" for i, name in enumerate(names))
    return tag("p", listed, class_="dim")
