"""Repairs probabilities: by a temperature, by Platt's two numbers, or by an isotonic curve.

Each is fitted on one half of the rows and judged on the other, both ways, so that no row is judged
by what it was fitted with.

Sources: Guo et al., ICML 2017; Platt, 1999; Zadrozny, Elkan, KDD 2002; by scikit-learn and scipy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from steptime.core.interval import Interval
from steptime.verify.values.calibration_result import Fitted, Repair

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST = 1e-15
"""A probability is kept this far from 0 and 1 in a logarithm, as scikit-learn keeps it."""

_SEED = 20260102
_LEVEL = 0.05 / 3
"""Of the interval of one of three methods."""

Reading = tuple[Callable[["Floats"], "Floats"], tuple[Fitted, ...]]


def log_losses(p: Floats, y: Floats) -> Floats:
    """Return the log loss of each row (num_rows,) [nat]."""
    import numpy as np

    kept = np.clip(p, LEAST, 1 - LEAST)
    return np.asarray(-(y * np.log(kept) + (1 - y) * np.log1p(-kept)))


def repairs_of(p: Floats, y: Floats, *, error: Callable[[Floats], float]) -> tuple[Repair, ...]:
    """Return what each method gives, the best log loss first.

    Args:
        p: probabilities (num_rows,).
        y: what happened (num_rows,), 0 or 1.
        error: the calibration error of other probabilities (num_rows,).
    """
    found = []
    for method, fit in (("temperature", _temperature), ("platt", _platt), ("isotonic", _isotonic)):
        repaired = _crossed(p, y, fit)
        if repaired is None:
            return ()
        log_loss = _gain(log_losses(p, y) - log_losses(repaired, y))
        brier = _gain((p - y) ** 2 - (repaired - y) ** 2)
        found.append(
            Repair(
                method=method,
                parameters=fit(p, y)[1],
                log_loss_gain=log_loss,
                brier_gain=brier,
                error_after=error(repaired),
                is_proven=log_loss.low > 0 and brier.high > 0,
            )
        )
    return tuple(sorted(found, key=lambda one: (not one.is_proven, -one.log_loss_gain.estimate)))


def _crossed(p: Floats, y: Floats, fit: Callable[[Floats, Floats], Reading]) -> Floats | None:
    """Return each row as repaired by the other half; None where a half has one class alone."""
    import numpy as np

    half = np.random.default_rng(_SEED).permutation(len(p)) % 2 == 0
    if any(len(np.unique(y[part])) < 2 for part in (half, ~half)):
        return None
    repaired = np.empty_like(p)
    repaired[~half] = fit(p[half], y[half])[0](p[~half])
    repaired[half] = fit(p[~half], y[~half])[0](p[half])
    return repaired


def _gain(differences: Floats) -> Interval:
    from scipy.stats import norm

    mean = float(differences.mean())
    reach = float(norm.isf(_LEVEL / 2)) * float(differences.std()) / math.sqrt(len(differences))
    return Interval(estimate=mean, low=mean - reach, high=mean + reach, n=len(differences))


def _logits(p: Floats) -> Floats:
    import numpy as np

    kept = np.clip(p, LEAST, 1 - LEAST)
    return np.asarray(np.log(kept) - np.log1p(-kept))


def _temperature(p: Floats, y: Floats) -> Reading:
    from scipy.optimize import minimize_scalar
    from scipy.special import expit

    logits = _logits(p)
    found = minimize_scalar(
        lambda log_t: float(log_losses(expit(logits / math.exp(log_t)), y).mean()),
        bounds=(-4.0, 4.0),
        method="bounded",
    )
    temperature = math.exp(float(found.x))
    return lambda q: expit(_logits(q) / temperature), (Fitted("temperature", temperature),)


def _platt(p: Floats, y: Floats) -> Reading:
    import numpy as np
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=np.inf, max_iter=1000).fit(_logits(p).reshape(-1, 1), y)
    slope, offset = float(fitted.coef_[0, 0]), float(fitted.intercept_[0])
    return lambda q: expit(slope * _logits(q) + offset), (
        Fitted("slope", slope),
        Fitted("offset", offset),
    )


def _isotonic(p: Floats, y: Floats) -> Reading:
    import numpy as np
    from sklearn.isotonic import IsotonicRegression

    # A step of 0 or 1 would make one wrong row cost any loss: half a row is kept at both ends.
    room = 0.5 / len(p)
    fitted = IsotonicRegression(y_min=room, y_max=1 - room, out_of_bounds="clip").fit(p, y)
    return lambda q: np.asarray(fitted.predict(q)), ()
