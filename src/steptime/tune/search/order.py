"""Which levers to try, and in what order: those that apply, with what they could give at most.

In: levers, facts, measurement and diagnosis. Out: offers in order, and why other levers are not
offered. Headroom is an upper bound: the speedup if all the time that a lever can shorten were gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from steptime.core.evidence import Evidence
from steptime.levers.base import Facts, Lever, Preserves
from steptime.measure.values.measurement import SPANS, Measurement
from steptime.tune.search.bench import Baseline
from steptime.tune.search.mechanism import NEVER_FIRST
from steptime.tune.search.proof.yardstick import MIN_QUIET_CORES
from steptime.tune.values.study_values import NEEDS_PROOF, Applied, NotTried

MAX_HEADROOM_FRACTION = 0.99
"""At most a hundredfold speedup is promised: fractions are measured, and some time remains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A lever that applies here, with what may be tried of it.

    `headroom` is the fraction of time that it can shorten, None where that was not observed;
    `is_aimed`: it relieves the bottleneck that the diagnosis names; `is_live`: it can be switched
    between two steps.
    """

    lever: Lever
    settings: tuple[Applied, ...]
    headroom: float | None
    is_aimed: bool
    is_live: bool

    @property
    def name(self) -> str:
        """The lever's."""
        return self.lever.name


def offer(
    levers: Sequence[Lever],
    baseline: Baseline,
    *,
    excluded: Sequence[str],
    allows_changes: bool = False,
) -> tuple[tuple[Offer, ...], tuple[NotTried, ...]]:
    """The levers that may be tried here, best first, and why the others may not.

    No trial speaks for a lever that changes the training, allowed or not: that takes whole runs
    over seeds.
    """
    offers = []
    changing = NEEDS_PROOF if allows_changes else "changes_training"
    refused = [NotTried(name=name, reason="excluded") for name in excluded]
    for lever in levers:
        if lever.name in excluded:
            continue
        reason = _refusal(lever, baseline)
        if reason is not None:
            refused.append(reason)
            continue
        settings = _allowed(lever, baseline.facts)
        if not settings:
            refused.append(NotTried(name=lever.name, reason=changing))
            continue
        offers.append(
            Offer(
                lever=lever,
                settings=settings,
                headroom=_headroom_of(lever, baseline),
                is_aimed=baseline.diagnosis.kind.value in lever.relieves,
                is_live=lever.is_live(baseline.facts),
            )
        )
    offers.sort(key=lambda it: (not it.is_aimed, -expected_headroom(it), it.name))
    return tuple(offers), tuple(refused)


def _refusal(lever: Lever, baseline: Baseline) -> NotTried | None:
    """Why the lever is no offer, None where it may be one."""
    facts = baseline.facts
    text = lever.applies(facts)
    if text is None and lever.name in NEVER_FIRST and _is_undisturbed(baseline):
        text = "No other program needed the cores, and a thread that sleeps is late to wake."
    if text is not None:
        return NotTried(name=lever.name, reason="does_not_apply", text=text)
    if not lever.space(facts):
        return NotTried(name=lever.name, reason="no_settings")
    return None


def _is_undisturbed(baseline: Baseline) -> bool:
    """Whether the training had the cores for its own threads."""
    host, loaders = baseline.measurement.host, baseline.facts.loaders
    if host is None or loaders is None or any(one.num_workers for one in loaders):
        return False
    others_cores = host.others_cores
    return others_cores is not None and others_cores <= MIN_QUIET_CORES


def _allowed(lever: Lever, facts: Facts) -> tuple[Applied, ...]:
    """Its settings here, smallest first, without those that change the training."""
    return tuple(
        Applied(name=lever.name, settings=settings)
        for settings in lever.space(facts)
        if (lever.class_here(facts, settings) or lever.preserves) is not Preserves.NOTHING
    )


def _headroom_of(lever: Lever, baseline: Baseline) -> float | None:
    """The time of its phases; at most what the lever itself says of the facts, if it does."""
    of_phases = headroom(lever.phases, baseline.measurement)
    if lever.saves is None:
        return of_phases
    share = lever.saves(baseline.facts)
    if share is None:
        return None
    return min(share, MAX_HEADROOM_FRACTION if of_phases is None else of_phases)


def expected_headroom(offer: Offer) -> float:
    """What to go by where something must be decided: an unknown headroom counts as half."""
    return 0.5 if offer.headroom is None else offer.headroom


def headroom(names: Iterable[str], measurement: Measurement) -> float | None:
    """Fraction of time that phases and spans of these names take; None where one is unknown.

    A span that the window did not show has no part in it.

    A span's is its share of steps and span together. `fetch` and `collate` lie inside
    `input_wait`, `forward` and `loss` inside `forward_and_loss` where they were compiled together.
    """
    shares = _shares(measurement)
    wanted = set(names)
    if "input_wait" in wanted:
        wanted -= {"fetch", "collate"}
    if wanted & {"forward", "loss"} and shares.get("forward_and_loss"):
        wanted = (wanted - {"forward", "loss"}) | {"forward_and_loss"}
    elif shares.get("forward") is not None:
        wanted.discard("forward_and_loss")
    if not wanted:
        return None
    known = [shares.get(name) for name in sorted(wanted)]
    found = [share for share in known if share is not None]
    if len(found) < len(known):
        return None
    return min(MAX_HEADROOM_FRACTION, math.fsum(found))


ABSENT = frozenset({"not_applicable_on_cpu", "no_loader_seen", "single_rank", "no_optimizer_seen"})
"""Words of a phase that was not observed because there is none of it: its share is zero."""


def _shares(measurement: Measurement) -> Mapping[str, float | None]:
    """Share of time by phase and span; None where not observed."""
    shares: dict[str, float | None] = {
        phase.name: 0.0 if phase.missing in ABSENT else phase.fraction
        for phase in measurement.phases
    }
    steady = measurement.steady
    if steady is not None and steady.step_time_s is not None:
        shares |= dict.fromkeys(SPANS, 0.0)  # what the window did not show has no part in it
        steps_s = steady.step_time_s.estimate * measurement.num_steps
        for span in measurement.spans:
            shares[span.name] = span.total_s / max(1e-9, span.total_s + steps_s)
    return shares


def most_of(one: Offer, *, speedup: float = 1.0) -> float | None:
    """The speedup it gives at most where the rest is so much faster; None where it is unknown."""
    if one.headroom is None:
        return None
    return 1 / (1 - min(MAX_HEADROOM_FRACTION, speedup * one.headroom))


def split_by_headroom(
    offers: Sequence[Offer], floor: float, *, speedup: float = 1.0
) -> tuple[tuple[Offer, ...], tuple[NotTried, ...]]:
    """Offers that could give more than the noise floor, and those that could not.

    Args:
        offers: in order.
        floor: noise floor, a fraction.
        speedup: what was gained elsewhere already: the shares of the rest grew by as much.
    """
    kept, refused = [], []
    for one in offers:
        most = most_of(one, speedup=speedup)
        if most is None or most > 1 + floor:
            kept.append(one)
        else:
            evidence = (
                Evidence(name="headroom", value=most, unit="x"),
                Evidence(name="noise_floor", value=floor, unit="fraction"),
            )
            refused.append(
                NotTried(name=one.name, reason="headroom_below_noise", evidence=evidence)
            )
    return tuple(kept), tuple(refused)
