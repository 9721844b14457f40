"""What to try for a finding, and what a recipe gave, as lines of the terminal report."""

from __future__ import annotations

from rich.text import Text

from steptime.diagnose.values.finding import Finding
from steptime.report.document.run_document import LeverTrial, RecipeGain, RunDocument
from steptime.report.text.page import LABEL_WIDTH, Page
from steptime.report.words.gain_words import BENCH, describe_gain, describe_trial


def trial_of(finding: Finding, document: RunDocument) -> LeverTrial | None:
    """Return what can be tried for a finding of the document."""
    findings = () if document.diagnosis is None else document.diagnosis.findings
    pairs = zip(findings, document.trials, strict=False)
    return next((trial for one, trial in pairs if one is finding), None)


def trial_lines(finding: Finding, document: RunDocument, page: Page) -> list[Text]:
    """Show the command that tries the levers of a finding; nothing where no lever relieves it."""
    trial = trial_of(finding, document)
    if trial is None or trial.command is None:
        return []
    lines = [*page.block("", describe_trial(trial)), Text(" " * LABEL_WIDTH + trial.command)]
    if trial.bench_command is not None:
        lines += page.block("", BENCH)
        lines.append(Text(" " * LABEL_WIDTH + trial.bench_command))
    return lines


def gain_lines(gain: RecipeGain | None, page: Page) -> list[Text]:
    """Say what the recipe of a run gave."""
    return [] if gain is None else page.block("gave", describe_gain(gain))
