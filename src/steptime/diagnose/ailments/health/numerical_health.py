"""Ailments of the training's numbers: infinite or NaN, sudden rises, a loss that repeats or grows.

They are no bottleneck of a step. But a training whose loss is NaN is worth nothing, so that one
opens every report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.core.process_end import RunState
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import count, make_finding, site_of
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.health import LossCurve, LossRise, NonFinite
from steptime.measure.values.observations import Site

SPIKE_SIGMAS = Threshold(
    name="SPIKE_SIGMAS",
    value=8.0,
    why="robust deviations from the level before: normal noise does not get there in a lifetime",
)
SPIKE_RATIO = Threshold(
    name="SPIKE_RATIO",
    value=3.0,
    why="times the largest of the 512 deviations before: noise with heavy tails (Student's t with "
    "2 degrees of freedom) gets there once in some 5,000 updates",
)
SHORT_SPIKE_RATIO = Threshold(
    name="SHORT_SPIKE_RATIO",
    value=5.0,
    why="the same for a spike of one or two updates, which may be a strange batch",
)
MIN_LASTING = Threshold(
    name="MIN_LASTING",
    value=3,
    why="updates in a row: one or two may be a strange batch",
)
DIVERGED_LEVEL = Threshold(
    name="DIVERGED_LEVEL",
    value=3.0,
    why="times the level before the rise, and above the level of the beginning: a warm restart "
    "stays below both",
)
MIN_DIVERGED = Threshold(
    name="MIN_DIVERGED",
    value=8,
    why="losses since the rise: fewer may still come down",
)
DIVERGED_GROWTH = Threshold(
    name="DIVERGED_GROWTH",
    value=2.0,
    why="from the first to the last part of the last quarter of the run, and in each part of it: "
    "what grows like the cube of the updates stays below",
)
DIVERGED_FROM_FIRST = Threshold(
    name="DIVERGED_FROM_FIRST",
    value=10.0,
    why="times the level of the beginning, beside that growth",
)
DIED_LEVEL = Threshold(
    name="DIED_LEVEL",
    value=100.0,
    why="times the level of the beginning, in the last loss of a run that failed",
)


def find_non_finite(measurement: Measurement) -> Finding | None:
    """No bottleneck: the loss, the gradients or the weights became infinite or NaN."""
    health = measurement.health
    found = None if health is None else health.non_finite
    if found is None:
        return None
    evidence = [
        count("first_update", found.first_update),
        count("updates_wasted", found.num_wasted),
        count("num_updates", found.num_updates),
        *(
            []
            if (last := found.last_finite_update) is None
            else [count("last_finite_update", last)]
        ),
        *([count("bad_rank", found.rank)] if measurement.num_ranks > 1 else []),
    ]
    is_exact = last is None or found.first_update - last <= 1
    finding = make_finding(NON_FINITE, severity=_severity(found), evidence=evidence)
    finding = replace(
        finding,
        names={
            "value": found.value,
            "what": found.what,
            "since": "exactly" if is_exact else "at_latest",
            "until": "still_going" if found.is_going_on else "recovered",
            **({"weights": ", ".join(found.weights)} if found.weights else {}),
            **({"masked": found.masked} if found.masked else {}),
        },
    )
    return _placed(finding, _bad_site(measurement, found))


def _severity(found: NonFinite) -> Severity:
    return Severity.CRITICAL if found.is_going_on else Severity.WARNING


def _bad_site(measurement: Measurement, found: NonFinite) -> Site | None:
    """Return the line that was seen, else that of the backward call or of the clipping."""
    what = "gradient_processing" if found.value == "gradient_norm" else "backward"
    known = site_of(measurement, what)
    if found.file is None or found.line is None:
        return known
    is_known = known is not None and (known.file, known.line) == (found.file, found.line)
    return Site(
        what=what,
        file=found.file,
        line=found.line,
        end_line=found.line,
        calls_per_step=known.calls_per_step if known is not None and is_known else 1.0,
        text=known.text if known is not None and is_known else None,
    )


def _placed(finding: Finding, site: Site | None) -> Finding:
    """Return the finding with its line; how often that runs is of no interest here."""
    if site is None:
        return finding
    return replace(finding, where=site.place, where_text=site.text, site=site)


def find_spike(measurement: Measurement) -> Finding | None:
    """No bottleneck: the loss rose suddenly, and came back.

    Where optimizers take turns at losses that differ, one's update may be the other's jump.
    """
    curves = _curves(measurement)
    takes_turns = not measurement.loops and len({curve.last for curve in curves}) > 1
    if takes_turns or find_divergence(measurement) is not None:
        return None
    found = [
        (rise, curve)
        for curve in curves
        for rise in curve.rises
        if rise.is_over and _is_spike(rise)
    ]
    if not found:
        return None
    worst, curve = max(found, key=lambda one: one[0].over_largest)
    is_lasting = any(rise.num_values >= MIN_LASTING.value for rise, _ in found)
    finding = make_finding(
        LOSS_SPIKE,
        severity=Severity.WARNING if is_lasting else Severity.INFO,
        evidence=(
            *_rise_evidence(worst),
            count("num_spikes", len(found)),
            count("spike_updates", worst.num_values),
            count("optimizer", curve.optimizer),
        ),
    )
    return _placed(finding, site_of(measurement, "backward"))


def _is_spike(rise: LossRise) -> bool:
    is_short = rise.num_values < MIN_LASTING.value
    ratio = SHORT_SPIKE_RATIO if is_short else SPIKE_RATIO
    return rise.sigmas >= SPIKE_SIGMAS.value and rise.over_largest >= ratio.value


def _rise_evidence(rise: LossRise) -> tuple[Evidence, ...]:
    return (
        count("first_update", rise.first_update),
        count("loss_before", rise.before),
        count("loss_peak", rise.peak),
        count("sigmas", rise.sigmas),
        Evidence(name="over_largest", value=rise.over_largest, unit="x"),
    )


def find_divergence(measurement: Measurement) -> Finding | None:
    """No bottleneck: the loss rose and did not come back, or grows faster and faster."""
    if _is_lost(measurement):
        return None
    has_failed = measurement.end.state is RunState.FAILED
    for curve in _curves(measurement):
        rise = _lasting_rise(curve)
        if rise is not None:
            evidence = (*_rise_evidence(rise), count("loss_last", curve.last))
        elif _is_growing(curve):
            growth = Evidence(name="growth", value=curve.growth or 0.0, unit="x")
            first = count("loss_before", curve.first)
            evidence = (first, growth, count("loss_last", curve.last))
        elif 0 < DIED_LEVEL.value * curve.first <= (curve.end or 0.0) and has_failed:
            evidence = (count("loss_before", curve.first), count("loss_last", curve.end or 0.0))
        else:
            continue
        finding = make_finding(DIVERGING, severity=Severity.WARNING, evidence=evidence)
        return _placed(finding, site_of(measurement, "backward"))
    return None


def _lasting_rise(curve: LossCurve) -> LossRise | None:
    """Return the first rise after which the loss stayed, or ended, far above what it was."""
    for rise in curve.rises:
        far = DIVERGED_FROM_FIRST.value * max(abs(rise.before), abs(curve.first))
        if _is_spike(rise) and 0 < far <= curve.last:
            return rise
        if rise.is_over or not _is_spike(rise) or rise.num_values < MIN_DIVERGED.value:
            continue
        needed = max(DIVERGED_LEVEL.value * abs(rise.before), abs(curve.first))
        if curve.last >= needed and curve.last >= (rise.before + rise.peak) / 2:
            return rise
    return None


def _is_growing(curve: LossCurve) -> bool:
    return (
        curve.growth is not None
        and curve.growth >= DIVERGED_GROWTH.value
        and 0 < DIVERGED_FROM_FIRST.value * curve.first <= curve.last
    )


def find_flat_loss(measurement: Measurement) -> Finding | None:
    """No bottleneck: the losses repeat, so that the updates change nothing."""
    if _is_lost(measurement):
        return None
    for curve in _curves(measurement):
        if curve.repeats_since is None or curve.repeats_every is None:
            continue
        finding = make_finding(
            LOSS_FLAT,
            severity=Severity.INFO if curve.last == 0 else Severity.WARNING,
            evidence=(
                count("first_update", curve.repeats_since),
                count("repeats_every", curve.repeats_every),
                count("loss_last", curve.last),
                count("optimizer", curve.optimizer),
            ),
        )
        return _placed(finding, site_of(measurement, "backward"))
    return None


def _curves(measurement: Measurement) -> Sequence[LossCurve]:
    return () if measurement.health is None else measurement.health.curves


def _is_lost(measurement: Measurement) -> bool:
    """Return whether the numbers are infinite or NaN to the end, which says more than a curve."""
    health = measurement.health
    return health is not None and health.non_finite is not None and health.non_finite.is_going_on


_COUNTED = by_facts("Other programs do not change the training's numbers.")

NON_FINITE = Ailment(
    cause="non_finite",
    what="the loss, the gradients or the weights became infinite or NaN",
    needs="`health`",
    rule=find_non_finite,
    asked=Asked.ALWAYS,
    title="not finite",
    sentence="{what} in the {value} from update {first_update} {since}, {until}: "
    "{updates_wasted} of {num_updates} updates were wasted.",
    explanation="After that update {weights} are not finite; the other weights are.",
    suspicion="Suspected: the softmax over masked scores near {masked}. A row that is masked whole "
    "makes it NaN, and its gradients, even where the loss leaves the row out; --health tells.",
    remedy="Find what makes the first bad number in update {first_update}.",
    when_contended=_COUNTED,
)
LOSS_SPIKE = Ailment(
    cause="loss_spike",
    what="the loss rose suddenly, and came back",
    needs="`health`",
    rule=find_spike,
    asked=Asked.ALWAYS,
    thresholds=(SPIKE_SIGMAS, SPIKE_RATIO, SHORT_SPIKE_RATIO, MIN_LASTING),
    title="loss spike",
    sentence="in update {first_update} the loss rose from {loss_before} to {loss_peak}, "
    "{over_largest} as far as in any of the 512 updates before, and needed {spike_updates} updates "
    "to come half-way back. Such spikes: {num_spikes}.",
    remedy="Look at the batch of update {first_update}, and at the learning rate: clip the "
    "gradients by their norm, or lengthen the warm-up.",
    when_contended=_COUNTED,
)
DIVERGING = Ailment(
    cause="diverging",
    what="the loss rose and did not come back, or grows faster and faster",
    needs="`health`",
    rule=find_divergence,
    asked=Asked.ALWAYS,
    thresholds=(DIVERGED_LEVEL, MIN_DIVERGED, DIVERGED_GROWTH, DIVERGED_FROM_FIRST, DIED_LEVEL),
    title="diverging",
    sentence="the loss rose from {loss_before} to {loss_last}, and stayed there to the end.",
    remedy="Lower the learning rate, or clip the gradients by their norm.",
    when_contended=_COUNTED,
)
LOSS_FLAT = Ailment(
    cause="loss_flat",
    what="the losses repeat, so that updates change nothing",
    needs="`health`",
    rule=find_flat_loss,
    asked=Asked.ALWAYS,
    title="flat loss",
    sentence="from update {first_update} to the end the loss repeats to six digits every "
    "{repeats_every} updates (last {loss_last}): the updates change nothing.",
    remedy="Look whether the optimizer holds the weights of the model, whether gradients reach "
    "them, and whether the learning rate is zero.",
    when_contended=_COUNTED,
)
AILMENTS = (NON_FINITE, LOSS_SPIKE, DIVERGING, LOSS_FLAT)
CAUSES_FIRST = (NON_FINITE.cause,)
"""Nothing else in a report matters as long as the numbers are not finite."""
