"""Words of a judgement of a model by its predictions."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.units import format_count
from steptime.report.words.verify.model_check_words import describe_check
from steptime.report.words.verify.model_check_words import describe_gain as describe_gain
from steptime.verify.values import Outcome
from steptime.verify.values.found_slice import Hunt
from steptime.verify.values.model_verdict import ModelVerdict, SliceColumn, SliceResult

NOTES: Mapping[str, str] = {
    "reference_is_first": "the arm of the first row is the reference; --reference-arm names it",
    "unpaired": "no id pairs the rows of both arms, so they are compared as two groups",
    "pooled_shares": "both arms are compared at the shares of all rows together; --share names "
    "those that count",
}
REASONS: Mapping[str, str] = {
    "no_margin": "NoMargin: without a margin, no loss is small enough",
    "reversal": "REVERSAL: another mix of rows hides the opposite difference within slices",
    "too_few_runs": "TooFewRuns: fewer than three trainings of a model give estimates alone",
    "rows_missing": "RowsDiffer: some rows are in one arm alone, and they may be the hard ones",
    "too_few_rows": "these rows cannot tell a loss of the margin from none",
}
_NEXT: Mapping[str | None, str] = {
    "no_margin": "Say with --margin how much loss does not matter.",
    "reversal": "Say with --share which shares count.",
    "too_few_runs": "Train each model at least three times.",
    "rows_missing": "Score both models on the same rows.",
    "too_few_rows": "Score more rows.",
    "leak": "Take the rows that are in the training out of the evaluation.",
}


def describe_answer(found: ModelVerdict) -> str:
    """Say the answer in one sentence."""
    new, old, reason = found.candidate_arm, found.reference_arm, found.reason or ""
    if found.is_allowed_loss:
        return f"{new} is significantly worse than {old}, but within the margin of {found.margin:g}"
    if found.outcome is Outcome.PASS and found.gain.low > 0:
        return f"{new} is better than {old}, by {found.gain.estimate:.3g}"
    if found.outcome is Outcome.PASS:
        return f"{new} is as good as {old}: a loss of {found.margin:g} or more is ruled out"
    if reason in ("slice_worse", "found_slice_worse"):
        return f"{new} is worse than {old} by more than the margin where {_worst_slice(found)}"
    if found.outcome is Outcome.FAIL and not reason:
        return f"{new} is worse than {old} by more than {found.margin:g}"
    why = REASONS.get(reason) or describe_check(reason, found.checks)
    is_open = found.outcome is Outcome.INCONCLUSIVE
    known = f"is not shown to be as good as {old}" if is_open else "fails"
    return f"{new} {known}: {why}"


def describe_where(found: ModelVerdict) -> str | None:
    """Name the slices that are worse, and those that are undecided; None without slices."""
    told = []
    for outcome, word in ((Outcome.FAIL, "worse"), (Outcome.INCONCLUSIVE, "undecided")):
        names = [f"{column.column} = {one.name}" for column in found.columns
                 for one in column.slices if one.outcome is outcome]  # fmt: skip
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        told += [f"{word} where {', '.join(names[:3])}{more}"] if names else []
    return "; ".join(told) or ("not worse in any slice" if found.columns else None)


def describe_next(found: ModelVerdict) -> str | None:
    """Say what to do next; None where a check says it."""
    if found.outcome is Outcome.PASS:
        return "Whether it may ship depends on more metrics: steptime verify release -h"
    if found.num_needed is not None:
        return f"Score more rows: about {format_count(found.num_needed)} in all would decide."
    if found.outcome is Outcome.FAIL and found.hunt is None and found.is_paired:
        return _NEXT.get(found.reason, "Look for the rows where it is worse: add --hunt all.")
    return _NEXT.get(found.reason)


def _worst_slice(found: ModelVerdict) -> str:
    """Return `country = jp`: the slice that is worse, of those that were named before others."""
    worse = [
        (one.gain.estimate, f"{column.column} = {one.name}")
        for column in found.columns
        for one in column.slices
        if one.outcome is Outcome.FAIL
    ]
    if worse:
        return min(worse)[1]
    looked_for = found.hunt.slices if found.hunt else ()
    first = next((one.conditions for one in looked_for if one.is_confirmed), ())
    return " and ".join(f"{one.column} = {one.value}" for one in first)


def describe_p(p: float) -> str:
    """Return a probability of a test; those that are 0 as computed are below what is known."""
    return f"{p:.2g}" if p > 1e-12 else "< 1e-12"


def describe_margin(margin: float, p: float) -> str:
    """Return a margin with the test against it."""
    return f"{margin:g}; p {describe_p(p)} of such rows, were the true loss as large"


def describe_means(found: ModelVerdict) -> str:
    """Return the mean metric of each arm, with its rows."""
    better = "less" if found.is_better_down else "more"
    return (
        f"{found.metric} {found.reference:.4g} in {found.reference_arm} "
        f"({format_count(found.num_reference)} rows), {found.candidate:.4g} in "
        f"{found.candidate_arm} ({format_count(found.num_candidate)} rows); {better} is better"
    )


def describe_trainings(found: ModelVerdict) -> str | None:
    """Say of how many trainings each arm is the mean; None where there was one of each."""
    first, second = found.num_seeds_reference, found.num_seeds_candidate
    if first is None or second is None or found.gain_on_these_rows is None:
        return None
    return (
        f"{first} of the reference, {second} of the candidate; the interval holds for other "
        f"trainings and other rows. On this evaluation set only: "
        f"{describe_gain(found.gain_on_these_rows)}"
    )


def describe_hunt(found: Hunt) -> str:
    """Say where slices were looked for, and what their p counts."""
    correction = "Holm" if found.method == "holm" else "Benjamini and Hochberg"
    text = (
        f"{format_count(found.num_proposing)} rows propose slices of {', '.join(found.columns)}, "
        f"{format_count(found.num_judging)} others judge them: p of a loss beyond "
        f"{found.margin:g}, corrected for {len(found.slices)} slices ({correction})"
    )
    return text if found.slices else f"no slice is worse; {text}"


def describe_pairs(found: ModelVerdict) -> str | None:
    """Say in how many pairs the arms differ; None where there are none."""
    if found.num_fixed is None or found.num_broken is None:
        return None
    text = f"the candidate alone is right in {format_count(found.num_fixed)} rows, "
    text += f"the reference alone in {format_count(found.num_broken)}"
    return text if found.p_exact is None else f"{text}; exact p {describe_p(found.p_exact)}"


def describe_parts(column: SliceColumn) -> str | None:
    """Return `+0.142 as it is = -0.036 within slices +0.178 by other shares of them`, or None."""
    parts = f"{column.within:+.3g} within slices {column.mix:+.3g} by other shares of them"
    return f"{column.raw:+.3g} as it is = {parts}" if column.mix else None


def describe_odds(column: SliceColumn) -> str | None:
    """Return the odds ratios with their tests; None where the metric is not of 0 and 1."""
    if column.odds_ratio is None or column.pooled_odds_ratio is None:
        return None
    text = f"{column.pooled_odds_ratio:.3g} times the reference's, within slices "
    text += f"{column.odds_ratio.estimate:.3g} ({column.odds_ratio.low:.3g} to "
    text += f"{column.odds_ratio.high:.3g}, Mantel-Haenszel"
    text += f", p {describe_p(column.p_association)})" if column.p_association is not None else ")"
    if column.p_homogeneous is not None and column.p_homogeneous < 0.05:
        text += f"; slices differ in it (Breslow-Day p {column.p_homogeneous:.2g})"
    return text


def describe_slice(one: SliceResult) -> str:
    """Say what the rows of a slice tell."""
    if one.outcome is Outcome.PASS:
        return "not worse"
    if one.outcome is Outcome.FAIL:
        return "worse"
    if one.num_needed is None:
        return "undecided"
    return f"undecided: {format_count(one.num_needed)} rows would decide"
