"""Turns a state into what a child is started with: variables, and the plan for its guest.

In: levers with their settings. Out: an environment, and the content of `plan.json`
(docs/internals/study-folder.md). Levers of the environment become variables; the guest applies the
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steptime.core.schema import SCHEMA
from steptime.levers import file_of
from steptime.levers.base import Lever, Moment
from steptime.tune.values.study_values import Applied, State, TrainingScope

PRELOAD = "LD_PRELOAD"
_IN_FRONT = (PRELOAD, "PATH")
"""Variables that hold several things; a lever's stand before the user's."""


def variables_of(
    state: State, levers: Mapping[str, Lever], libraries: Mapping[str, str]
) -> dict[str, str]:
    """The variables that the environment levers of a state set, later ones over earlier."""
    found: dict[str, str] = {}
    for applied in state:
        lever = levers[applied.name]
        if lever.moment == Moment.ENVIRONMENT and lever.variables is not None:
            found |= _joined(found, lever.variables(applied.settings, libraries))
    return found


def _joined(found: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Two levers may both preload."""
    if PRELOAD in found and PRELOAD in new:
        return {**new, PRELOAD: f"{new[PRELOAD]}:{found[PRELOAD]}"}
    return dict(new)


def add_variables(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The user's environment with a lever's variables; what is preloaded stands before theirs."""
    result = {**environment, **variables}
    for name in _IN_FRONT:
        if name in variables and environment.get(name):
            result[name] = f"{variables[name]}:{environment[name]}"
    return result


def describe_state(state: State, levers: Mapping[str, Lever]) -> list[dict[str, Any]]:
    """The levers of a state that the guest applies, as they stand in a plan."""
    return [
        _describe(applied, levers[applied.name])
        for applied in state
        if levers[applied.name].moment != Moment.ENVIRONMENT
    ]


def _describe(applied: Applied, lever: Lever) -> dict[str, Any]:
    return {"name": applied.name, "settings": dict(applied.settings), "file": file_of(lever)}


def make_plan(
    state: State,
    levers: Mapping[str, Lever],
    *,
    mode: str = "trial",
    is_live: bool = False,
    probe: bool = False,
    quality: Mapping[str, Any] | None = None,
    training: TrainingScope | None = None,
    worker_search_s: float | None = None,
) -> dict[str, Any]:
    """The content of `plan.json`; `mode` is `trial` or `recipe`.

    Only the processes of `training` do what it says; all processes do where it is None.
    """
    return {
        "schema": SCHEMA,
        "mode": mode,
        "levers": describe_state(state, levers),
        "is_live": is_live,
        "probe": probe,
        "quality": None if quality is None else dict(quality),
        "worker_search_s": worker_search_s,
        "only": None
        if training is None
        else {"words": list(training.words), "numbers": list(training.numbers)},
    }
