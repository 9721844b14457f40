"""Makes the report of the checks of a training's data: what failed first, with its evidence.

In: a `DataCheckReport`. Out: blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from steptime.core.printable import printable
from steptime.data.values.data_check_values import DataCheck, DataCheckReport
from steptime.report.blocks.phrasing import joined, labeled
from steptime.report.blocks.values import Blank, Block
from steptime.verify.values import Outcome

_STYLES = {Outcome.PASS: "green", Outcome.FAIL: "bold red", Outcome.INCONCLUSIVE: "yellow"}
_WORDS = {Outcome.PASS: "pass", Outcome.FAIL: "FAIL", Outcome.INCONCLUSIVE: "undecided"}
_ORDER = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)


def data_check_blocks(report: DataCheckReport) -> list[Block]:
    """Return the report: a paragraph for each check, failures first, and the outcome of all."""
    ordered = sorted(report.checks, key=lambda check: _ORDER.index(check.outcome))
    outcomes = Counter(check.outcome for check in report.checks)
    counts = ", ".join(f"{outcomes[o]} {_WORDS[o]}" for o in _ORDER if outcomes[o])
    told = Text.assemble((report.outcome.value, _STYLES[report.outcome]), "  ", counts)
    failure = Text(printable(report.failure), style="bold red") if report.failure else None
    return [
        *labeled(("checked", joined(report.subject))),
        Blank(),
        *(block for check in ordered for block in _check(check)),
        *labeled(("failed", failure), *(("seen", _dim(limit)) for limit in report.limits)),
        Blank(),
        *labeled(("outcome", told)),
    ]


def _check(check: DataCheck) -> Iterator[Block]:
    head = Text.assemble((check.name, _STYLES[check.outcome]), "  ", printable(check.finding))
    yield from labeled((_WORDS[check.outcome], head))
    if check.outcome is not Outcome.PASS:
        evidence = [("", _dim(one)) for one in check.evidence]
        p_value = None if check.p_value is None else _dim(f"p = {check.p_value:.2g}")
        last = (("", p_value), ("  loader", check.place), ("  do", check.advice))
        yield from labeled(*evidence, *last)
        yield Blank()


def _dim(text: str) -> Text:
    return Text(printable(text), style="dim")
