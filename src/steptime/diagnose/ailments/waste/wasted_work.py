"""Ailments of useful work: batches that are padding to a large part, and ranks of uneven work.

In: a Measurement with the padding of its batches and the balance of its ranks. Out: findings with
what other batches would save, predicted from the run's own lengths (docs/explanation/padding.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts, without
from steptime.diagnose.ailments.scale import (
    MIN_EXPLAINED,
    MIN_STEADY_STEPS,
    SCALE,
    Threshold,
    severity_of,
)
from steptime.diagnose.ailments.signals import (
    count,
    fraction_of,
    make_finding,
    share,
    site_of,
    sum_fractions,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.useful_work import Padding
from steptime.measure.values.observations import Site

MAX_USEFUL = Threshold(
    name="MAX_USEFUL",
    value=0.9,
    why="batches of rows that are cut to their longest have a tenth of padding even where rows of "
    "similar length are together",
)
MIN_BATCHES = Threshold(
    name="MIN_BATCHES",
    value=8,
    why="the longest rows of fewer batches scatter by more than a tenth of their mean",
)

_MODEL_PHASES = ("forward", "loss", "forward_and_loss", "backward")
"""Phases whose time goes by the positions of a batch; an optimizer's does not."""

_MAX_RANKS = 16
_MAX_PLACES = 3


def find_padding(measurement: Measurement) -> Finding | None:
    """PADDING: positions without content cost a share of the step that other batches would save."""
    padding = measurement.padding
    if padding is None or padding.num_batches < MIN_BATCHES.value:
        return None
    if padding.useful_fraction > MAX_USEFUL.value:
        return None
    model = sum_fractions(measurement, _MODEL_PHASES)
    left = padding.useful_work if padding.grouped_work is None else padding.grouped_work
    fraction = model * (1 - left)
    severity = severity_of(fraction)
    if severity is None:
        return None
    found = make_finding(
        PADDED,
        severity=severity,
        evidence=_evidence(padding, model),
        fraction=fraction,
        site=_first_site(measurement, ("input_wait", "forward", "forward_and_loss")),
    )
    names = {"seen_by": padding.seen_by}
    if padding.places:
        names["lines"] = ", ".join(padding.places[:_MAX_PLACES])
    return replace(found, names=names)


def _evidence(padding: Padding, model: float) -> tuple[Evidence, ...]:
    """Return the share that is used, and what each remedy would save, as shares of a step."""
    saved = (
        ("trimmed_gain", padding.trimmed_work),
        ("grouped_gain", padding.grouped_work),
        ("packed_gain", padding.useful_work),
    )
    width = padding.lengths.mean / padding.useful_fraction if padding.useful_fraction else 0.0
    return (
        share("useful", padding.useful_fraction),
        count("mean_length", padding.lengths.mean),
        count("mean_width", width),
        *(share(name, model * (1 - left)) for name, left in saved if left is not None),
        count("num_batches", padding.num_batches),
    )


def find_imbalance(measurement: Measurement) -> Finding | None:
    """IMBALANCE: in each step one rank has more work than the others, which wait for it."""
    balance = measurement.balance
    if balance is None or balance.num_steps < MIN_STEADY_STEPS.value:
        return None
    model = sum_fractions(measurement, _MODEL_PHASES)
    if not fraction_of(measurement, "communication"):
        model /= 1 + balance.excess_fraction  # then the wait is inside of the backward
    fraction = min(1.0, model * balance.excess_fraction)
    severity = severity_of(fraction)
    if severity is None:
        return None
    ranks = balance.ranks[:_MAX_RANKS]
    return make_finding(
        UNEVEN,
        severity=severity,
        evidence=(
            share("wait", fraction),
            share("excess", balance.excess_fraction),
            count("num_ranks", len(balance.ranks)),
            *(share(f"rank_{one.rank}_work", one.work_fraction) for one in ranks),
            *(share(f"rank_{one.rank}_longest", one.longest_fraction) for one in ranks),
            count("num_steps", balance.num_steps),
        ),
        fraction=fraction,
        site=_first_site(measurement, ("input_wait", "forward", "forward_and_loss")),
    )


def _first_site(measurement: Measurement, phases: Sequence[str]) -> Site | None:
    found = (site_of(measurement, phase) for phase in phases)
    return next((site for site in found if site is not None), None)


def explain_exchange(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, where a wait for longer batches does not count as exchange as well."""
    uneven = next((one for one in findings if one.kind is BottleneckKind.IMBALANCE), None)
    if uneven is None:
        return list(findings)
    wait = uneven.evidence[0].value
    return [
        replace(one, severity=Severity.INFO) if _is_same(one, wait) else one for one in findings
    ]


def _is_same(finding: Finding, wait: float) -> bool:
    is_exchange = finding.kind is BottleneckKind.COMMUNICATION_BOUND
    return is_exchange and wait >= MIN_EXPLAINED.value * finding.evidence[0].value


_COUNTED = by_facts("Other programs do not change the lengths of the rows.")

PADDED = Ailment(
    kind=BottleneckKind.PADDING,
    cause="padding",
    what="the model computes on padding that other batches would not have",
    needs="batches that tell their lengths",
    rule=find_padding,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(MAX_USEFUL, MIN_BATCHES, *SCALE),
    sentence="only {useful} of the positions of a batch are used: rows have {mean_length} on "
    "average and are padded to {mean_width}.",
    explanation="Cutting each batch to its longest row would save {trimmed_gain} of a step, with "
    "rows of similar length in a batch {grouped_gain}, packing rows {packed_gain}.",
    removal=without("the padding that trimming and length grouping remove"),
    remedy='Pad each batch to its own longest row in the collator (padding="longest" instead of '
    '"max_length"), and draw rows of similar length together; or pack rows one after the other, '
    "with an attention that keeps them apart (cu_seqlens).",
    levers=("trim_padding", "length_grouping"),
    when_contended=_COUNTED,
)
UNEVEN = Ailment(
    kind=BottleneckKind.IMBALANCE,
    cause="imbalance",
    what="in each step, ranks with shorter batches wait for the one with the longest",
    needs="tokens or batches that tell their lengths, on each of several ranks",
    rule=find_imbalance,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(MIN_EXPLAINED, MIN_STEADY_STEPS, *SCALE),
    sentence="the rank with the longest batch of a step has {excess} more work than the mean rank, "
    "and the others wait for it: {wait} of a step.",
    removal=without("the wait for longer batches"),
    remedy="Give all ranks rows of similar length in the same step: sort by length within groups "
    "before the rows are dealt to the ranks, or fill batches up to a number of tokens.",
    levers=("length_grouping",),
    when_contended=_COUNTED,
)
AILMENTS = (PADDED, UNEVEN)
