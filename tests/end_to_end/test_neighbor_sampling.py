"""A script of PyG, not edited: its sampling is fetching, and the lever makes it run at all."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from end_to_end.harness import SPECIMENS, needs_linux, needs_torch, run_both, run_observed
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.tune.recipe.proof_scope import describe_script
from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
from steptime.tune.values.study_values import Applied
from study_cases import faster

pytest.importorskip("torch_geometric")
pytest.importorskip("numba")

pytestmark = [
    needs_torch,
    needs_linux,
    pytest.mark.slow("it imports torch_geometric in each process that it starts"),
]

SCRIPT = "neighbor_sampling.py"
COMMAND = (sys.executable, SCRIPT, "40")
FUSED = Applied(name="fused_sampling", settings={})


def test_without_pyg_lib_the_script_runs_with_a_recipe_and_its_sampling_is_fetching(
    tmp_path: Path,
) -> None:
    shutil.copy(SPECIMENS / SCRIPT, tmp_path)
    study = replace(faster(), recipe=(FUSED,), command=COMMAND, torch_version=None)
    script = describe_script(COMMAND, folder=tmp_path)
    recipe = make_recipe(study, script=script, machine=MachineIdentity())
    write_recipe(tmp_path / "tuned.toml", recipe)

    done = run_observed(tmp_path, *COMMAND, options=("--recipe", "tuned.toml"))

    assert done.exit_code == 0, done.stderr.decode()
    assert done.data["recipe"]["levers"] == [
        {**done.data["recipe"]["levers"][0], "name": "fused_sampling", "error": None}
    ]
    phases = done.data["phases"]
    assert phases["fetch"]["fraction"] > 0
    assert "collate" not in phases or not phases["collate"]["fraction"]
    line = next(
        number
        for number, text in enumerate((SPECIMENS / SCRIPT).read_text().splitlines(), 1)
        if text.startswith("for batch")
    )
    assert re.search(rf"(?m)^ +fetch .* {SCRIPT}:{line} ", done.stderr.decode())


def test_without_the_lever_and_pyg_lib_it_fails_as_it_does_bare(tmp_path: Path) -> None:
    for name in ("bare", "observed"):
        (tmp_path / name).mkdir()
        shutil.copy(SPECIMENS / SCRIPT, tmp_path / name)

    bare, observed = run_both(tmp_path, *COMMAND)

    assert bare.exit_code == observed.exit_code == 1
    assert b"requires either 'pyg-lib' or 'torch-sparse'" in observed.stderr
