"""Makes the document of `steptime machine`.

In: an `Inventory` and `Ceilings`. Out: a `MachineDocument` in its envelope.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.errors import InterruptedByUserError
from steptime.machine.values.ceiling_values import Ceilings
from steptime.machine.values.inventory_values import Inventory
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.words.machine.machine_words import describe_next, describe_reason


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
        told = describe_reason(found.missing) + (f": {found.detail}" if found.detail else "")
        errors = (ErrorItem(code=code, message=told, hint=describe_next(found.missing)),)
    return enclose(
        "machine",
        MachineDocument(inventory=inventory, ceilings=found),
        exit_code=InterruptedByUserError.exit_code if was_interrupted else 0,
        errors=errors,
    )
