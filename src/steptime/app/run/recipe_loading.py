"""Reads the recipe that a command trains with, and compares it with what this machine has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from steptime.report.words.study.study_words import describe_difference
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_differences import find_differences
from steptime.tune.recipe.recipe_file import read_recipe
from steptime.tune.recipe.recipe_setup import Setup, set_up
from steptime.tune.trials.facts.libraries import find_libraries
from steptime.tune.values.recipe_values import Recipe


def find_interpreter(recipe: Recipe) -> dict[str, str]:
    """Return the interpreter of a recipe as `Facts.libraries` has it, where it is here."""
    used = (one.settings for one in recipe.levers if one.name == "interpreter")
    path = next((str(settings.get("python")) for settings in used), "")
    return {"python": path} if os.access(path, os.X_OK) else {}


def load_setup(
    path: Path,
    command: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    tell: Callable[[str], None],
) -> Setup:
    """Return what the command is started with; `tell` gets how that differs from the proof.

    Raises:
        RecipeError: the recipe cannot be used.
    """
    recipe = read_recipe(path)
    script = describe_script(command, folder=Path.cwd())
    differences = find_differences(recipe, script=script, machine=describe_machine())
    setup = set_up(
        recipe,
        path=str(path),
        differences=differences,
        libraries=find_libraries(command, environment) | find_interpreter(recipe),
    )
    for difference in differences:
        tell(f"{path}: {describe_difference(difference)}")
    for lever in setup.use.levers:
        if lever.error is not None:
            tell(f"{path}: the lever {lever.name} stays off: {lever.error}")
    return setup
