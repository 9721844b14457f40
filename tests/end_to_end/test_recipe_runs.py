"""`steptime run --recipe`: trains with the levers, keeps the promises of run, says what differs."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from end_to_end.harness import SCRIPTS, Done, needs_linux, needs_torch, run_forked
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.record import kinds
from steptime.tune.recipe.proof_scope import describe_script
from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
from steptime.tune.values.recipe_values import Recipe
from steptime.tune.values.study_values import Applied
from study_cases import faster

pytestmark = [needs_torch, needs_linux]

PRECISE = Applied(name="matmul_precision", settings={"precision": "medium"})
GLIBC = Applied(name="allocator", settings={"library": "glibc_tuned", "mmap_threshold_mib": 32})
COMMAND = (sys.executable, "tuned.py")


def make(folder: Path, *levers: Applied, command: tuple[str, ...] = COMMAND) -> Recipe:
    """A recipe for the script, which is put into the folder."""
    folder.mkdir(exist_ok=True)
    shutil.copy(SCRIPTS / "tuned.py", folder)
    study = replace(faster(), recipe=levers, command=command, torch_version=None)
    return make_recipe(
        study,
        script=describe_script(command, folder=folder),
        machine=MachineIdentity(),
    )


def run(folder: Path, recipe: Recipe, *words: str, **variables: str) -> Done:
    write_recipe(folder / "tuned.toml", recipe)
    return run_forked(folder, *COMMAND, *words, options=("--recipe", "tuned.toml"), **variables)


def test_the_levers_of_a_recipe_are_on_and_the_report_names_it(tmp_path: Path) -> None:
    done = run(tmp_path, make(tmp_path, PRECISE, GLIBC))
    assert done.exit_code == 0
    assert done.stdout == b"medium 67108864\n"
    report = " ".join(done.stderr.decode().split())
    assert (
        "recipe tuned.toml: matmul_precision medium + allocator library=glibc_tuned "
        "mmap_threshold_mib=32 (proven 1.52x, 95 % interval 1.47x to 1.58x)" in report
    )
    recipe = done.data["recipe"]
    named = {one["name"]: one["error"] for one in recipe["levers"]}
    assert (named, recipe["differences"]) == ({"allocator": None, "matmul_precision": None}, [])
    assert done.data["num_steps"] == 30
    gain = done.document["data"]["recipe_gain"]
    assert gain["plain_run_id"] is None
    if gain["missing"] != "busy":  # as where other tests run beside it
        assert gain["missing"] is None
        assert gain["against_proof"]["estimate"] == gain["written_step_s"] / gain["step_s"]
        assert "as written when it was proven, at another time" in report
    assert not {note for note in done.notes if note.startswith("recipe")}
    (file,) = tmp_path.glob(".steptime/runs/*/rank-*.jsonl")
    found = {json.loads(line)["k"] for line in file.read_text(encoding="utf-8").splitlines()}
    assert kinds.LEVER in found
    assert not {kinds.TAGS, kinds.FACTS} & found  # they cost time in each step, for trials alone


def test_a_recipe_of_variables_alone_leaves_the_guest_as_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, make(tmp_path, GLIBC))
    assert done.stdout == b"highest 67108864\n"
    assert not list(tmp_path.glob(".steptime/runs/*/plan.json"))


def test_the_exit_code_is_the_scripts_own(tmp_path: Path) -> None:
    assert run(tmp_path, make(tmp_path, PRECISE), EXIT="7").exit_code == 7


def test_another_command_and_a_changed_script_are_warned_of(tmp_path: Path) -> None:
    recipe = make(tmp_path, PRECISE)
    with (tmp_path / "tuned.py").open("a") as file:
        file.write("# changed\n")
    done = run(tmp_path, recipe, "more")
    assert done.stdout == b"medium None more\n"
    first, second, *_ = done.stderr.decode().splitlines()
    assert first.startswith("steptime: tuned.toml: it was proven for another command: ")
    assert second == "steptime: tuned.toml: the script has changed since the proof (tuned.py)"
    assert [one["what"] for one in done.data["recipe"]["differences"]] == ["command", "script"]
    assert set(done.notes["recipe_differs"]) == {"command", "script"}


def test_another_torch_or_device_is_seen_when_the_script_has_it(tmp_path: Path) -> None:
    recipe = make(tmp_path, PRECISE)
    recipe = replace(recipe, proof=replace(recipe.proof, device="cuda"))
    done = run(tmp_path, recipe)
    assert done.notes["recipe_differs"] == {"device": "cuda, now cpu"}


def test_a_lever_that_fails_is_off_and_reported(tmp_path: Path) -> None:
    wrong = Applied(name="num_threads", settings={"num_threads": 0})
    done = run(tmp_path, make(tmp_path, PRECISE, wrong))
    assert (done.exit_code, done.data["num_steps"]) == (0, 30)
    assert done.stdout == b"medium None\n"
    assert [one["name"] for one in done.data["recipe"]["levers"] if one["error"]] == ["num_threads"]
    assert list(done.notes["recipe_lever_failed"]) == ["num_threads"]
    assert b"These levers of the recipe are off because they failed: num_threads" in done.stderr


def test_a_recipe_that_cannot_be_used_starts_nothing(tmp_path: Path) -> None:
    recipe = make(tmp_path, Applied(name="warp_drive", settings={}))
    done = run(tmp_path, recipe)
    assert (done.exit_code, done.stdout) == (2, b"")
    assert b"names the lever `warp_drive`, which this Steptime does not have" in done.stderr
    assert done.document is not None
    assert done.document["errors"][0]["code"] == "recipe"
    assert not (tmp_path / ".steptime").exists()
