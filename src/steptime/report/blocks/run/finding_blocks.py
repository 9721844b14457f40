"""Makes the blocks of findings and of the lines of the script where steps spend their time.

In: the document of a run. Out: blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent, format_seconds, format_value
from steptime.diagnose.values.finding import Finding
from steptime.measure.values.measurement import SPANS, Measurement
from steptime.measure.values.observations import Site
from steptime.report.blocks.values import (
    Block,
    Cell,
    Code,
    CommandLine,
    Fold,
    Headline,
    Labeled,
    TableBlock,
)
from steptime.report.document.run_document import LeverTrial, RunDocument
from steptime.report.words.run import run_words, step_words
from steptime.report.words.run.gain_words import BENCH, describe_trial

_KEEPS = {
    "same_numbers": "This edit gives the same numbers, bit for bit",
    "other_random_numbers": "This edit draws from the same distribution, but from torch's "
    "generator: the random numbers are other ones",
}
"""What an edit of the user's source keeps; a colon and the edit follow."""


def finding_blocks(finding: Finding, m: Measurement, *, label: str) -> list[Block]:
    """Return a finding with its edit, and the numbers behind it for the page."""
    text = run_words.describe_finding(finding, step_words.usual_step_s(m))
    title = run_words.describe_heading(finding)
    blocks: list[Block] = [Headline(label, title, text, severity=finding.severity.value)]
    if finding.edit is not None:
        lead = f"{_KEEPS.get(finding.edit.keeps, 'This edit may help')}:"
        blocks.append(Code(finding.edit.diff, label="edit", lead=lead, language="diff"))
    rows = [[e.name.replace("_", " "), format_value(e.value, e.unit)] for e in finding.evidence]
    if rows:
        shown = TableBlock(["evidence", "value"], rows, name="Evidence")
        blocks.append(Fold("The numbers behind it", [shown]))
    return blocks


def trial_of(finding: Finding, document: RunDocument) -> LeverTrial | None:
    """Return what can be tried for a finding of the document."""
    findings = () if document.diagnosis is None else document.diagnosis.findings
    pairs = zip(findings, document.trials, strict=False)
    return next((trial for one, trial in pairs if one is finding), None)


def trial_blocks(finding: Finding, document: RunDocument) -> list[Block]:
    """Show the command that tries the levers of a finding; nothing where no lever relieves it."""
    trial = trial_of(finding, document)
    if trial is None or trial.command is None:
        return []
    blocks: list[Block] = [CommandLine(trial.command, lead=describe_trial(trial), is_below=True)]
    if trial.bench_command is not None:
        blocks.append(CommandLine(trial.bench_command, lead=BENCH, is_below=True))
    return blocks


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
