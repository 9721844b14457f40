"""Makes the blocks of findings and of the lines of the script where steps spend their time.

In: the document of a run. Out: blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import (
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
    format_speedup,
    format_value,
)
from steptime.diagnose.values.finding import Finding
from steptime.measure.values.measurement import SPANS, Measurement
from steptime.measure.values.observations import RecipeUse, Site
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
from steptime.report.document.run_document import LeverTrial, RecipeGain, RunDocument
from steptime.report.words.run import run_words, step_words

_MISSING: Mapping[str, str] = {
    "differs": "what it gave against its proof is not known, because this run is not as it was "
    "proven",
    "levers_off": "what it gave against its proof is not known, because not all of its levers "
    "were on",
    "busy": "what it gave against its proof is not known: other processes kept the machine busy",
    "no_step_times": "the recipe does not hold the step times of its proof",
}


BENCH = "Or see which part of the input it is, and what any loader can give at most:"


def describe_trial(trial: LeverTrial) -> str:
    """Say what the command after it tries, and what that can give at most."""
    these = "this lever" if len(trial.levers) == 1 else "these levers"
    if trial.at_most_speedup is None or trial.bound_by != "finding":
        return f"Let Steptime try {these}:"  # all that levers can shorten is mostly all of a step
    return f"Let Steptime try {these}, at most {format_speedup(trial.at_most_speedup)}:"


def describe_proof(use: RecipeUse) -> str:
    """Say what the study of a recipe proved."""
    if use.speedup is None:
        if use.limit_bytes is None:
            return "nothing was proven of it"
        return f"proven to fit into {format_bytes(use.limit_bytes)}"
    ends = f"{format_speedup(use.speedup.low)} to {format_speedup(use.speedup.high)}"
    return f"proven {format_speedup(use.speedup.estimate)}, 95 % interval {ends}"


def describe_gain(gain: RecipeGain) -> str:
    """Say what a recipe gave, against its proof and against a run without it."""
    return "; ".join([_of_proof(gain), *_of_runs(gain)])


def _of_proof(gain: RecipeGain) -> str:
    now = f"a step takes {format_seconds(gain.step_s)}"
    against = gain.against_proof
    if against is None or gain.written_step_s is None:
        return f"{now}, and {_MISSING.get(gain.missing or '', gain.missing)}"
    found = f"{format_speedup(against.low)} to {format_speedup(against.high)}"
    written = format_seconds(gain.written_step_s)
    proven = "" if gain.proven_step_s is None else f" ({format_seconds(gain.proven_step_s)} then)"
    return (
        f"{now}{proven}: {format_speedup(against.estimate)} ({found}) against {written} as written "
        "when it was proven, at another time"
    )


def _of_runs(gain: RecipeGain) -> list[str]:
    if gain.against_runs is None:
        return ["no finished run of this command without a recipe was beside as busy a machine"]
    found = format_speedup(gain.against_runs)
    low, high = gain.against_runs_low, gain.against_runs_high
    if gain.num_plain_runs == 1:
        plain = f"run {gain.plain_run_id} without it"
    else:
        plain = f"{gain.num_plain_runs} runs without it"
    own = "" if gain.num_recipe_runs == 1 else f"{gain.num_recipe_runs} runs with it have "
    if low is None or high is None:
        return [f"{own}{found} against {plain} (too few runs to say how much runs differ)"]
    return [f"{own}{found} ({format_speedup(low)} to {format_speedup(high)}) against {plain}"]


_KEEPS = {
    "same_numbers": "This edit gives the same numbers, bit for bit",
    "other_random_numbers": "This edit draws from the same distribution, but from torch's "
    "generator: the random numbers are other ones",
}
"""What an edit of the user's source keeps; a colon and the edit follow."""


def finding_blocks(finding: Finding, m: Measurement, *, label: str) -> list[Block]:
    """Return a finding with its edit, and the numbers behind it for the page."""
    text = run_words.describe_finding(finding, *step_words.step_to_shorten(m))
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
        *_sampled(m),
    ]


def _sampled(m: Measurement) -> list[Block]:
    """Return the lines that sampled stacks were at over the whole run, with their shares."""
    lines = () if m.spent is None else m.spent.lines
    rows: list[list[Cell]] = [
        [
            Text.assemble(printable(line.place), " ", (printable(line.text or ""), "dim")),
            run_words.describe_phase(line.what),
            printable(line.callee or line.function),
            format_percent(line.fraction),
        ]
        for line in lines
        if line.fraction >= _SMALL
    ]
    heading = ["line, by sampled stacks", "what", "function", "share of all steps"]
    return [TableBlock(heading, rows, 3, "Lines, by sampled stacks", "lines")] if rows else []


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
