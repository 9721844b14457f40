"""Makes the recipe of a fit.

In: a finished `FitStudy`. Out: a Recipe, which `tune.recipe.recipe_file` writes and reads.
"""

from __future__ import annotations

from steptime.core.devices.machine_identity import MachineIdentity
from steptime.tune.recipe.recipe_file import recipe_with
from steptime.tune.values.fit_values import FitStudy
from steptime.tune.values.recipe_values import Proof, Recipe, Script


def make_fit_recipe(study: FitStudy, *, script: Script, machine: MachineIdentity) -> Recipe:
    """The recipe of a fit that ran under its limit and trains as well.

    Raises:
        ValueError: there is none, or it is not proven.
    """
    if not study.is_made_to_fit or study.quality is None:
        raise ValueError(f"a fit with a proven recipe is needed, got {study.proven=}")
    proof = Proof(
        study_id=study.fit_id,
        speedup=None,
        noise_floor=None,
        quality=study.quality.outcome,
        level=study.quality.level,
        baseline_step_s=study.baseline_step_s,
        tuned_step_s=study.fitted_step_s,
        device=study.device,
        torch_version=study.torch_version,
        limit_bytes=study.limit_bytes,
        peak_bytes=study.runs[-1].peak_bytes if study.runs else None,
    )
    return recipe_with(study, proof, script=script, machine=machine)
