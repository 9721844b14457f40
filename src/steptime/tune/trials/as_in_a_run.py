"""Holds a study's baseline against the same command as `steptime run` watches it.

In: pairs of processes in the same tier, one as a trial without a lever, one without a plan. Out: a
refusal where the trial is slower beyond noise: then a lever's gain may be the end of a pretence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steptime.core.stats import median
from steptime.tune.trials.process_pairs import Side, neighbors
from steptime.tune.values.study_values import Ending, TrialEnd

SHARE = 0.1
"""Of the budget, what these pairs may take."""

LEAST_PAIRS, MOST_PAIRS = 2, 6
LEAST_DIFFERENCE = 0.1
"""A smaller one is not told from noise by so few pairs."""

GUEST_S = 0.5e-3
"""More of a step than this is never what a trial's guest does in it and a run's does not."""


def refuse_pretence(pairs: Sequence[tuple[Side, Side]]) -> Ending | None:
    """Return the refusal, if each pair shows a slower trial, by more than equal processes differ.

    Args:
        pairs: in order, taken in turns; the trial's side first.
    """
    ratios = [ratio for pair in pairs if (ratio := _log_ratio(*pair)) is not None]
    if len(ratios) < LEAST_PAIRS:
        return None
    same = [abs(ratio) for pair in neighbors(pairs) if (ratio := _log_ratio(*pair)) is not None]
    floor = max(math.log1p(LEAST_DIFFERENCE), *same)
    trial_s = median([trial.step_s for trial, _ in pairs if trial.step_s])
    run_s = median([run.step_s for _, run in pairs if run.step_s])
    if min(ratios) <= floor or trial_s - run_s <= GUEST_S:
        return None
    facts = {"trial_s": trial_s, "run_s": run_s}
    return Ending(end=TrialEnd.FAILED, reason="slower_in_trials", facts=facts)


def _log_ratio(first: Side, second: Side) -> float | None:
    if not first.step_s or not second.step_s:
        return None
    return math.log(first.step_s / second.step_s)
