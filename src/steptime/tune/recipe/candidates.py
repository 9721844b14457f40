"""Recipes of levers that change the training: nothing has proven them, and each says so.

In: a study that names such levers. Out: one recipe for each of their settings, in the study's
folder, for `steptime verify training` to judge over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from steptime.levers.base import Settings
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_file import recipe_with, write_recipe
from steptime.tune.values.recipe_values import Proof
from steptime.tune.values.study_values import NEEDS_PROOF, Applied, NotTried, Study
from steptime.verify.values import Outcome

FOLDER = "candidates"


def write_candidates(
    study: Study, spaces: Mapping[str, tuple[Settings, ...]], *, folder: Path, cwd: Path
) -> tuple[NotTried, ...]:
    """Write the recipes; return what was not tried, each such lever with its first recipe.

    Args:
        study: at its end.
        spaces: the settings of each lever here, the mildest first: `NAME.toml`, `NAME-2.toml`, ….
        folder: the study's.
        cwd: where the command runs.

    Raises:
        RecipeError: one cannot be written.
    """
    proof = Proof(
        study_id=study.study_id,
        speedup=None,
        noise_floor=None,
        quality=Outcome.INCONCLUSIVE,
        level=None,
        baseline_step_s=study.baseline_step_s,
        device=study.device,
        torch_version=study.torch_version,
    )
    script, machine = describe_script(study.command, folder=cwd), describe_machine()
    found = []
    for one in study.not_tried:
        if one.reason != NEEDS_PROOF or not spaces.get(one.name):
            found.append(one)
            continue
        (folder / FOLDER).mkdir(exist_ok=True)
        paths = [
            folder / FOLDER / f"{one.name}{f'-{number}' if number > 1 else ''}.toml"
            for number in range(1, len(spaces[one.name]) + 1)
        ]
        for path, settings in zip(paths, spaces[one.name], strict=True):
            state = (Applied(name=one.name, settings=settings),)
            made = replace(study, recipe=state)
            write_recipe(path, recipe_with(made, proof, script=script, machine=machine))
        found.append(replace(one, candidate=str(paths[0])))
    return tuple(found)
