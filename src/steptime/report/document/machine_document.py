"""The document of `steptime machine`.

In: an `Inventory` and `Ceilings`. Out: an Envelope, as `report/schema/machine.schema.json`
describes its rendering.
"""

from __future__ import annotations

from dataclasses import asdict

from steptime.errors import InterruptedByUserError
from steptime.machine.values.inventory_values import Ceilings, Inventory
from steptime.report.document.envelope import Envelope, ErrorItem
from steptime.report.words.machine_words import describe_next, describe_reason


def machine_envelope(inventory: Inventory, found: Ceilings | None) -> Envelope:
    """The machine; partial where not all was measured, or nothing.

    Args:
        inventory: what it has.
        found: what it reaches; None where that was not asked for.
    """
    errors: tuple[ErrorItem, ...] = ()
    was_interrupted = found is not None and found.missing == "interrupted"
    if found is not None and found.missing is not None:
        code = "interrupted" if was_interrupted else "not_measured"
        told = describe_reason(found.missing) + (f": {found.detail}" if found.detail else "")
        errors = (ErrorItem(code=code, message=told, hint=describe_next(found.missing)),)
    return Envelope(
        command="machine",
        exit_code=InterruptedByUserError.exit_code if was_interrupted else 0,
        data={
            "inventory": asdict(inventory),
            "ceilings": None if found is None else asdict(found),
        },
        errors=errors,
    )
