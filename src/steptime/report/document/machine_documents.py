"""Makes the documents of `steptime machine` and `steptime doctor`.

In: an `Inventory` with `Ceilings`, or `MachineCheck` values. Out: a document in its envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.errors import InterruptedByUserError
from steptime.machine.checks.run_checks import ROWS
from steptime.machine.values.ceiling_values import Ceilings
from steptime.machine.values.check_values import Basis, MachineCheck, most_costly_first
from steptime.machine.values.inventory_values import Inventory
from steptime.report.blocks.machine.check_report import cost_text, describe_reason, seen_text
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.words.machine import machine_words


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineDocument:
    """What the machine has and what it reaches.

    Attributes:
        inventory: what the machine has.
        ceilings: what the machine reaches; null with `--inventory`.
    """

    inventory: Inventory
    ceilings: Ceilings | None


def machine_envelope(inventory: Inventory, found: Ceilings | None) -> Envelope[MachineDocument]:
    """Return the envelope of the machine; it is partial if not everything was measured."""
    errors: tuple[ErrorItem, ...] = ()
    was_interrupted = found is not None and found.missing == "interrupted"
    if found is not None and found.missing is not None:
        code = "interrupted" if was_interrupted else "not_measured"
        told = machine_words.describe_reason(found.missing)
        told += f": {found.detail}" if found.detail else ""
        errors = (
            ErrorItem(code=code, message=told, hint=machine_words.describe_next(found.missing)),
        )
    return enclose(
        "machine",
        MachineDocument(inventory=inventory, ceilings=found),
        exit_code=InterruptedByUserError.exit_code if was_interrupted else 0,
        errors=errors,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckText:
    """One check in words for people, which may change.

    Attributes:
        title: the check in a few words.
        why: why it matters.
        seen: what was seen.
        cost: what it can cost; null unless it fires.
        reason: why it was not checked, or does not apply.
    """

    title: str
    why: str
    seen: str
    cost: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDocument:
    """What holds a training back on this machine.

    Attributes:
        basis: what the checks rest on.
        checks: all checks, those that fire first, the most costly first.
        words: the words for each check, by its code.
    """

    basis: Basis
    checks: tuple[MachineCheck, ...]
    words: Mapping[str, CheckText]


def check_envelope(
    checks: tuple[MachineCheck, ...],
    *,
    basis: Basis,
    exit_code: int,
    gate: str | None = None,
) -> Envelope[CheckDocument]:
    """Return all checks, those that fire first; `gate` says which gate was not met."""
    fired = most_costly_first(checks)
    codes = {check.code for check in fired}
    ordered = (*fired, *(check for check in checks if check.code not in codes))
    words = {check.code: _text(check) for check in ordered}
    document = CheckDocument(basis=basis, checks=ordered, words=words)
    errors = () if gate is None else (ErrorItem(code="gate_not_met", message=gate),)
    return enclose("doctor", document, exit_code=exit_code, errors=errors)


def _text(check: MachineCheck) -> CheckText:
    row = ROWS[check.code]
    return CheckText(
        title=row.title,
        why=row.why,
        seen=seen_text(check),
        cost=cost_text(check.cost) if check.severity is not None else None,
        reason=None if check.reason is None else describe_reason(check.reason),
    )
