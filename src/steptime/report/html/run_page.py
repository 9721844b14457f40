"""Writes the page of one run: a single file that needs no network and no script.

In: `PageFacts`. Out: the text of the file.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.core.units import format_bytes, format_count
from steptime.report.blocks.run.course_plots import course_sections
from steptime.report.blocks.run.run_report import PageFacts, run_report
from steptime.report.blocks.values import Block, Fold, Labeled, Section, TableBlock
from steptime.report.html.paint_html import paint_page


def render_page(facts: PageFacts, *, is_whole: bool = True) -> str:
    """Return the whole page; else what is enclosed in a notebook, which others read.

    That has no plots over time, and does not list the environment.
    """
    report = run_report(facts.document, store=facts.store, facts=facts)
    parts = [*report.parts]
    if is_whole:
        parts += course_sections(facts)
        parts.append(Section("Environment", _environment(facts), only="page"))
    return paint_page(replace(report, parts=parts), version=facts.version)


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
