"""Levers that change the training, put under an unmodified script by the guest itself."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from end_to_end.harness import SCRIPTS, needs_linux, needs_torch, run_forked
from steptime.core.machine_identity import MachineIdentity
from steptime.tune.recipe.proof_scope import describe_script
from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
from steptime.tune.values.study_values import Applied
from study_cases import faster

pytestmark = [needs_torch, needs_linux]


def epochs(folder: Path, *levers: Applied, name: str = "changed.py") -> list[dict[str, Any]]:
    """What the script says of each epoch, with the levers on."""
    shutil.copy(SCRIPTS / name, folder)
    command = (sys.executable, name)
    study = replace(faster(), recipe=levers, command=command, torch_version=None)
    script = describe_script(command, folder=folder)
    recipe = make_recipe(study, script=script, machine=MachineIdentity())
    write_recipe(folder / "tuned.toml", recipe)
    done = run_forked(folder, *command, options=("--recipe", "tuned.toml"))
    assert done.exit_code == 0, done.stderr.decode()
    errors = [one["error"] for one in done.data["recipe"]["levers"]]
    assert errors == [None] * len(levers)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def test_batches_rows_and_what_is_evaluated_change_together(tmp_path: Path) -> None:
    first, second = epochs(
        tmp_path,
        Applied(name="larger_batch", settings={"times": 2}),
        Applied(name="weight_averaging", settings={"decay": 0.99}),
        Applied(name="progressive_length", settings={"start": 0.5, "steps": 8}),
    )

    assert first["shapes"] == [
        [8, length] for length in (64, 32, 40, 40, 48, 48, 56, 56, *[64] * 4)
    ]
    assert second["shapes"] == [[8, 64]] * 12
    for one in (first, second):
        assert one["moved"] > 0
        assert one["is_back"]
        assert (one["length"], one["rate"]) == (64, 0.01)


def test_another_optimizer_and_rate_leave_the_scripts_own_rate(tmp_path: Path) -> None:
    found = epochs(
        tmp_path,
        Applied(name="rate_factor", settings={"factor": 0.5}),
        Applied(name="other_optimizer", settings={"optimizer": "adafactor"}),
    )

    assert [one["rate"] for one in found] == [0.01] * 2
    assert [one["moved"] for one in found] == [0.0] * 2


def test_the_first_steps_see_smaller_images(tmp_path: Path) -> None:
    lever = Applied(name="progressive_resolution", settings={"start": 0.5, "steps": 6})
    (found,) = epochs(tmp_path, lever, name="pictures.py")

    # A new size is tried before the whole images of its step, and leaves no trace.
    assert found["sides"] == [16, 32, 16, 24, 32, 24, 24, 32, 32, 32]
    assert found["evaluated"] == [32]
    assert found["batches"] == 8
