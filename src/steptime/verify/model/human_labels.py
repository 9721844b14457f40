"""Judges a model beside people: their agreement first, then both on the same rows.

In: the labels that people gave, and the model's accuracy of each row. Out: a `HumanVerdict`, and
what people preferred. Where people do not agree with each other, no answer of theirs is a measure.

Sources: J. Cohen, Educ. Psychol. Meas. 20, 1960; J. L. Fleiss, Psychol. Bull. 76, 1971; the border
of 0.4 by J. R. Landis, G. G. Koch, Biometrics 33, 1977 (below it, agreement is at most fair).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.core.interval import Interval
from steptime.errors import DataError
from steptime.verify.model.signed_gains import gain_of, paired_gain, rate_of
from steptime.verify.model.two_arms import ArmRows, join
from steptime.verify.values import Outcome
from steptime.verify.values.check_results import HumanVerdict, OtherColumn, PredictorRow

if TYPE_CHECKING:
    from steptime.verify.model.two_arms import Floats

_LEAST_KAPPA = 0.4
_LEAST_SHARED = 200


def judge_humans(labels: Any, answers: Mapping[str, Any], right: Floats) -> HumanVerdict:
    """Return the model beside its labelers, on the rows that all of them labeled.

    Args:
        labels: the true label of each row (num_rows,) as text.
        answers: by column, what a person said of each row (num_rows,) as text, empty for nothing.
        right: whether the model is right (num_rows,), 1 or 0.

    Raises:
        DataError: no row has a label by everybody.
    """
    shared = np.logical_and.reduce([said != "" for said in answers.values()])
    num = int(shared.sum())
    if not num:
        raise DataError("no row has a label by every person.", hint="--human names their columns.")
    said = {name: one[shared] for name, one in answers.items()}
    scores = {name: (one == labels[shared]).astype(float) for name, one in said.items()}
    kappa = _agreement(list(said.values()))
    reason = None
    if len(answers) < 2:
        reason = "one_labeler"
    elif num < _LEAST_SHARED:
        reason = "few_shared"
    elif kappa is None or kappa < _LEAST_KAPPA:
        reason = "people_disagree"
    gain = paired_gain(right[shared] - np.mean(list(scores.values()), axis=0))
    return HumanVerdict(
        rows=tuple(
            PredictorRow(kind="human", column=name, num_rows=num, mean=float(one.mean()))
            for name, one in scores.items()
        ),
        num_shared=num,
        kappa=kappa,
        gain=None if reason else gain.interval(),
        outcome=Outcome.INCONCLUSIVE if reason else None,
        reason=reason,
    )


def _agreement(said: list[Any]) -> float | None:
    """Return the agreement beyond chance; None for one person, or one answer alone."""
    from sklearn.metrics import cohen_kappa_score
    from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

    if len(said) < 2 or len(np.unique(np.stack(said))) < 2:
        return None
    if len(said) == 2:
        return float(cohen_kappa_score(*said))
    return float(fleiss_kappa(aggregate_raters(np.stack(said, axis=1))[0]))


def compare_numbers(column: str, reference: ArmRows, candidate: ArmRows) -> OtherColumn:
    """Return another column of numbers in both arms, on the rows that have one.

    Raises:
        DataError: an arm has none.
    """
    known = [_known(one) for one in (reference, candidate)]
    if not all(one.num for one in known):
        raise DataError(f"EmptySlice: `{column}` has no number in one of the arms.")
    arms = join(*known)
    return OtherColumn(
        column=column,
        kind="numbers",
        num_reference=arms.reference.num,
        num_candidate=arms.candidate.num,
        reference=float(arms.reference.scores.mean()),
        candidate=float(arms.candidate.scores.mean()),
        gain=gain_of(arms, sign=1.0).interval(),
    )


def _known(arm: ArmRows) -> ArmRows:
    has = ~np.isnan(arm.scores[0])
    return ArmRows(scores=arm.scores[:, has], ids=None if arm.ids is None else arm.ids[has])


def count_preferences(column: str, said: Any) -> OtherColumn:
    """Return how many rows (num_rows,) prefer the candidate, of those that prefer one.

    Raises:
        DataError: a value is not `candidate`, `reference` or `tie`.
    """
    from scipy.stats import binomtest

    unknown = set(said.tolist()) - {"candidate", "reference", "tie", ""}
    if unknown:
        raise DataError(
            f"`{column}` holds `{min(unknown)}`; a preference is candidate, reference or tie."
        )
    wins, losses = int((said == "candidate").sum()), int((said == "reference").sum())
    num = wins + losses
    rate = rate_of(wins, num) if num else Interval(estimate=0.5, low=0.0, high=1.0, n=0)
    return OtherColumn(
        column=column,
        kind="preference",
        num_reference=num,
        num_candidate=num,
        reference=float(losses),
        candidate=float(wins),
        num_ties=int((said == "tie").sum()),
        gain=rate,
        p=float(binomtest(wins, num).pvalue) if num else None,
    )
