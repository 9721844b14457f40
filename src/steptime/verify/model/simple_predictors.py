"""Judges a model beside simple predictors, made from the training rows: the best must be beaten.

In: training rows, evaluation rows, and the model's metric on these. Out: a `SimpleVerdict`. The
best simple predictor is chosen on the training rows, by cross-validation, so that the choice has
not seen the rows on which it is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from steptime.errors import DataError
from steptime.verify.model.metrics import LABEL, NEEDS, PREDICTION, PROBABILITY, scores_of
from steptime.verify.model.signed_gains import SignedGain
from steptime.verify.values import Outcome
from steptime.verify.values.predictor_results import PredictorRow, SimpleVerdict

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

_PROBABILITIES = frozenset(name for name, needs in NEEDS.items() if PROBABILITY in needs)
_NUMBERS = frozenset({"absolute_error", "squared_error", "rmse"})

Columns = Mapping[str, Any]
Rule = Callable[[Columns, Any, Columns], Any]
"""Gets features and labels of some rows, and returns predictions for the features of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledRows:
    """Rows with features and labels.

    Attributes:
        columns: by name, numbers or text (num_rows,).
        labels: the label of each row (num_rows,): numbers, or text for accuracy.
    """

    columns: Columns
    labels: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleQuestion:
    """What is asked: the metric, its direction, the margin, and the column of the time."""

    metric: str
    is_better_down: bool
    margin: float | None = None
    time: str | None = None


def judge_simple(
    train: LabeledRows, rows: LabeledRows, scores: Any, asked: SimpleQuestion
) -> SimpleVerdict:
    """Return the model among simple predictors.

    Args:
        train: the training rows.
        rows: the evaluation rows.
        scores: the model's metric of each evaluation row (num_rows,).
        asked: the question.

    Raises:
        DataError: the training has too few rows, or one class alone (`OneClassOnly`).
    """
    _check(train, asked)
    rules, left_out = _rules(train, asked)
    sign = -1.0 if asked.is_better_down else 1.0
    found = [PredictorRow(kind="model", num_rows=len(scores), mean=float(scores.mean()))]
    gains = list[SignedGain]()
    for (kind, column), rule, trained in _best_of_columns(rules, train, asked, sign):
        output = rule(train.columns, train.labels, rows.columns)
        theirs = score_of(asked.metric, rows.labels, output)
        difference = sign * (scores - theirs)
        error = float(difference.std()) / math.sqrt(len(difference))
        gains.append(SignedGain(float(difference.mean()), error, len(difference)))
        found.append(
            PredictorRow(
                kind=kind,
                column=column,
                num_rows=len(scores),
                mean=float(theirs.mean()),
                trained=trained,
                gain=gains[-1].interval(),
            )
        )
    best = max(range(1, len(found)), key=lambda i: sign * (found[i].trained or 0.0))
    gain = gains[best - 1]
    # PASS where the model is better, FAIL where it is by no more than what does not matter.
    outcome = Outcome.PASS if gain.interval().low > 0 else Outcome.INCONCLUSIVE
    if outcome is not Outcome.PASS and gain.interval().high <= (asked.margin or 0.0):
        outcome = Outcome.FAIL
    return SimpleVerdict(
        rows=tuple(found),
        best=best,
        outcome=outcome,
        num_needed=gain.num_needed(0.0) if outcome is Outcome.INCONCLUSIVE else None,
        num_train=len(train.labels),
        left_out=tuple(left_out),
    )


def score_of(metric: str, labels: Any, output: Any) -> Any:
    """Return the score of each row (num_rows,), whose mean is the metric."""
    if metric == "accuracy":
        return (np.asarray(output) == labels).astype(float)
    name = PROBABILITY if metric in _PROBABILITIES else PREDICTION
    return scores_of(metric, {LABEL: labels, name: np.asarray(output, dtype=float)})


def _check(train: LabeledRows, asked: SimpleQuestion) -> None:
    labels = train.labels
    if len(labels) < _LEAST_ROWS:
        raise DataError(f"the training has {len(labels):,} rows; simple predictors need 50.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError("NonFiniteMetric: a label of the training is no finite number.")
    if asked.metric in {*_PROBABILITIES, "f1"} and not np.isin(labels, (0, 1)).all():
        raise DataError(f"{asked.metric} needs labels of 0 and 1, and the training has others.")
    if asked.metric not in _NUMBERS and len(np.unique(labels)) < 2:
        raise DataError(f"OneClassOnly: every training row has the label `{labels[0]}`.")


def _at(columns: Columns, rows: Any) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


Named = tuple[tuple[str, str | None], Rule]


def _rules(train: LabeledRows, asked: SimpleQuestion) -> tuple[list[Named], list[str]]:
    """Return every simple predictor that these rows allow, and the columns that are no features."""
    metric, texts = asked.metric, {n: v for n, v in train.columns.items() if v.dtype.kind == "U"}
    left_out = [n for n, v in texts.items() if 2 * len(np.unique(v)) > len(v)]
    features = [name for name in train.columns if name not in left_out]
    first = "mean" if metric in _NUMBERS else "most_common"
    rules: list[Named] = [((first, None), partial(_dummy, first, metric))]
    if metric not in _NUMBERS:
        rules.append((("stratified", None), partial(_dummy, "stratified", metric)))
    if asked.time is not None:
        rules.append((("last_value", asked.time), partial(_last_value, asked.time)))
    rules += [
        (("one_column", name), partial(_tree, name, leaves, metric))
        for name in features
        for leaves in _LEAVES
    ]
    if features:
        rules.append((("neighbor", None), partial(_neighbor, features, metric)))
    return rules, left_out


def _best_of_columns(
    rules: list[Named], train: LabeledRows, asked: SimpleQuestion, sign: float
) -> list[tuple[tuple[str, str | None], Rule, float]]:
    """Return each rule with its metric in training; of those on one column, the best alone."""
    found = [(name, rule, _trained(rule, train, asked)) for name, rule in rules]
    columns = [one for one in found if one[0][0] == "one_column"]
    best = max(columns, key=lambda one: sign * one[2], default=None)
    return [one for one in found if one[0][0] != "one_column" or one is best]


def _trained(rule: Rule, train: LabeledRows, asked: SimpleQuestion) -> float:
    """Return the mean metric of a rule on training rows that it has not seen."""
    from sklearn.model_selection import KFold

    outputs = np.empty(len(train.labels), dtype=train.labels.dtype)
    folds = KFold(_FOLDS, shuffle=True, random_state=SEED)
    for seen, held in folds.split(train.labels):
        parts = [_at(train.columns, rows) for rows in (seen, held)]
        outputs[held] = rule(parts[0], train.labels[seen], parts[1])
    return float(score_of(asked.metric, train.labels, outputs).mean())


def _dummy(strategy: str, metric: str, seen: Columns, labels: Any, new: Columns) -> Any:
    from sklearn.dummy import DummyClassifier, DummyRegressor

    x, other = np.zeros((len(labels), 1)), np.zeros((_length(new), 1))
    if metric in _NUMBERS:
        of = "median" if metric == "absolute_error" else "mean"  # which is best of one number
        return DummyRegressor(strategy=of).fit(x, labels).predict(other)
    if strategy == "most_common":
        strategy = "prior" if metric in _PROBABILITIES else "most_frequent"
    elif metric in _PROBABILITIES:
        # A drawn label is 0 or 1, of which the logarithm of a miss is without bound.
        draw = np.random.default_rng(SEED).random(len(other))
        return np.where(draw < labels.mean(), 0.99, 0.01)
    made = DummyClassifier(strategy=strategy, random_state=SEED).fit(x, labels)
    return _predicted(made, other, metric)


def _last_value(time: str, seen: Columns, labels: Any, new: Columns) -> Any:
    """Return for each row the label of the last training row before it."""
    order = np.argsort(seen[time], kind="stable")
    at = np.searchsorted(seen[time][order], new[time], side="left") - 1
    return labels[order][np.maximum(at, 0)]


def _tree(name: str, leaves: int, metric: str, seen: Columns, labels: Any, new: Columns) -> Any:
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    kind = DecisionTreeRegressor if metric in _NUMBERS else DecisionTreeClassifier
    made = kind(max_leaf_nodes=leaves, random_state=SEED)
    x, other = _matrix([name], seen, new)
    return _predicted(made.fit(x, labels), other, metric)


def _neighbor(features: list[str], metric: str, seen: Columns, labels: Any, new: Columns) -> Any:
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    kind = KNeighborsRegressor if metric in _NUMBERS else KNeighborsClassifier
    x, other = _matrix(features, seen, new)
    return _predicted(kind(n_neighbors=1).fit(x, labels), other, metric)


def _matrix(names: list[str], seen: Columns, new: Columns) -> list[Any]:
    """Return the features of both (num_rows, num_features): scaled numbers, and ones for texts."""
    from sklearn.preprocessing import OneHotEncoder

    parts = list[list[Any]]([[], []])
    for name in names:
        pair = [one[name].reshape(-1, 1) for one in (seen, new)]
        if "U" in (pair[0].dtype.kind, pair[1].dtype.kind):
            made = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=_CATEGORIES,
                                 sparse_output=False).fit(pair[0].astype(str))  # fmt: skip
            pair = [made.transform(values.astype(str)) for values in pair]
        else:
            known = pair[0][np.isfinite(pair[0])]
            middle, spread = (known.mean(), known.std() or 1.0) if len(known) else (0.0, 1.0)
            # A row without a value has the mean.
            pair = [np.where(np.isfinite(v), (v - middle) / spread, 0.0) for v in pair]
        for part, values in zip(parts, pair, strict=True):
            part.append(values)
    return [np.hstack(part) for part in parts]


def _predicted(made: Any, x: Any, metric: str) -> Any:
    if metric not in _PROBABILITIES:
        return made.predict(x)
    found, classes = made.predict_proba(x), made.classes_.tolist()
    return found[:, classes.index(1)] if 1 in classes else np.zeros(len(found))


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))
