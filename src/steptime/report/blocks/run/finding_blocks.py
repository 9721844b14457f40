"""Makes the blocks of findings: what was found, its edit of the script, and what to try for it.

In: the document of a run. Out: blocks.
"""

from __future__ import annotations

from steptime.core.units import format_value
from steptime.diagnose.values.finding import Finding
from steptime.measure.values.measurement import Measurement
from steptime.report.blocks.values import Block, Code, CommandLine, Fold, Headline, TableBlock
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
