"""`--health` names the layer and the samples of the first bad number, and changes nothing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    SPECIMENS,
    Done,
    fork_bare,
    fork_observed,
    is_fast,
    needs_linux,
    needs_torch,
    run_forked,
    run_observed,
    start_bare,
    start_observed,
)
from end_to_end.test_change_nothing import ALONE

pytestmark = [needs_torch, needs_linux]

PLANTS = {
    "backward": ("gradient", "queries", "norm"),
    "data": ("argument", "", None),
    "optimizer_state": ("weight", "out", "norm"),
    "division": ("loss", None, "out"),
    "forward": ("input", "norm", "queries"),
    "embedding_row": ("weight", "words", None),
    "loss_scale": ("gradient", "queries", "norm"),
    "log": ("loss", None, "out"),
    "mask": ("input", "norm", "queries"),
    "overflow": ("input", "norm", "queries"),
    "learning_rate": ("output", "queries", "words"),
    "clip": ("weight_gradient", None, None),
}
"""What was bad first, of which module, and the last module that was finite before it."""

OF_EACH_KIND = ("backward", "data", "optimizer_state", "division")
SLOW = pytest.mark.slow("a training for each way for a number to go wrong")


def name_of(module: dict[str, Any] | None) -> str | None:
    return None if module is None else str(module["name"])


def look(folder: Path, *args: str) -> tuple[dict[str, Any], str, str]:
    """What was found in a specimen, and what script and report said."""
    command = (sys.executable, SPECIMENS / "bad_numbers.py", *args)
    done = run_forked(folder, *command, options=("--health",))
    report = done.stderr.decode()
    assert done.exit_code == 0, report
    assert "guest_failures" not in {note["code"] for note in done.data["notes"]}
    return done.data["health"], done.stdout.decode(), report


@pytest.mark.parametrize(
    "plant", [p if p in OF_EACH_KIND else pytest.param(p, marks=SLOW) for p in PLANTS]
)
def test_layer_and_samples_of_a_bad_number_are_named(tmp_path: Path, plant: str) -> None:
    health, said, report = look(tmp_path, "--plant", plant, "--loader")

    bracket = health["layers"]["bracket"]
    side = bracket["forward"] or bracket["backward"]
    at, module, after = PLANTS[plant]
    assert (side["at"], name_of(side["module"])) == (at, module)
    assert name_of(side["after"]) == after
    (truth,) = re.findall(r"its samples \[(.*)\]", said)
    samples = [int(word) for word in truth.split(", ")]
    if plant == "data":
        assert (side["rows"], bracket["bad_samples"]) == ([3], [samples[3]])
        assert f"indices {samples[3]} of the data set" in report
    else:
        assert set(bracket["bad_samples"]) <= set(samples)
        assert bracket["samples_are_rows"] or bracket["bad_samples"] == samples
    assert health["layers"]["num_updates"] == 40
    assert health["layers"]["s_per_update"] > 0


def test_a_sound_training_has_no_bracket_and_workers_change_nothing(tmp_path: Path) -> None:
    health, _, report = look(tmp_path, "--plant", "nothing", "--loader", "--workers", "2")

    assert health["layers"]["bracket"] is None
    assert health["layers"]["num_brackets"] == 0
    assert "probed" in report
    curves = {curve["name"]: curve for curve in health["layers"]["curves"]}
    assert list(curves) == ["words", "norm", "queries", "out"]
    assert curves["queries"]["updates"] == [1, 17, 33]
    assert (curves["queries"]["num_units"], curves["words"]["num_units"]) == (8, None)
    assert 1e-4 < curves["out"]["update_ratio"] < 0.1
    assert "an update moves a layer by" in report


def test_the_samples_of_workers_are_those_of_their_batch(tmp_path: Path) -> None:
    health, said, _ = look(tmp_path, "--plant", "data", "--loader", "--workers", "2")

    (truth,) = re.findall(r"its samples \[(.*)\]", said)
    assert health["layers"]["bracket"]["bad_samples"] == [int(truth.split(", ")[3])]


@pytest.mark.slow("two ranks under torchrun")
def test_of_two_ranks_the_one_with_the_bad_batch_names_its_sample(tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    command = (sys.executable, *launcher, SPECIMENS / "bad_rank.py")
    done = run_observed(tmp_path, *command, options=("--health",))

    bracket = done.data["health"]["layers"]["bracket"]
    (truth,) = re.findall(r"its sample (\d+)", done.stdout.decode())
    assert (bracket["rank"], bracket["update"]) == (1, 12)
    assert (bracket["forward"]["at"], bracket["forward"]["rows"]) == ("argument", [1])
    assert bracket["bad_samples"] == [int(truth)]


def test_a_look_at_the_layers_changes_nothing(tmp_path: Path) -> None:
    command = (sys.executable, SPECIMENS / "bad_numbers.py", "--plant", "loss_scale", "--loader")
    jobs = (
        fork_bare(tmp_path / "bare", *command),
        fork_observed(tmp_path / "looked", *command, options=("--health",)),
    )
    bare, looked = [job.finish() for job in jobs]

    assert looked.stdout == bare.stdout
    assert b"its samples" in bare.stdout


def different(folder: Path, script: str, *args: str | Path) -> tuple[list[str], Done]:
    """Which trainings of a script left other bits with `--health`, and the run with it."""
    command = ("python", SCRIPTS / script, *args)
    bare, observed = (fork_bare, fork_observed) if is_fast() else (start_bare, start_observed)
    jobs = (
        bare(folder / "bare", *command),
        observed(folder / "looked", *command, options=("--health",)),
    )
    done = [job.finish() for job in jobs]
    assert [one.exit_code for one in done] == [0, 0], done[1].stderr.decode()
    before, looked = (
        json.loads((folder / arm / "found.json").read_text()) for arm in ("bare", "looked")
    )
    assert looked.keys() == before.keys()
    return [name for name in before if looked[name] != before[name]], done[1]


@pytest.mark.slow("dozens of ways to train, bare and looked at")
def test_every_way_to_train_leaves_the_same_bits(tmp_path: Path) -> None:
    names, looked = different(tmp_path, "states.py")

    assert names == []
    assert "guest_failures" not in looked.notes
    assert looked.data["health"]["layers"]["num_updates"] > 30


def test_a_mode_of_the_script_sees_nothing_of_the_first_layers(tmp_path: Path) -> None:
    names, looked = different(tmp_path, "states.py", "watch_functions_and_operators")

    assert names == []
    assert looked.data["health"]["layers"]["num_updates"] == 2


@pytest.mark.slow("every specimen, bare and looked at")
def test_every_specimen_leaves_the_same_bits(tmp_path: Path) -> None:
    names, looked = different(tmp_path, "run_specimens.py", "1", "found.json", *ALONE)

    assert names == []
    assert "guest_failures" not in looked.notes
