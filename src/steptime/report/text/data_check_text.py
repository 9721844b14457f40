"""Shows the checks of the data of a training: what failed first, with its evidence.

In: a `DataCheckReport`. Out: lines of labeled blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from steptime.core.printable import printable
from steptime.data.values.data_check_values import DataCheck, DataCheckReport
from steptime.report.blocks.phrasing import joined
from steptime.report.text.page import Page
from steptime.verify.values import Outcome

_STYLES = {Outcome.PASS: "green", Outcome.FAIL: "bold red", Outcome.INCONCLUSIVE: "yellow"}
_WORDS = {Outcome.PASS: "pass", Outcome.FAIL: "FAIL", Outcome.INCONCLUSIVE: "undecided"}
_ORDER = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)


def data_check_lines(report: DataCheckReport, *, page: Page) -> list[Text]:
    """Return the report: one block for each check, failures first, and the outcome of all."""
    lines = [*page.block("checked", joined([printable(word) for word in report.subject])), Text()]
    for outcome in _ORDER:
        for check in report.checks:
            if check.outcome is outcome:
                lines += _check_lines(check, page)
    if report.failure is not None:
        lines += page.block("failed", Text(printable(report.failure), style="bold red"))
    for limit in report.limits:
        lines += page.block("seen", Text(printable(limit), style="dim"))
    outcomes = Counter(check.outcome for check in report.checks)
    counts = [f"{outcomes[o]} {_WORDS[o]}" for o in _ORDER if outcomes[o]]
    told = Text.assemble((report.outcome.value, _STYLES[report.outcome]), "  ", ", ".join(counts))
    return [*lines, Text(), *page.block("outcome", told)]


def _check_lines(check: DataCheck, page: Page) -> Iterator[Text]:
    style = _STYLES[check.outcome]
    head = Text.assemble((check.name, style), "  ", printable(check.finding))
    yield from page.block(_WORDS[check.outcome], head)
    if check.outcome is Outcome.PASS:
        return
    for one in check.evidence:
        yield from page.block("", Text(printable(one), style="dim"))
    if check.p_value is not None:
        yield from page.block("", Text(f"p = {check.p_value:.2g}", style="dim"))
    if check.place is not None:
        yield from page.block("  loader", printable(check.place))
    if check.advice is not None:
        yield from page.block("  do", printable(check.advice))
    yield Text()
