"""Prepares a run with a recipe: checks it, and makes variables and a plan for the guest.

In: a Recipe, and what this machine has. Out: a `Setup`. A lever that cannot work here (its library
is not installed, say) stays off, and the report says so; an unknown lever is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from steptime.errors import RecipeError, install_command
from steptime.levers import load_all
from steptime.levers.base import Facts, Lever, Moment, Settings
from steptime.levers.examples import WORLDS
from steptime.measure.values.observations import Difference, LeverUse, RecipeUse
from steptime.tune.trials.trial_setting import make_plan, variables_of
from steptime.tune.values.recipe_values import Recipe
from steptime.tune.values.study_values import Applied

Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a run with a recipe is started with; no `plan` where the guest has nothing to do."""

    use: RecipeUse
    variables: Mapping[str, str]
    plan: Mapping[str, Any] | None


def set_up(
    recipe: Recipe,
    *,
    path: str,
    differences: tuple[Difference, ...],
    libraries: Mapping[str, str],
) -> Setup:
    """How to train with a recipe.

    Args:
        recipe: as `read_recipe` gave it.
        path: as the user named it.
        differences: what is not as in the proof.
        libraries: `Facts.libraries` of this machine.

    Raises:
        RecipeError: a lever or a setting is not known.
    """
    levers = check_levers(recipe, path=path)
    errors: dict[str, str] = {}
    variables: dict[str, str] = {}
    for applied in recipe.levers:
        try:
            variables |= variables_of((applied,), levers, libraries)
        except KeyError as error:
            errors[applied.name] = f"{error.args[0]} is not installed here"
    usable = tuple(applied for applied in recipe.levers if applied.name not in errors)
    plan = make_plan(usable, levers, mode="recipe", training=recipe.training)
    proof = recipe.proof
    return Setup(
        use=RecipeUse(
            path=path,
            study_id=proof.study_id,
            speedup=proof.speedup,
            levers=tuple(_use(one, levers[one.name], errors) for one in recipe.levers),
            differences=differences,
            device=proof.device,
            torch_version=proof.torch_version,
            training=None if recipe.training is None else recipe.training.number,
            written_step_s=proof.baseline_step_s,
            proven_step_s=proof.tuned_step_s,
            limit_bytes=proof.limit_bytes,
        ),
        variables=variables_of(usable, levers, libraries),
        plan=plan if plan["levers"] else None,
    )


def _use(applied: Applied, lever: Lever, errors: Mapping[str, str]) -> LeverUse:
    return LeverUse(
        name=applied.name,
        settings=applied.settings,
        is_in_guest=lever.moment is not Moment.ENVIRONMENT,
        error=errors.get(applied.name),
    )


def check_levers(recipe: Recipe, *, path: str) -> dict[str, Lever]:
    """The levers of a recipe by name.

    Raises:
        RecipeError: one of them, or one of their settings, is not known.
    """
    known = {lever.name: lever for lever in load_all()}
    found: dict[str, Lever] = {}
    for applied in recipe.levers:
        if applied.name not in known:
            raise RecipeError(
                f"{path} names the lever `{applied.name}`, which this Steptime does not have.",
                hint=f"It has: {', '.join(known)}. Take the table out, or upgrade: "
                + install_command("-U", "steptime"),
            )
        found[applied.name] = known[applied.name]
        wrong = _unknown_setting(found[applied.name], applied)
        if wrong is not None:
            raise RecipeError(
                f"{path}: the lever `{applied.name}` {wrong}.",
                hint=f"See what it takes: steptime levers {applied.name}",
            )
    return found


class _Watched(Mapping[str, Value]):
    """Settings that remember which of them were asked for."""

    def __init__(self, settings: Mapping[str, Value]) -> None:
        self._settings = settings
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        self.asked.add(name)
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


def _unknown_setting(lever: Lever, applied: Applied) -> str | None:
    """What is wrong with the settings; None where nothing is.

    A lever lists no names: its settings are those that it has in some world, and those that its
    edit asks for.
    """
    watched = _Watched(applied.settings)
    try:
        lever.edit(watched)
    except KeyError as error:
        if error.args[0] in watched.asked and error.args[0] not in applied.settings:
            return f"misses its setting `{error.args[0]}`"
        return f"does not take the value {error.args[0]!r}"
    except (ValueError, TypeError) as error:
        return f"does not take its settings: {error}"
    names = {name for facts in WORLDS for space in _spaces(lever, facts) for name in space}
    unknown = [name for name in applied.settings if name not in names | watched.asked]
    return f"has no setting `{unknown[0]}`" if unknown else None


def _spaces(lever: Lever, facts: Facts) -> tuple[Settings, ...]:
    return lever.space(facts) if lever.applies(facts) is None else ()
