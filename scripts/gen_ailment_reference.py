"""Writes the tables of docs/explanation/diagnosis.md from the rows of the ailments.

Run it after a change to an ailment: `python scripts/gen_ailment_reference.py`; `--stdout` prints
the page instead of writing it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steptime.diagnose.ailments.ailment import Rule
    from steptime.diagnose.ailments.scale import Threshold

PAGE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "diagnosis.md"


def ailment_reference(page: str) -> str:
    """The page with its tables as the rows have them."""
    page = _replaced(page, "ailments", _ailments())
    page = _replaced(page, "contended", _contended())
    return _replaced(page, "rules", _rules())


def _replaced(page: str, name: str, table: str) -> str:
    begin, end = f"<!-- generated: {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{table}{end}{after}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |\n", f"|{'---|' * len(head)}\n"]
    return "".join([*lines, *(f"| {' | '.join(cells)} |\n" for cells in rows)])


def _ailments() -> str:
    from steptime.diagnose.ailments.all_ailments import AILMENTS

    rows = []
    for row in AILMENTS:
        kind = "null" if row.kind is None else f"`{row.kind.value}`"
        cause = "null" if row.cause is None else f"`{row.cause}`"
        levers = ", ".join(f"`{name}`" for name in row.levers)
        rows.append((row.what, kind, cause, row.needs, levers))
    return _table(("ailment", "kind", "cause", "needs", "levers"), rows)


def _contended() -> str:
    """What each ailment is judged by beside a neighbor; rows with one reason share a line."""
    from steptime.diagnose.ailments.all_ailments import AILMENTS

    causes: dict[tuple[str, str], list[str]] = {}
    for row in AILMENTS:
        rule = row.when_contended
        name = row.cause or (f"{row.kind.value}" if row.kind else "null")
        causes.setdefault((rule.held_by.value, rule.why), []).append(f"`{name}`")
    rows = [(", ".join(names), f"`{held}`", why) for (held, why), names in causes.items()]
    return _table(("cause, or kind without one", "held by", "why"), rows)


def _rules() -> str:
    from steptime.diagnose.ailments.all_ailments import AILMENTS
    from steptime.diagnose.ailments.scale import SCALE

    of_rule: dict[str, dict[str, Threshold]] = {"": {one.name: one for one in SCALE}}
    for row in AILMENTS:
        found = of_rule.setdefault(_name_of(row.rule), {})
        found.update({one.name: one for one in row.thresholds})
    rows = []
    for rule, thresholds in of_rule.items():
        label = f"`{rule}`" if rule else "all that judge by share"
        is_by_share = bool(rule) and set(SCALE) <= set(thresholds.values())
        if is_by_share or not thresholds:
            rows.append((label, "", "by share" if is_by_share else "", ""))
            label = ""
        for one in (one for one in thresholds.values() if not is_by_share or one not in SCALE):
            rows.append((label, f"`{one.name}`", _number(one.value), one.why))
            label = ""
    return _table(("rule", "threshold", "value", "why"), rows)


def _name_of(rule: Rule) -> str:
    function = rule.func if isinstance(rule, functools.partial) else rule
    return str(function.__name__)


def _number(value: float) -> str:
    if value == 1 / 3:
        return "1/3"
    return str(value) if value == int(value) else f"{value:.7f}".rstrip("0")


if __name__ == "__main__":
    text = ailment_reference(PAGE.read_text(encoding="utf-8"))
    if "--stdout" in sys.argv[1:]:
        sys.stdout.write(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
