"""Words of what is asked of a model beside its comparison with another."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.interval import Interval
from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
from steptime.verify.values import Outcome
from steptime.verify.values.check_results import (
    HumanVerdict,
    LeakCount,
    LeakVerdict,
    ModelChecks,
    OtherColumn,
    PredictorRow,
    ProbeReport,
    ProbeResult,
    SimpleVerdict,
)

_REASONS: Mapping[str, str] = {
    "leak": "leak: rows of the evaluation stand in the training",
    "rows_repeat": "rows of the evaluation stand in the training, but training rows repeat each "
    "other as often; ids would decide",
    "adds_nothing": "the model adds nothing over {best}",
    "simple_undecided": "the rows do not tell whether it is better than the best simple predictor",
    "probe_violated": "a probe failed: {failed}",
    "probe_undecided": "a probe is undecided: {undecided}",
    "no_human_baseline": "no human baseline exists",
    "calibrated_fails": "--require calibrated: its probabilities do not come true",
    "calibrated_undecided": "--require calibrated: the rows would not show an overconfidence of "
    "0.1, or have no `probability` beside `label`",
    "human_fails": "--require human: it is worse than people by more than the margin",
    "human_undecided": "--require human: the rows do not tell whether it is worse than people",
    "preferred_fails": "--require preferred: people prefer the reference",
    "preferred_undecided": "--require preferred: people do not clearly prefer one of both",
}
_PREDICTORS: Mapping[str, str] = {
    "model": "the model",
    "most_common": "most common label",
    "mean": "one number for all",
    "stratified": "random label, at the training's shares",
    "last_value": "last value by `{column}`",
    "one_column": "column `{column}`",
    "neighbor": "nearest training row",
    "human": "`{column}`",
}
_WAYS: Mapping[str, str] = {
    "id": "same id",
    "exact": "same features",
    "near": "same after rounding, case and spaces",
    "text": "most of the same text",
}
_NO_HUMANS: Mapping[str | None, str] = {
    "one_labeler": "one person alone shows no agreement; name a second --human",
    "few_shared": "agreement needs 200 rows that all of them labeled",
    "people_disagree": "people do not agree, so no human baseline exists",
}
_UNDECIDED: Mapping[str | None, str] = {
    "no_direction_probe": "it counts only beside a direction probe: a model that reads nothing "
    "passes it, too",
    "constant_predictor": "all predictions are the same, and such a model passes it, too",
    "nothing_moved": "no prediction moved at all",
    "no_margin": "NoMargin: the probe needs the key `margin`",
}
_DOSES: Mapping[Outcome | None, str] = {
    None: "the curve alone; --predict-reference gives it something to be judged by",
    Outcome.PASS: "not worse than the reference at any dose",
    Outcome.FAIL: "worse than the reference",
    Outcome.INCONCLUSIVE: "the rows do not tell a loss of the margin from none",
}


def name_predictor(row: PredictorRow) -> str:
    """Return how a predictor is called."""
    return printable(_PREDICTORS[row.kind].format(column=row.column))


def describe_check(reason: str, checks: ModelChecks | None) -> str:
    """Say why a check keeps the model from passing."""
    simple, probes = (checks.simple, checks.probes) if checks else (None, None)
    results = probes.results if probes else ()
    failed, undecided = (
        ", ".join(one.name for one in results if one.outcome is outcome)
        for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)
    )
    best = name_predictor(simple.rows[simple.best]) if simple else ""
    return _REASONS[reason].format(best=best, failed=failed, undecided=undecided)


def describe_gain(gain: Interval) -> str:
    """Return `+0.02 (+0.005 to +0.035)`."""
    return f"{gain.estimate:+.3g} ({gain.low:+.3g} to {gain.high:+.3g})"


def _rate(rate: Interval) -> str:
    low, high = format_percent(rate.low), format_percent(rate.high)
    return f"{format_percent(rate.estimate)} ({low} to {high})"


def _needed(num: int | None) -> str:
    return "" if num is None else f"; about {format_count(num)} rows would decide"


def _columns(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{printable(name)}`" for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


def describe_simple(found: SimpleVerdict) -> str:
    """Say which simple predictor counts, what the answer is, and what it rests on."""
    best = name_predictor(found.rows[found.best])
    text = f"{found.outcome.value} beside the one that is best in training: {best}; made from "
    text += f"{format_count(found.num_train)} training rows{_needed(found.num_needed)}"
    if found.left_out:
        text += f"; hardly a value repeats in {_columns(found.left_out)}, so no rule was made of it"
    return text


def describe_humans(found: HumanVerdict) -> str:
    """Say how people agree, and how the model does beside them."""
    text = f"{format_count(found.num_shared)} rows that all of them labeled"
    if found.kappa is not None:
        text = f"agreement \N{GREEK SMALL LETTER KAPPA} {found.kappa:.2f} on {text}"
    if found.gain is None:
        return f"{text}; {_NO_HUMANS[found.reason]}"
    return f"{text}; the model over the mean labeler: {describe_gain(found.gain)}"


def describe_other(one: OtherColumn) -> str:
    """Say what a further column shows."""
    if one.kind == "numbers":
        return describe_gain(one.gain)
    p = "no preferences" if one.p is None else f"{_rate(one.gain)}, p {one.p:.2g}"
    return f"{p}, {one.num_ties:,} ties"


def describe_leak(one: LeakCount) -> str:
    """Say how many rows stand in both, and which."""
    text = f"{_WAYS[one.kind]}: {one.num_found:,} of {one.num_rows:,} rows"
    if one.num_found:
        text += f", such as {', '.join(one.examples)}"
        if one.own_share:
            text += f"; {format_percent(one.own_share)} of training rows repeat another one"
    return text


def describe_compared(found: LeakVerdict) -> str:
    """Say which rows and features were compared."""
    text = f"{format_count(found.num_rows)} rows beside {format_count(found.num_train)} of the "
    text += f"training, by {_columns(found.columns)}"
    if found.num_texts is not None:
        text += f"; piece by piece, the text of at most {format_count(found.num_texts)} rows"
    return text


def describe_predictor(found: ProbeReport) -> str | None:
    """Say what is odd about the predictor; None where nothing is."""
    if found.is_constant:
        return "it gives every row the same prediction"
    text = "two predictions of the same rows differ; how often is subtracted from each probe"
    return text if found.is_random else None


def describe_probe(one: ProbeResult) -> str:
    """Say what a probe found."""
    name = f"{one.name} (by {one.change})" if one.kind == "fresh" else one.name
    text = f"{name}: {one.outcome.value if one.outcome else 'shown'}: "
    why = _UNDECIDED.get(one.reason)
    if one.rate is None:
        return text + (why or _DOSES[one.outcome])
    text += f"{one.num_violations:,} of {one.num_rows:,} rows violate it, {_rate(one.rate)}, "
    text += f"allowed {format_percent(one.allowed or 0.0)}"
    if one.own_rate:
        text += f"; the predictor's own {format_percent(one.own_rate)} is subtracted"
    text += (f"; {why}" if why else "") + _needed(one.num_needed)
    rows = [f"{row.row} ({row.before} to {row.after})" for row in one.worst[:3]]
    return f"{text}; the worst: {', '.join(rows)}" if rows else text
