"""Proves a recipe over seeds: trainings as written against trainings with it.

In: a command, a recipe, and what is asked. Out: a `TrainingVerdict`, which goes into the study
and its recipe. The runs are made and kept by `verify_training`, the judge is `verify.convergence`.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.app.run.command_words import need_all_words
from steptime.app.verify.verify_training import SeedRuns, make_runs
from steptime.core.codec import to_json
from steptime.core.store import write_text
from steptime.record.regular_file import read_regular
from steptime.tune.recipe.recipe_file import RECIPE, read_recipe, write_recipe
from steptime.tune.values.study_values import Study
from steptime.verify.convergence.judge_training import judge_training
from steptime.verify.values.seed_runs import TrainingQuestion, TrainingVerdict

STUDY = "study.json"
"""Its name in a study's folder."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofOptions:
    """What a proof over seeds is asked.

    Attributes:
        metric: where a run says its metric, as in `SeedRuns`.
        question: margin, direction, target.
        num_seeds: runs of each arm.
        seed_flag: option of the script that takes the seed; None: `{seed}` stands in the command,
            or else random, numpy and torch are seeded.
        limit_s: how long one run may take [s].
    """

    metric: str
    question: TrainingQuestion
    num_seeds: int = 5
    seed_flag: str | None = None
    limit_s: float = 86_400.0


def prove_training(asked: SeedRuns, question: TrainingQuestion, *, tell: Tell) -> TrainingVerdict:
    """Make the runs of both arms that are not there yet, and judge them.

    Raises:
        SteptimeError: as `make_runs` and `judge_training` say.
    """
    return judge_training(make_runs(asked, tell=tell), question)


def recipe_runs(
    command: Sequence[str],
    recipe: Path,
    proof: ProofOptions,
    *,
    store: Path,
    share_network: bool = False,
    allow_unsafe: bool = False,
) -> SeedRuns:
    """Return the runs of a command as written, and of the same command with a recipe.

    Args:
        command: the words of the command, which may hold `{seed}`.
        recipe: the recipe's file.
        proof: what is asked.
        store: the folder that holds `.steptime`.
        share_network: runs may use the network of this machine.
        allow_unsafe: runs are made even where nothing contains them.
    """
    run = (sys.executable, "-m", "steptime", "run", "--recipe", str(recipe.resolve()))
    # What `run` reports must not be taken for what the script says.
    candidate = (*run, "--report", "/dev/null", "--", *command)
    return SeedRuns(
        reference=shlex.join(command),
        candidate=shlex.join(candidate),
        num_seeds=proof.num_seeds,
        metric=proof.metric,
        store=store,
        seed_flag=proof.seed_flag,
        limit_s=proof.limit_s,
        share_network=share_network,
        allow_unsafe=allow_unsafe,
    )


def prove_study(
    study: Study, folder: Path, proof: ProofOptions, *, store: Path, tell: Tell
) -> Study:
    """Judge a study's recipe over seeds; return the study with the verdict, which is kept too.

    Args:
        study: it found a recipe.
        folder: of the study; holds the recipe.
        proof: what is asked.
        store: the folder that holds `.steptime`.
        tell: called with the name of the next run.

    Raises:
        SteptimeError: as `make_runs` and `judge_training` say.
    """
    asked = recipe_runs(
        need_all_words(study.command),
        folder / RECIPE,
        proof,
        store=store,
        share_network="network" in study.tier_lacks,
        allow_unsafe=study.tier == "unsafe",
    )
    verdict = prove_training(asked, proof.question, tell=tell)
    document = json.loads(read_regular(folder / STUDY))
    write_text(folder / STUDY, json.dumps({**document, "seeds": to_json(verdict)}) + "\n")
    mark_recipe(folder / RECIPE, verdict)
    return replace(study, seeds=verdict)


def mark_recipe(path: Path, verdict: TrainingVerdict) -> None:
    """Write the verdict into the evidence of a recipe.

    Raises:
        RecipeError: there is no recipe, or it cannot be written.
    """
    recipe = read_recipe(path)
    proof = replace(recipe.proof, seeds=verdict.outcome, seeds_n=verdict.num_runs)
    write_recipe(path, replace(recipe, proof=replace(proof, seeds_margin=verdict.margin)))
