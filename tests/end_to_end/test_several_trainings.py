"""A command that starts several trainings: each is measured by itself, and none is a rank."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import steptime
from end_to_end.harness import (
    SCRIPTS,
    STEPTIME,
    Done,
    environment,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_observed,
)
from plain_child import PlainStart
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.tune.recipe.proof_scope import describe_script
from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
from steptime.tune.search.bench import ProcessRequest
from steptime.tune.study.study_folder import open_study
from steptime.tune.trials.observe_baseline import ParentFacts, SeveralTrainingsError
from steptime.tune.trials.real_bench import RealBench, Subject
from steptime.tune.values.study_values import Applied, TrainingScope
from study_cases import faster

pytestmark = [needs_linux, needs_torch]

SEVERAL = SCRIPTS / "several.py"

ONE_AFTER_THE_OTHER_THEN_A_SWEEP = f"""\
set -e
python {SEVERAL} one 30
python {SEVERAL} evaluate
python {SEVERAL} one 20 0.005
for steps in 41 42 43; do
    python {SEVERAL} one $steps 0.02 &
done
wait
"""

TORCHRUN_TWICE = """\
set -e
torchrun --nproc-per-node 2 --master-port {port} {several} ranks 6
torchrun --nproc-per-node 2 --master-port {port} {several} ranks 9
"""


def trainings(done: Done) -> list[Mapping[str, Any]]:
    """What the document says of each training."""
    assert done.exit_code == 0, done.stderr.decode()
    found = done.data["trainings"]
    assert [one["number"] for one in found] == list(range(1, len(found) + 1))
    return [one["measurement"] for one in found]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def shell_script(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """Two trainings and an evaluation one after the other, and then three side by side."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "train.sh").write_text(ONE_AFTER_THE_OTHER_THEN_A_SWEEP)
    return folder, run_observed(folder, "bash", "train.sh")


@pytest.mark.slow("six processes import torch")
def test_the_trainings_of_a_shell_script_are_no_ranks(shell_script: tuple[Path, Done]) -> None:
    _, done = shell_script
    first, second, *sweep = trainings(done)
    assert [(one["num_ranks"], one["num_steps"]) for one in (first, second)] == [(1, 30), (1, 20)]
    assert sorted((one["num_ranks"], one["num_steps"]) for one in sweep) == [
        (1, 41),
        (1, 42),
        (1, 43),
    ]
    assert all(one["ranks"][0]["rank"] == 0 for one in sweep)


@pytest.mark.slow("it shares the run of the test above")
def test_each_is_told_with_its_words_and_what_ran_beside_it(
    shell_script: tuple[Path, Done],
) -> None:
    _, done = shell_script
    found = [one["training"] for one in trainings(done)]
    assert [one["command"][2:4] for one in found[:2]] == [["one", "30"], ["one", "20"]]
    assert [one["beside"] for one in found] == [[], [], [4, 5], [3, 5], [3, 4]]
    assert [one["started_unix_s"] for one in found] == sorted(
        one["started_unix_s"] for one in found
    )
    text = done.stderr.decode()
    assert "on 2 ranks" not in text
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("trainings  "))
    assert [line.split()[0] for line in lines[first + 1 : first + 6]] == ["1", "2", "3", "4", "5"]


@pytest.mark.slow("it shares the run of the test above")
def test_one_of_them_is_shown_again(shell_script: tuple[Path, Done]) -> None:
    folder, _ = shell_script
    words = [*STEPTIME, "show", "last", "--training", "1", "--json"]
    done = subprocess.run(words, cwd=folder, env=environment(folder), capture_output=True)
    shown = json.loads(done.stdout)["data"]
    assert shown["measurement"]["num_steps"] == 30
    assert shown["measurement"] == shown["trainings"][0]["measurement"]
    loaded = steptime.load(run_folder(folder)).trainings
    assert [one.measurement.num_steps for one in loaded][:2] == [30, 20]


@pytest.mark.slow("torchrun and two ranks import torch, twice")
def test_torchrun_started_twice_at_the_same_address_is_two_trainings(tmp_path: Path) -> None:
    text = TORCHRUN_TWICE.format(port=free_port(), several=SEVERAL)
    (tmp_path / "train.sh").write_text(text)
    found = trainings(run_observed(tmp_path, "bash", "train.sh"))
    assert [(one["num_ranks"], one["num_steps"]) for one in found] == [(2, 6), (2, 9)]
    assert all({rank["rank"] for rank in one["ranks"]} == {0, 1} for one in found)


@pytest.mark.slow("five processes import torch")
def test_process_groups_that_are_spawned_one_after_the_other_are_two_trainings(
    tmp_path: Path,
) -> None:
    found = trainings(run_observed(tmp_path, "python", SEVERAL, "groups", "6", "9"))
    assert [(one["num_ranks"], one["num_steps"]) for one in found] == [(2, 6), (2, 9)]


# -- one of them is tuned


def make_bench(folder: Path, script: str, *, training: int | None) -> tuple[RealBench, Path]:
    """A bench of `bash train.sh`, and the folder of its trials."""
    (folder / "train.sh").write_text(script)
    argv = ("bash", "train.sh")
    study = open_study(folder, "key", budget_s=600.0)
    subject = Subject(
        argv=argv,
        environment=environment(folder),
        levers={},
        surroundings=ParentFacts(cwd=folder, libraries={}, environment_names=()),
        budget_s=30.0,
        training=training,
    )
    bench = RealBench(subject, study, PlainStart(argv, folder), lambda: None)
    return bench, study.folder / "trials"


ENDLESS = f"python {SEVERAL} one 12\npython {SEVERAL} one 1000000 0.01\n"


@pytest.mark.slow("six processes import torch, one after the other")
def test_the_training_that_was_named_is_studied_alone(tmp_path: Path) -> None:
    bench, trials = make_bench(tmp_path, ENDLESS, training=2)

    baseline = bench.observe()
    result = bench.compare_processes(ProcessRequest(reference=(), candidate=(), num_pairs=1))
    bench.close()

    assert baseline.ending.is_well
    assert baseline.measurement.num_steps >= 20
    scope = baseline.training
    assert scope is not None
    assert (scope.number, scope.words[2:], scope.numbers) == (2, ("one", "1000000", "0.01"), (0,))
    assert result.ending.is_well
    assert result.reference_step_s is not None
    assert result.reference_step_s > 0.01
    # What the plan says is done in the second training alone.
    kinds = [
        {line["k"] for line in rows(path)}
        for trial in sorted(trials.iterdir())[1:]
        for path in sorted(trial.glob("rank-*.jsonl"))
    ]
    assert ["t" in one for one in kinds] == [False, True] * 2


@pytest.mark.slow("two processes import torch")
def test_without_a_number_the_study_asks_which_one(tmp_path: Path) -> None:
    bench, _ = make_bench(tmp_path, ENDLESS.replace("1000000 0.01", "12"), training=None)

    with pytest.raises(SeveralTrainingsError, match=r"several trainings: 1 \(.*\), 2 \(.*\)"):
        bench.observe()


@pytest.mark.slow("two processes import torch")
def test_a_recipe_reaches_the_training_that_it_was_proven_for(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(
        f"python {SEVERAL} one 30\npython {SEVERAL} one 30\npython {SEVERAL} evaluate\n"
    )
    words = (sys.executable, str(SEVERAL), "one", "30")
    scope = TrainingScope(number=2, words=words, numbers=(1,))
    lever = Applied(name="matmul_precision", settings={"precision": "medium"})
    study = replace(faster(), recipe=(lever,), training=scope, torch_version=None)
    script = describe_script(("bash", "train.sh"), folder=tmp_path)
    recipe = make_recipe(study, script=script, machine=MachineIdentity())
    write_recipe(tmp_path / "tuned.toml", recipe)
    done = run_observed(tmp_path, "bash", "train.sh", options=("--recipe", "tuned.toml"))
    first, second = trainings(done)
    assert first["recipe"] is None
    assert [one["error"] for one in second["recipe"]["levers"]] == [None]
    assert not {note["code"] for note in second["notes"]} & {"recipe_lever_unseen"}
    files = sorted(run_folder(tmp_path).glob("rank-*.jsonl"))
    assert ["lever" in {line["k"] for line in rows(path)} for path in files] == [False, True]
