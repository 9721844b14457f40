"""Plans the whole runs that a judgement needs, in the order in which they should be made.

In: the class of a candidate's levers and their roundoff. Out: requests, for whoever starts runs.
The baseline's requests are the same for all candidates of a class and a roundoff, so each is made
once. `judge` may be called after each run: a FAIL is final, so the other runs are not needed. Where
`needs_draws` says so after the last one, there are more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from steptime.verify.judge_quality import EXACT, NUMERIC, STATISTICAL, Reference
from steptime.verify.recordings import Recording

BASELINE, CANDIDATE, AGAIN, DOUBLE = "baseline", "candidate", "again", "double"

VARIABLES: Mapping[str, str] = {"PYTHONHASHSEED": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""The environment of each of these runs: sets keep their order, and cuBLAS its workspace."""

NUM_REPEATS = 3
"""Number of perturbed, redrawn or reordered runs: their distances make the limits."""

MORE_REPEATS = (6, 9)
"""Perturbed runs where an error lies within the spread of its limit, until it does not."""

DOUBLE_UPDATES = 4
"""At most so many optimizers can be compared with float64: each needs its first update."""

FINEST_PERTURBATION = 2.0**-16
"""Weights are perturbed by at least this: one last bit of float32 moves an activation to the other
side of zero too seldom for three runs to show the effect, and another kernel moves more."""

SEED = 20241
"""The seed of all runs, where the script sets none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One whole run: of the candidate, or of the command as written.

    The run's plan has `quality` under the same name. Its recording is kept under `name`.
    """

    name: str
    is_candidate: bool
    quality: Mapping[str, int | float | bool | None]


def plan_runs(
    preserves: str,
    *,
    roundoff: float,
    num_updates: int,
    num_repeats: int = NUM_REPEATS,
    reorders: bool = False,
) -> tuple[RunRequest, ...]:
    """Return the runs for a candidate, those that can end the judgement first.

    Args:
        preserves: the weakest class of its levers.
        roundoff: the largest unit roundoff of its levers.
        num_updates: how many updates each run records, 20 to 200.
        num_repeats: how many perturbed, redrawn or reordered runs there are.
        reorders: a lever gives samples in another order.
    """
    if preserves not in (EXACT, NUMERIC, STATISTICAL):
        return ()
    requests = [
        _request(BASELINE, num_updates),
        _request(AGAIN, num_updates),  # no candidate causes a count that differs here
        _request(CANDIDATE, num_updates),
    ]
    if preserves == NUMERIC:
        requests.append(_request(DOUBLE, min(DOUBLE_UPDATES, num_updates), is_double=True))
        requests += [
            _request(name, num_updates, perturb=_perturbation(roundoff), perturb_seed=i)
            for i, name in enumerate(_perturbed(roundoff, num_repeats), start=1)
        ]
    if preserves == STATISTICAL:
        requests += [
            _request(name, num_updates, redraw=SEED + i, reorder=SEED + i if reorders else None)
            for i, name in enumerate(_redrawn(num_repeats, reorders=reorders), start=1)
        ]
    return tuple(requests)


def gather(
    recordings: Mapping[str, Recording],
    *,
    roundoff: float,
    num_repeats: int = NUM_REPEATS,
    reorders: bool = False,
) -> Reference | None:
    """Return the baseline's runs so far, by their requests' names; None without the first.

    A failed run, such as the one in float64, is a recording without ranks. `roundoff`,
    `num_repeats` and `reorders` are the values with which the runs were planned.
    """
    if BASELINE not in recordings:
        return None
    return Reference(
        baseline=recordings[BASELINE],
        again=recordings.get(AGAIN),
        double=recordings.get(DOUBLE),
        perturbed=_found(recordings, _perturbed(roundoff, num_repeats)),
        redrawn=_found(recordings, _redrawn(num_repeats, reorders=reorders)),
        roundoff=roundoff,
        num_repeats=num_repeats,
    )


def _found(recordings: Mapping[str, Recording], names: tuple[str, ...]) -> tuple[Recording, ...]:
    return tuple(recordings[name] for name in names if name in recordings)


def _perturbed(roundoff: float, num: int) -> tuple[str, ...]:
    bits = -math.log2(_perturbation(roundoff))
    return tuple(f"perturbed-{bits:g}-{i + 1}" for i in range(num))


def _perturbation(roundoff: float) -> float:
    return max(roundoff, FINEST_PERTURBATION)


def _redrawn(num: int, *, reorders: bool) -> tuple[str, ...]:
    name = "reordered" if reorders else "redrawn"
    return tuple(f"{name}-{i + 1}" for i in range(num))


def _request(name: str, num_updates: int, **settings: float | bool | None) -> RunRequest:
    quality: dict[str, int | float | bool | None] = {
        "num_updates": num_updates,
        "seed": SEED,
        "redraw": None,
        "reorder": None,
        "is_double": False,
        "perturb": None,
        "perturb_seed": 0,
        "first": True,
        "is_deterministic": True,
    }
    return RunRequest(name=name, is_candidate=name == CANDIDATE, quality=quality | settings)
