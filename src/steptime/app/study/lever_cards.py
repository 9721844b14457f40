"""Puts what a lever declares into one value, for `steptime levers` and the reference pages."""

from __future__ import annotations

from steptime.levers.base import Lever
from steptime.levers.examples import WORLDS
from steptime.levers.lever_evidence import evidence_of
from steptime.report.blocks.study.lever_report import LeverCard


def card_of(lever: Lever) -> LeverCard:
    """Return what a lever declares, with the settings that it has in some world."""
    tried = [s for facts in WORLDS if lever.applies(facts) is None for s in lever.space(facts)]
    names = dict.fromkeys(name for settings in tried for name in settings)
    return LeverCard(
        name=lever.name,
        title=lever.title,
        preserves=lever.preserves.value,
        moment=lever.moment.value,
        relieves=lever.relieves,
        phases=lever.phases,
        when=lever.when,
        settings={n: tuple(dict.fromkeys(s[n] for s in tried if n in s)) for n in names},
        costs=lever.costs,
        source=lever.source,
        edit=lever.edit(tried[0] if tried else {}),
        evidence=evidence_of(lever),
    )
