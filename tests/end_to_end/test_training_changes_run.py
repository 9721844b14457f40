"""Levers that change the training, put under an unmodified script by the guest itself."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from end_to_end.harness import SCRIPTS, needs_linux, needs_torch, run_forked
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.tune.recipe.proof_scope import describe_script
from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
from steptime.tune.values.study_values import Applied
from study_cases import faster

pytestmark = [needs_torch, needs_linux]


def epochs(folder: Path, *levers: Applied) -> list[dict[str, Any]]:
    """What the script says of each epoch, with the levers on."""
    shutil.copy(SCRIPTS / "changed.py", folder)
    command = (sys.executable, "changed.py")
    study = replace(faster(), recipe=levers, command=command, torch_version=None)
    script = describe_script(command, folder=folder)
    recipe = make_recipe(study, script=script, machine=MachineIdentity())
    write_recipe(folder / "tuned.toml", recipe)
    done = run_forked(folder, *command, options=("--recipe", "tuned.toml"))
    assert done.exit_code == 0, done.stderr.decode()
    errors = [one["error"] for one in done.data["recipe"]["levers"]]
    assert errors == [None] * len(levers)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def test_larger_batches_reach_a_script_that_keeps_its_own_rate(tmp_path: Path) -> None:
    found = epochs(tmp_path, Applied(name="larger_batch", settings={"times": 2}))

    assert [one["shapes"] for one in found] == [[[8, 64]] * 12] * 2
    assert [one["rate"] for one in found] == [0.01] * 2


def test_another_optimizer_leaves_the_scripts_own_rate(tmp_path: Path) -> None:
    lever = Applied(name="other_optimizer", settings={"optimizer": "adafactor"})

    assert [one["rate"] for one in epochs(tmp_path, lever)] == [0.01] * 2
