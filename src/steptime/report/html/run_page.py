"""Writes the page of one run: a single file that needs no network.

In: `PageFacts` and the plots drawn from them. Out: the text of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from steptime.core.units import format_bytes, format_count
from steptime.report.blocks.run.run_report import (
    DEVICES,
    MACHINE,
    MEMORY,
    PHASES,
    RANKS,
    ROOFS,
    STEPS,
    PageFacts,
    run_report,
)
from steptime.report.blocks.values import Block, Fold, Labeled, Markup, Section, TableBlock
from steptime.report.html.html_frame import asset, script_text
from steptime.report.html.html_memory import draw_timeline
from steptime.report.html.html_tags import Html, tag
from steptime.report.html.paint_html import paint_page

if TYPE_CHECKING:
    from steptime.report.html.html_plots import Plot, Plots

_TITLES = {
    "steps": STEPS,
    "phases": PHASES,
    "ranks": RANKS,
    "roofline": ROOFS,
    "machine": MACHINE,
    "devices": DEVICES,
}
"""The section of each plot, by the word of `html_plots`."""

_GRIDS = ("machine", "devices")
_HINT = "Drag along a stretch of time to see it closer in all plots; ↺ beside a plot goes back."


def render_page(facts: PageFacts, plots: Plots | None) -> str:
    """Return the whole page; without plots, it is enclosed in a notebook, which others read.

    That one has no script, and does not list the environment.
    """
    scripts = [] if plots is None else [script_text(text) for text in plots.scripts]
    if scripts:
        scripts.append(script_text(asset("page.js")))
    report = run_report(facts.document, store=facts.store, facts=facts)
    parts = [*report.parts, *_drawn(plots), *_timeline(facts)]
    if plots is not None:
        parts.append(Section("Environment", _environment(facts), only="page"))
    return paint_page(replace(report, parts=parts), version=facts.version, scripts=scripts)


def _drawn(plots: Plots | None) -> Iterable[Section]:
    for word, title in _TITLES.items():
        known = () if plots is None else plots.plots
        found = [_figure(plot) for plot in known if plot.part == word]
        if not found:
            continue
        grid = "grid" if word in _GRIDS and len(found) > 1 else None
        hint = tag("p", _HINT, class_="dim screen") if word == "steps" else None
        yield Section(title, [Markup(tag("div", hint, *found, class_=grid).text)], only="page")


def _figure(plot: Plot) -> Html:
    items = [
        tag("span", tag("i", class_="dot", style=f"background:{color}"), name)
        for color, name in plot.legend
    ]
    legend = tag("div", *items, plot.note and tag("span", plot.note), class_="legend")
    return tag("figure", tag("figcaption", plot.title, legend), plot.place)


def _timeline(facts: PageFacts) -> list[Section]:
    memory = facts.document.measurement.memory
    if memory is None or memory.timeline is None:
        return []
    return [Section(MEMORY, [draw_timeline(memory.timeline)], only="page")]


def _environment(facts: PageFacts) -> list[Block]:
    """Say where the command ran, and with what."""
    m, record, rows = facts.document.measurement, facts.record, list[tuple[str, str | None]]()
    if record is not None:
        machine = record.machine
        rows += [
            ("folder", record.cwd),
            ("git revision", record.git_revision),
            ("processor", machine.cpu),
            ("cores", None if machine.num_cores is None else format_count(machine.num_cores)),
            ("memory", _bytes(machine.memory_bytes)),
            ("memory limit", _bytes(machine.memory_limit_bytes)),
        ]
    if m.ranks:
        first = m.ranks[0]
        threads = None if first.num_threads is None else format_count(first.num_threads)
        rows += [
            ("device", first.device),
            ("Python", first.python_version),
            ("torch", first.torch_version),
            ("threads of torch", threads),
        ]
    names = list(dict.fromkeys(point.device for point in facts.series.devices))
    rows += [(f"device {i}", name) for i, name in enumerate(names)]
    rows.append(("Steptime", facts.version))
    found = [[name, value] for name, value in rows if value]
    variables = () if record is None else record.environment_names
    title = f"Names of the {len(variables)} environment variables"
    folded = Fold(title, [Labeled("", ", ".join(variables), style="dim")])
    table = TableBlock(["what", "value"], found, 2, "Environment", "facts")
    return [table, *([folded] if variables else [])]


def _bytes(value: int | None) -> str | None:
    return None if value is None else format_bytes(value)
