"""The metrics that are known by name, as one score for each row whose mean is the metric.

A metric that is no mean of rows (area under the curve, F1, root mean square) is given as the
influence of each row: the mean over rows is the metric, and their spread gives its standard error,
of pairs of rows, too. So what holds for means holds for these metrics.

Sources: DeLong et al., Biometrics 44, 1988, for the area; Efron, 1982, chapter 6, for the others
(infinitesimal jackknife).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from steptime.errors import DataError, UsageError
from steptime.verify.model.repair import log_losses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Columns = Mapping[str, "Floats"]
"""By name, numbers of each row (num_rows,)."""

LABEL, PREDICTION, PROBABILITY = "label", "prediction", "probability"
NEEDS: Mapping[str, tuple[str, ...]] = {
    "accuracy": (LABEL, PREDICTION),
    "brier": (LABEL, PROBABILITY),
    "log_loss": (LABEL, PROBABILITY),
    "squared_error": (LABEL, PREDICTION),
    "absolute_error": (LABEL, PREDICTION),
    "auc": (LABEL, PROBABILITY),
    "f1": (LABEL, PREDICTION),
    "rmse": (LABEL, PREDICTION),
}
"""By metric, the columns that it is made of."""

_LOSS = re.compile(
    r"(?:^|[\W_])(?:brier|loss|error|r?mse|mae|mape|nll|perplexity|entropy|[wc]er|ece)"
    r"(?:[\W_]rate)?$",
    re.IGNORECASE,
)
_UP_TO_ONE = frozenset({"accuracy", "brier", "auc", "f1"})

OF_THE_WHOLE = frozenset({"auc", "f1", "rmse"})
"""Metrics that are no mean of rows: each slice has its own."""


def is_loss(metric: str) -> bool:
    """Return whether less of a metric is better, by the last word of its name."""
    return _LOSS.search(metric) is not None


def check_margin(metric: str, margin: float | None, scores: Sequence[Floats]) -> None:
    """Check that a metric can lose more than the margin.

    Raises:
        UsageError: it lies between 0 and 1, and the margin is 1 or more.
    """
    if margin is None or margin < 1:
        return
    if metric in _UP_TO_ONE or all(is_binary(one) for one in scores):
        raise UsageError(
            f"the margin of `{metric}` is {margin:g}, and no loss can be larger than 1.",
            hint="Give it as a fraction: 0.005 is half a point of a hundred.",
        )


def is_binary(values: Floats) -> bool:
    """Return whether all scores are 0 or 1."""
    return bool(((values == 0) | (values == 1)).all())


def scores_of(metric: str, columns: Columns) -> Floats:
    """Return the score of each row (num_rows,), whose mean is the metric.

    Args:
        metric: one of `NEEDS`.
        columns: what it is made of; of `accuracy`, numbers that are equal where values are.

    Raises:
        DataError: a probability is outside of [0, 1] (`ProbabilitiesInvalid`), or only one class
            is there (`OneClassOnly`).
    """
    if PROBABILITY in NEEDS[metric]:
        _check_probabilities(columns[PROBABILITY])
    return _METRICS[metric](*(columns[name] for name in NEEDS[metric]))


def _check_probabilities(p: Floats) -> None:
    num_bad = int((~((p >= 0) & (p <= 1))).sum())
    if num_bad:
        raise DataError(
            f"ProbabilitiesInvalid: `probability` is not between 0 and 1 in {num_bad:,} of "
            f"{len(p):,} rows."
        )


def _accuracy(y: Floats, prediction: Floats) -> Floats:
    import numpy as np

    return np.asarray(y == prediction, dtype=np.float64)


def _squared(y: Floats, prediction: Floats) -> Floats:
    import numpy as np

    return np.asarray(np.square(prediction - y))


def _absolute(y: Floats, prediction: Floats) -> Floats:
    import numpy as np

    return np.asarray(np.abs(prediction - y))


def _auc(y: Floats, p: Floats) -> Floats:
    """Return the placements of DeLong: of a row among those of the other class."""
    import numpy as np
    from scipy.stats import rankdata

    positive = _classes(y)
    first, second = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(p)
    within = np.empty_like(ranks)
    within[positive], within[~positive] = rankdata(p[positive]), rankdata(p[~positive])
    below = (ranks - within) / np.where(positive, second, first)
    placed = np.where(positive, below, 1 - below)
    area = float(placed[positive].mean())
    return np.asarray(area + (placed - area) * len(y) / np.where(positive, first, second))


def _f1(y: Floats, prediction: Floats) -> Floats:
    import numpy as np

    true = _classes(y) & (prediction == 1)
    wrong = (prediction == 1) != (y == 1)
    hits, misses = float(true.mean()), float(wrong.mean())
    whole = 2 * hits + misses
    score = 2 * hits / whole
    return np.asarray(score + (2 * (true - hits) * (1 - score) - score * (wrong - misses)) / whole)


def _rmse(y: Floats, prediction: Floats) -> Floats:
    import numpy as np

    squares = _squared(y, prediction)
    whole = float(squares.mean()) ** 0.5
    return np.asarray(whole + (squares - whole**2) / (2 * whole or 1.0))


def _classes(y: Floats) -> NDArray[np.bool_]:
    """Return where the label is 1.

    Raises:
        DataError: it is not 0 or 1, or always the same.
    """
    if not bool(((y == 0) | (y == 1)).all()):
        raise DataError("`label` is not 0 or 1 in each row, which this metric needs.")
    if y.min() == y.max():
        raise DataError(f"OneClassOnly: `label` is {y[0]:g} in each of {len(y):,} rows.")
    import numpy as np

    return np.asarray(y == 1)


_METRICS: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "accuracy": _accuracy,
    "brier": _squared,
    "log_loss": lambda y, p: log_losses(p, y),
    "squared_error": _squared,
    "absolute_error": _absolute,
    "auc": _auc,
    "f1": _f1,
    "rmse": _rmse,
}
