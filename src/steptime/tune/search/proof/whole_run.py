"""Forecasts how long a whole run takes as written and with the recipe, from parts measured apart.

In: the baseline, the proof, and how many steps the run has. Out: both times with intervals. It
counts the start, what is paid once, and the loop with what came between its steps; what follows the
last step is in neither.
"""

from __future__ import annotations

import math

from steptime.core.interval import Interval
from steptime.tune.search.bench import Baseline
from steptime.tune.values.study_values import WholeRun


def forecast_whole_run(
    baseline: Baseline, loop_speedup: Interval, num_steps: int, *, one_off_s: float, start_s: float
) -> WholeRun | None:
    """Return the forecast; None where the loop as written was not seen.

    Args:
        baseline: the command as written.
        loop_speedup: of the loop with the recipe, from the proof.
        num_steps: of the whole run.
        one_off_s: what the recipe pays once, for compiling [s].
        start_s: how much later its first step ends [s].
    """
    loop = baseline.loop_step_s
    if loop is None:
        return None
    relative = math.hypot(_width(loop), _width(loop_speedup))
    before_s, after_s = num_steps * loop.estimate, num_steps * loop.estimate / loop_speedup.estimate
    first_s = max(0.0, baseline.startup_s + start_s) + one_off_s
    return WholeRun(
        num_steps=num_steps,
        baseline=_around(baseline.startup_s + before_s, before_s * _width(loop), loop.n),
        tuned=_around(first_s + after_s, after_s * relative, min(loop.n, loop_speedup.n)),
    )


def _width(found: Interval) -> float:
    """Half of an interval, relative to its estimate."""
    return (found.high - found.low) / 2 / found.estimate


def _around(value_s: float, reach_s: float, n: int) -> Interval:
    return Interval(estimate=value_s, low=max(0.0, value_s - reach_s), high=value_s + reach_s, n=n)
