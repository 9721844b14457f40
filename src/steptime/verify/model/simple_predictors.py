"""Judges a model beside simple predictors, made from the training rows: the best must be beaten.

In: training rows, evaluation rows, and the model's metric on these. Out: a `SimpleVerdict`. The
best simple predictor is chosen on the training rows, by cross-validation, so that the choice has
not seen the rows on which it is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from steptime.errors import DataError
from steptime.verify.model.metrics import LABEL, NEEDS, PREDICTION, PROBABILITY, scores_of
from steptime.verify.model.signed_gains import SignedGain, gain_of, judge
from steptime.verify.model.two_arms import ArmRows, Arms
from steptime.verify.values import Outcome
from steptime.verify.values.check_results import PredictorRow, SimpleVerdict

SEED = 0
_FOLDS = 5
MOST_TRAIN, MOST_ROWS = 20_000, 50_000
"""Rows that should be drawn of more: a neighbor is then found in seconds, and an interval of half a
percent of accuracy is narrow enough for a rule that should be beaten by far."""

_LEAVES = (2, 4, 16)
"""Of a rule on one column: one border, a band, or a curve; cross-validation says which."""

_CATEGORIES = 50
_LEAST_ROWS = 50
"""Of the training: fewer leave ten rows in a fold."""

_LEAST_PROBABILITY = 0.001
"""Of a simple predictor: a miss that was called impossible costs a logarithm without bound."""

_PROBABILITIES = frozenset(name for name, needs in NEEDS.items() if PROBABILITY in needs)
_NUMBERS = frozenset({"absolute_error", "squared_error", "rmse"})


@dataclass(frozen=True, slots=True)
class _Rule:
    """A simple predictor: how it learns features and labels and predicts from others' features."""

    kind: str
    column: str | None
    predict: Callable[[Any, Any, Any], Any]
    features: Any
    others: Any


def judge_simple(
    columns: Mapping[str, Sequence[Any]],
    labels: Any,
    truth: Any,
    scores: Any,
    *,
    metric: str,
    is_better_down: bool = False,
    margin: float | None = None,
    time: str | None = None,
) -> SimpleVerdict:
    """Return the model among simple predictors.

    Args:
        columns: the features by name, numbers or text: those of the training (num_train,) and of
            the evaluation (num_rows,).
        labels: the label of each training row (num_train,): numbers, or text for accuracy.
        truth: that of each evaluation row (num_rows,).
        scores: the model's metric of each evaluation row (num_rows,).
        metric: its name.
        is_better_down: whether less of it is better.
        margin: what does not matter.
        time: the column of the time, for the last value.

    Raises:
        DataError: the training has too few rows, or one class alone (`OneClassOnly`).
    """
    _check(labels, metric)
    if metric == "accuracy":  # whatever the labels are, equal ones are one class
        codes = np.unique(np.concatenate([labels, truth]), return_inverse=True)[1].reshape(-1)
        labels, truth = np.split(codes, [len(labels)])
    sign = -1.0 if is_better_down else 1.0
    free = [name for name, (values, _) in columns.items() if _is_free(values)]
    sizes = (len(labels), len(truth))
    rules = [*_rules({n: c for n, c in columns.items() if n not in free}, sizes, metric)]
    if time is not None:
        rules.append(_Rule("last_value", time, _last_value, *columns[time]))
    tried = [(_trained(one, labels, metric), one) for one in rules]
    of_columns = [one for one in tried if one[1].kind == "one_column"]
    best_of_columns = max(of_columns, key=lambda one: sign * one[0], default=None)
    found = [PredictorRow(kind="model", num_rows=len(scores), mean=float(scores.mean()))]
    gains = list[SignedGain]()
    shown = [one for one in tried if one[1].kind != "one_column" or one is best_of_columns]
    for trained, one in shown:
        theirs = score_of(metric, truth, one.predict(one.features, labels, one.others))
        arms = Arms(ArmRows(scores=theirs[None]), ArmRows(scores=scores[None]), is_paired=True)
        gains.append(gain_of(arms, sign=sign))
        found.append(
            PredictorRow(
                kind=one.kind,
                column=one.column,
                num_rows=len(scores),
                mean=float(theirs.mean()),
                trained=trained,
                gain=gains[-1].interval(),
            )
        )
    best = max(range(1, len(found)), key=lambda i: sign * (found[i].trained or 0.0))
    gain = gains[best - 1]
    # PASS where the model is better, FAIL where it is by no more than what does not matter.
    outcome = judge(gain, 0.0)
    if outcome is not Outcome.PASS and gain.num > 1 and gain.interval().high <= (margin or 0.0):
        outcome = Outcome.FAIL
    return SimpleVerdict(
        rows=tuple(found),
        best=best,
        outcome=outcome,
        num_needed=gain.num_needed(0.0) if outcome is Outcome.INCONCLUSIVE else None,
        num_train=len(labels),
        left_out=tuple(free),
    )


def score_of(metric: str, labels: Any, output: Any) -> Any:
    """Return the score of each row (num_rows,), whose mean is the metric."""
    if metric == "accuracy":
        return (np.asarray(output) == labels).astype(float)
    name = PROBABILITY if metric in _PROBABILITIES else PREDICTION
    return scores_of(metric, {LABEL: labels, name: np.asarray(output, dtype=float)})


def _check(labels: Any, metric: str) -> None:
    if len(labels) < _LEAST_ROWS:
        raise DataError(f"the training has {len(labels):,} rows; simple predictors need 50.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError("NonFiniteMetric: a label of the training is no finite number.")
    if metric in {*_PROBABILITIES, "f1"} and not np.isin(labels, (0, 1)).all():
        raise DataError(f"{metric} needs labels of 0 and 1, and the training has others.")
    if metric not in _NUMBERS and len(np.unique(labels)) < 2:
        raise DataError(f"OneClassOnly: every training row has the label `{labels[0]}`.")
    if metric == "accuracy" and 3 * len(np.unique(labels)) > len(labels):
        raise DataError(
            "hardly a label of the training repeats, so no rule can learn them.",
            hint="For labels that are numbers, --metric is squared_error or absolute_error.",
        )


def _trained(one: _Rule, labels: Any, metric: str) -> float:
    """Return the mean metric of a rule on training rows that it has not seen."""
    from sklearn.model_selection import KFold

    outputs = np.empty(len(labels))
    for seen, held in KFold(_FOLDS, shuffle=True, random_state=SEED).split(labels):
        outputs[held] = one.predict(one.features[seen], labels[seen], one.features[held])
    return float(score_of(metric, labels, outputs).mean())


def _rules(
    columns: Mapping[str, Sequence[Any]], sizes: tuple[int, int], metric: str
) -> Iterator[_Rule]:
    """Yield every simple predictor that these columns allow."""
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    dummy, tree, near = DummyClassifier, DecisionTreeClassifier, KNeighborsClassifier
    strategies = {"most_common": "prior", "stratified": "stratified"}
    if metric in _NUMBERS:
        dummy, tree, near = DummyRegressor, DecisionTreeRegressor, KNeighborsRegressor
        strategies = {"mean": "median" if metric == "absolute_error" else "mean"}
    chance = {} if dummy is DummyRegressor else {"random_state": SEED}
    nothing = [np.zeros((num, 1)) for num in sizes]
    for kind, strategy in strategies.items():
        rule = partial(_learn, dummy(strategy=strategy, **chance), metric)
        yield _Rule(kind, None, rule, *nothing)
    both = {name: _features(*pair) for name, pair in columns.items()}
    for name, pair in both.items():
        for leaves in _LEAVES:
            rule = partial(_learn, tree(max_leaf_nodes=leaves, random_state=SEED), metric)
            yield _Rule("one_column", name, rule, *pair)
    if both:
        whole = [np.hstack(parts) for parts in zip(*both.values(), strict=True)]
        yield _Rule("neighbor", None, partial(_learn, near(n_neighbors=1), metric), *whole)


def _learn(estimator: Any, metric: str, features: Any, labels: Any, others: Any) -> Any:
    made = estimator.fit(features, labels)
    if metric not in _PROBABILITIES:
        return made.predict(others)
    found, classes = made.predict_proba(others), made.classes_.tolist()
    p = found[:, classes.index(1)] if 1 in classes else np.zeros(len(found))
    return np.clip(p, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)


def _last_value(times: Any, labels: Any, others: Any) -> Any:
    """Return for each row the label of the last training row before it."""
    order = np.argsort(times, kind="stable")
    at = np.searchsorted(times[order], others, side="left") - 1
    return labels[order][np.maximum(at, 0)]


def _is_free(values: Any) -> bool:
    """Return whether it is text of which hardly a value repeats, so that no rule can use it."""
    return values.dtype.kind in "UO" and 2 * len(np.unique(values)) > len(values)


def _features(train: Any, rows: Any) -> list[Any]:
    """Return a column of both (num_rows, num_features): a scaled number, or ones for texts."""
    from sklearn.preprocessing import OneHotEncoder

    pair = [values.reshape(-1, 1) for values in (train, rows)]
    if {train.dtype.kind, rows.dtype.kind} & {"U", "O"}:
        made = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=_CATEGORIES,
                             sparse_output=False).fit(pair[0].astype(str))  # fmt: skip
        return [made.transform(values.astype(str)) for values in pair]
    known = train[np.isfinite(train)]
    middle, spread = (known.mean(), known.std() or 1.0) if len(known) else (0.0, 1.0)
    # A row without a value has the mean.
    return [np.where(np.isfinite(values), (values - middle) / spread, 0.0) for values in pair]
