"""Makes the edit of a recipe, and checks it: what `steptime patch` does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.run.recipe_loading import find_interpreter
from steptime.errors import MissingExtraError, RecipeError, StoreError
from steptime.isolate.probe import probe
from steptime.launch.user_command import user_environment
from steptime.tune.recipe.recipe_file import read_recipe
from steptime.tune.recipe.recipe_setup import check_levers
from steptime.tune.trials.facts.libraries import find_libraries

if TYPE_CHECKING:
    from steptime.levers.base import Lever
    from steptime.patch.values import Handover, PatchCheck
    from steptime.tune.values.recipe_values import Recipe


def patch(recipe: str | os.PathLike[str], *, folder: str | os.PathLike[str] = ".") -> Handover:
    """Return the recipe in a file as an edit of the files in a folder, as `steptime patch` does.

    Args:
        recipe: the file that `tune` wrote.
        folder: in which its command is given; nothing is written there.

    Raises:
        RecipeError: the recipe cannot be read, or a lever is not known.
        MissingExtraError: LibCST is not there, or broken.
    """
    read, levers = _read(Path(recipe))
    try:
        from steptime.patch.make_patch import make_patch
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            f"the edit of a source file needs LibCST, which cannot be imported: {error}.",
            needs="steptime[patch]",
        ) from error
    libraries = find_libraries(read.script.command, user_environment())
    return make_patch(read, levers=levers, folder=Path(folder).absolute(), libraries=libraries)


def check(
    path: Path, handover: Handover, *, folder: Path, budget_s: float, tell: Callable[[str], None]
) -> PatchCheck:
    """Return how the patched script compares with the recipe, from contained trials.

    Raises:
        RecipeError: the recipe cannot be read, or changes nothing that could be tried.
        ContainmentError: trials are not isolated here.
        NotFoundError: the command cannot be started.
    """
    from steptime.patch.check_patch import CheckSubject, check_patch

    if not handover.files and not handover.variables:
        raise RecipeError(
            f"nothing of {path} could be placed, so there is nothing to check.",
            hint="Write the lines above by hand, and compare the runs: steptime compare",
        )
    recipe, levers = _read(path)
    environment = user_environment()
    try:
        with tempfile.TemporaryDirectory(prefix="steptime-patch-") as scratch:
            subject = CheckSubject(
                recipe=recipe,
                levers=levers,
                handover=handover,
                cwd=folder.absolute(),
                environment=environment,
                libraries=find_libraries(recipe.script.command, environment)
                | find_interpreter(recipe),
                scratch=Path(scratch).resolve(),
                budget_s=budget_s,
            )
            return check_patch(subject, probe(subject.scratch), tell=tell)
    except OSError as error:
        raise StoreError(f"the trials' folder cannot be used: {error}") from error


def _read(path: Path) -> tuple[Recipe, dict[str, Lever]]:
    recipe = read_recipe(path)
    return recipe, check_levers(recipe, path=str(path))
