"""The edit of the user's source that a finding offers, as lines of the terminal report."""

from __future__ import annotations

from rich.text import Text

from steptime.core.printable import printable
from steptime.diagnose.values.finding import Finding
from steptime.report.blocks.phrasing import shortened
from steptime.report.text.page import LABEL_WIDTH, Page
from steptime.report.words.edit_words import changed_lines, describe_edit

_MAX_LINES = 8
_STYLES = {"-": "red", "+": "green"}


def edit_lines(finding: Finding | None, page: Page) -> list[Text]:
    """Show what a finding's edit takes out and puts in; nothing where it offers none."""
    if finding is None or finding.edit is None:
        return []
    changed = changed_lines(finding.edit)
    lines = page.block("edit", f"{describe_edit(finding.edit)}:")
    for line in changed[:_MAX_LINES]:
        text = shortened(printable(line), page.width - LABEL_WIDTH)
        lines.append(Text.assemble(" " * LABEL_WIDTH, (str(text), _STYLES[line[0]])))
    more = len(changed) - _MAX_LINES
    if more > 0:
        lines += page.block("", f"more lines in the document of --json: {more}", style="dim")
    return lines
