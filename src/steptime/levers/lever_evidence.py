"""What our own levers gave in trainings: published figures, and ours, bad ones too.

In: a lever. Out: its `LeverEvidence`. The figures are generated from benchmarks/results, and stand
apart from the levers' files because the guest loads those inside the training, and needs none of
it. The reference of the levers shows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

from steptime.levers.base import Lever, LeverEvidence


@cache
def all_evidence() -> Mapping[str, tuple[LeverEvidence, ...]]:
    """Return the evidence by the name of the lever."""
    text = resources.files("steptime.levers").joinpath("evidence.json").read_text("utf-8")
    levers = json.loads(text)
    return {name: tuple(LeverEvidence(**row) for row in rows) for name, rows in levers.items()}


def evidence_of(lever: Lever) -> tuple[LeverEvidence, ...]:
    """Return what the lever declares itself, then what stands here; none means untested."""
    return *lever.evidence, *all_evidence().get(lever.name, ())
