"""What our own levers gave in trainings: published figures, and ours, bad ones too.

In: a lever. Out: its `LeverEvidence`. It stands apart from the levers' files because the guest
loads those inside the training, and needs none of it. The reference of the levers shows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.levers._changing_evidence import CHANGED
from steptime.levers._measured_evidence import MEASURED
from steptime.levers._published_evidence import PUBLISHED
from steptime.levers._switch_evidence import SWITCHED
from steptime.levers.base import Lever, LeverEvidence

_PARTS = (PUBLISHED, MEASURED, SWITCHED, CHANGED)

EVIDENCE: Mapping[str, tuple[LeverEvidence, ...]] = {
    name: tuple(one for part in _PARTS for one in part.get(name, ()))
    for name in dict.fromkeys(name for part in _PARTS for name in part)
}
"""Evidence by the name of the lever."""


def evidence_of(lever: Lever) -> tuple[LeverEvidence, ...]:
    """Return what the lever declares itself, then what stands here."""
    return *lever.evidence, *EVIDENCE.get(lever.name, ())
