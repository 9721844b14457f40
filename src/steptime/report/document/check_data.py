"""The document of `steptime machine --check`.

In: `MachineCheck` values. Out: an Envelope, as `report/schema/check.schema.json` describes its
rendering.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from steptime.machine.checks.run_checks import ROWS
from steptime.machine.values.check_values import Basis, MachineCheck, most_costly_first
from steptime.report.document.envelope import Envelope, ErrorItem
from steptime.report.text.check_text import cost_text, describe_reason, seen_text


def check_envelope(
    checks: tuple[MachineCheck, ...],
    *,
    basis: Basis,
    exit_code: int,
    gate: str | None = None,
) -> Envelope:
    """What fires first, most costly first, then the others.

    Args:
        checks: all of them.
        basis: what they rest on.
        exit_code: of the command.
        gate: the words of a gate that was not met.
    """
    fired = most_costly_first(checks)
    codes = {check.code for check in fired}
    ordered = [*fired, *(check for check in checks if check.code not in codes)]
    errors = () if gate is None else (ErrorItem(code="gate_not_met", message=gate),)
    return Envelope(
        command="machine",
        exit_code=exit_code,
        data={"basis": asdict(basis), "checks": [_row(check) for check in ordered]},
        errors=errors,
    )


def _row(check: MachineCheck) -> dict[str, Any]:
    words = ROWS[check.code]
    row = asdict(check)
    row["title"] = words.title
    row["why"] = words.why
    row["text"] = {
        "seen": seen_text(check),
        "cost": cost_text(check.cost) if check.severity is not None else None,
        "reason": None if check.reason is None else describe_reason(check.reason),
    }
    return row
