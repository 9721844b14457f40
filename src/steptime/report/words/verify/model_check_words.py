"""Words of what is asked of a model beside its comparison with another."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.interval import Interval
from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
from steptime.verify.values import Outcome
from steptime.verify.values.leak_results import LeakCount, LeakVerdict
from steptime.verify.values.predictor_results import (
    HumanVerdict,
    ModelChecks,
    OtherColumn,
    PredictorRow,
    SimpleVerdict,
)
from steptime.verify.values.probe_results import ProbeReport, ProbeResult

CHECK_REASONS: Mapping[str, str] = {
    "leak": "leak: rows of the evaluation stand in the training",
    "rows_repeat": "rows of the evaluation stand in the training, but training rows repeat each "
    "other as often; ids would decide",
    "simple_undecided": "the rows do not tell whether it is better than the best simple predictor",
    "probe_violated": "a probe failed",
    "probe_undecided": "a probe is undecided",
    "no_human_baseline": "no human baseline exists",
}
_PREDICTORS: Mapping[str, str] = {
    "model": "the model",
    "most_common": "most common label",
    "mean": "one number for all",
    "stratified": "random label, at the training's shares",
    "last_value": "last value by `{column}`",
    "one_column": "a rule on column `{column}`",
    "neighbor": "nearest training row",
    "human": "`{column}`",
}
_WAYS: Mapping[str, str] = {
    "id": "same id",
    "exact": "same features",
    "near": "same after rounding, case and spaces",
    "text": "most of the same text",
}
_NO_HUMANS: Mapping[str, str] = {
    "one_labeler": "one person alone shows no agreement; name a second --human",
    "few_shared": "agreement needs 200 rows that all of them labeled",
    "people_disagree": "people do not agree, so no human baseline exists",
}
_UNDECIDED: Mapping[str, str] = {
    "no_direction_probe": "it counts only beside a direction probe: a model that reads nothing "
    "passes it, too",
    "constant_predictor": "all predictions are the same, and such a model passes it, too",
    "nothing_moved": "no prediction moved at all",
    "no_margin": "NoMargin: the probe needs the key `margin`",
}


def name_predictor(row: PredictorRow) -> str:
    """Return how a predictor is called."""
    return _PREDICTORS[row.kind].format(column=row.column)


def describe_check(reason: str, checks: ModelChecks | None) -> str:
    """Say why a check keeps the model from passing."""
    if reason == "adds_nothing" and checks is not None and checks.simple is not None:
        best = checks.simple.rows[checks.simple.best]
        if best.kind == "one_column":
            return f"the model adds nothing over column `{best.column}`"
        return f"the model adds nothing over a simple predictor: {name_predictor(best)}"
    if reason in ("probe_violated", "probe_undecided") and checks and checks.probes:
        wanted = Outcome.FAIL if reason == "probe_violated" else Outcome.INCONCLUSIVE
        names = [one.name for one in checks.probes.results if one.outcome is wanted]
        return f"{CHECK_REASONS[reason]}: {', '.join(names)}"
    return CHECK_REASONS.get(reason, reason)


def describe_reach(gain: Interval) -> str:
    """Return `+0.02 (+0.005 to +0.035)`."""
    return f"{gain.estimate:+.4g} ({gain.low:+.4g} to {gain.high:+.4g})"


def describe_simple(found: SimpleVerdict) -> str:
    """Say whether the model is better than the best simple predictor."""
    best = found.rows[found.best]
    assert best.gain is not None
    how = {
        Outcome.PASS: "the model is better than",
        Outcome.FAIL: "the model adds nothing over",
        Outcome.INCONCLUSIVE: "the rows do not tell whether the model is better than",
    }[found.outcome]
    text = f"{how} the simple predictor that is best in training, {name_predictor(best)}: "
    text += f"{describe_reach(best.gain)}, row by row"
    if found.num_needed is not None:
        text += f"; about {format_count(found.num_needed)} rows would decide"
    return text


def describe_drawn(found: SimpleVerdict) -> str:
    """Say from how many rows simple predictors were made, and what was left out."""
    text = f"made from {format_count(found.num_train)} training rows"
    if found.num_drawn is not None:
        text += f", judged on {format_count(found.num_drawn)} rows that were drawn"
    if found.left_out:
        names = ", ".join(f"`{name}`" for name in found.left_out)
        text += f"; hardly a value repeats in {names}, so no rule was made of it"
    return text


def describe_humans(found: HumanVerdict) -> str:
    """Say how people agree, and how the model does beside them."""
    text = f"{format_count(found.num_shared)} rows that all of them labeled"
    if found.kappa is not None:
        text = f"agreement \N{GREEK SMALL LETTER KAPPA} {found.kappa:.2f} on {text}"
    if found.reason is not None:
        return f"{text}; {_NO_HUMANS[found.reason]}"
    assert found.gain is not None
    return f"{text}; the model over the mean labeler: {describe_reach(found.gain)}"


def describe_other(one: OtherColumn) -> str:
    """Say what a further column shows."""
    if one.kind == "preference":
        rate = one.gain
        text = f"candidate {one.candidate:,.0f}, reference {one.reference:,.0f}, "
        text += f"ties {one.num_ties or 0:,}"
        if one.p is None:
            return text
        shares = [format_percent(value) for value in (rate.estimate, rate.low, rate.high)]
        return f"{text}; {shares[0]} ({shares[1]} to {shares[2]}) without ties, p {one.p:.3g}"
    return f"{describe_reach(one.gain)} for the candidate"


def describe_leak(one: LeakCount) -> str:
    """Say how many rows stand in both, and which."""
    text = f"{_WAYS[one.kind]}: {one.num_found:,} of {one.num_rows:,} rows"
    if not one.num_found:
        return text
    text += f", such as {', '.join(one.examples)}"
    if one.own_share:
        text += f"; {format_percent(one.own_share)} of training rows repeat another training row"
    return text


def describe_compared(found: LeakVerdict) -> str:
    """Say which rows and features were compared."""
    text = f"{format_count(found.num_rows)} rows beside {format_count(found.num_train)} of the "
    text += "training"
    if found.columns:
        text += f", by {', '.join(f'`{printable(name)}`' for name in found.columns[:8])}"
        text += f" and {len(found.columns) - 8} more" if len(found.columns) > 8 else ""
    if found.num_texts is not None:
        text += f"; piece by piece, the text of at most {format_count(found.num_texts)} rows"
    return text


def describe_predictor(found: ProbeReport) -> str | None:
    """Say what is odd about the predictor; None where nothing is."""
    if found.is_constant:
        return "it gives every row the same prediction"
    if found.is_random:
        return (
            "two predictions of the same rows differ; the rate of rows in which they do is "
            "subtracted from each probe"
        )
    return None


def describe_probe(one: ProbeResult) -> str:
    """Say what a probe found."""
    if one.rate is None:
        if one.outcome is None:
            return "the curve alone; --predict-reference gives it something to be judged by"
        said = {
            Outcome.PASS: "not worse than the reference at any dose",
            Outcome.FAIL: "worse than the reference",
            Outcome.INCONCLUSIVE: "the rows do not tell a loss of the margin from none",
        }[one.outcome]
        return _UNDECIDED.get(one.reason or "", said)
    text = f"{one.num_violations:,} of {one.num_rows:,} rows violate it: "
    text += f"{format_percent(one.rate.estimate)} ({format_percent(one.rate.low)} to "
    text += f"{format_percent(one.rate.high)}), allowed {format_percent(one.allowed or 0.0)}"
    if one.own_rate:
        text += f"; the predictor's own {format_percent(one.own_rate)} is subtracted"
    if (why := _UNDECIDED.get(one.reason or "")) is not None:
        text += f"; {why}"
    if one.num_needed is not None:
        text += f"; about {format_count(one.num_needed)} rows would decide"
    return text


def describe_worst(one: ProbeResult) -> str | None:
    """Name the rows that violate it most."""
    if not one.worst:
        return None
    rows = (f"{row.row} ({row.before} to {row.after})" for row in one.worst[:3])
    return f"such as {', '.join(rows)}"
