"""`steptime sweep`: real contained runs, pruned and kept; what is refused; a small Ray cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import needs_linux
from steptime.cli.main import main
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.tune.recipe.proof_scope import describe_script
from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
from steptime.tune.values.study_values import Applied
from study_cases import faster

pytest.importorskip("optuna")
pytest.importorskip("scipy")

SCRIPT = """
import argparse, math, random, time
words = argparse.ArgumentParser()
words.add_argument("--lr", type=float)
words.add_argument("--bs", default="16")
words.add_argument("--seed", type=int, default=0)
words.add_argument("--sleep", type=float, default=0.1)
given = words.parse_args()
random.seed(given.seed)
speed = 0.2 if given.lr < 0.01 else 1.0
file = open("log.csv", "w")
print("step,acc", file=file, flush=True)
for step in range(1, 9 if speed == 1.0 else 200):
    time.sleep(given.sleep)
    loss = 2 - speed * step * 0.4 + random.gauss(0, 0.01)
    print(f"step {step} val {loss:.4f}")
    print(f"{step},{-loss:.4f}", file=file, flush=True)
"""
METRIC = ("--metric", "val ([-0-9.]+)")
TRAIN = (sys.executable, "train.py", "--lr", "{lr}", "--seed", "{seed}")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def search(*words: str, command: tuple[str, ...] = TRAIN) -> tuple[int, dict[str, Any]]:
    code = main(["sweep", *words, "--json", "s.json", "--", *command])
    path = Path("s.json")
    return code, json.loads(path.read_text()) if path.exists() else {}


@needs_linux
@pytest.mark.slow("a dozen contained runs of a second each")
@pytest.mark.core
def test_the_faster_value_is_found_holds_with_new_seeds_and_is_not_run_again(capfd):
    words = ("--param", "lr=0.001,0.1", *METRIC, "--target", "1.0", "--budget", "2m")

    code, document = search(*words, "--output", "page.html")

    said, data = capfd.readouterr(), document["data"]
    assert (code, data["best"], data["holds"]) == (0, {"lr": "0.1"}, True)
    assert data["time_to_target_s"] > 0.2
    assert data["num_trials"] == 2
    assert data["num_pruned"] >= 1  # the slow value, which has been stopped each time
    assert data["num_censored"] >= data["num_pruned"]
    assert "was stopped, as it could not win" in said.err
    assert "best       lr=0.1: reaches 1 in" in said.out
    assert "Time against quality" in Path("page.html").read_text()
    assert not Path("log.csv").exists()  # a run leaves nothing behind

    again, same = search(*words)
    assert (again, same["data"]) == (0, data)  # the same runs, the same answer
    assert "run 1," not in capfd.readouterr().err


@needs_linux
def test_a_metric_in_a_file_is_read_while_the_run_writes_it():
    Path("log.csv").write_text("step,acc\n1,5.0\n")  # of an earlier run: it counts for nothing
    words = ("--param", "lr=0.05,0.1", "--metric", "csv:log.csv:acc", "--better", "up")
    slow = (*TRAIN, "--sleep", "0.4")

    _, document = search(*words, "--target", "-1.0", "--budget", "6s", command=slow)

    (frontier, best) = (document["data"]["frontier"], document["data"]["candidates"][0])
    assert best["num_reached"] >= 1
    assert max(point["value"] for point in frontier) < 0
    assert document["data"]["time_to_target_s"] < 3.2  # of 8 steps, it was ended after 3


@needs_linux
def test_a_target_that_nobody_reaches_is_no_answer(capfd):
    words = ("--param", "lr=0.05,0.1", *METRIC, "--target", "-9", "--budget", "20s")

    code, document = search(*words, command=(*TRAIN, "--sleep", "0"))

    data = document["data"]
    assert (code, data["best"], data["time_to_target_s"], data["holds"]) == (4, None, None, None)
    assert data["reason"] == "target_not_reached"
    assert data["num_censored"] == data["num_runs"] == 2
    assert "no run reached the target" in capfd.readouterr().out


@needs_linux
@pytest.mark.parametrize(
    ("metric", "target", "budget", "command", "code", "said"),
    [
        ("loss ([0-9.]+)", "1", "9s", TRAIN, 2, "no match for --metric"),
        ("val ([-0-9.]+)", "-9", "1s", (*TRAIN, "--sleep", "1"), 2, "the whole budget"),
        ("val ([-0-9.]+)", "1", "9s", (*TRAIN, "--foo"), 3, "runs all failed"),
    ],
)
def test_runs_of_which_nothing_can_come_are_refused(
    metric, target, budget, command, code, said, capfd
):
    words = ("--param", "lr=0.05,0.1,0.2", "--target", target, "--budget", budget)
    fast = command if "--sleep" in command else (*command, "--sleep", "0")

    found, document = search(*words, "--metric", metric, command=fast)

    assert found == code
    assert said in capfd.readouterr().err
    assert document["errors"]


@needs_linux
def test_a_metric_that_never_changes_is_refused(capfd):
    command = ("sh", "-c", "for i in 1 2 3; do echo val 7; done; : {lr}")

    code, document = search(
        *("--param", "lr=1,2,3", *METRIC, "--target", "1", "--budget", "9s"), command=command
    )

    assert (code, document["errors"][0]["code"]) == (2, "constant_metric")
    assert "the metric is always 7" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--param", "lr=1..2", "--param", "bs=1,2"), "the command has no place for bs"),
        (("--param", "bs=1,2"), "the command has no place for bs"),
        (("--param", "lr=0..2:log"), "cannot begin at 0"),
        (("--param", "lr=1..2", "--default", "lr=3"), "lies outside"),
        (("--param", "lr=1..2", "--recipe", "none.toml"), "there is no file `none.toml`"),
        (("--param", "lr=1..2", "--target", "nan"), "--target must be a number"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(words, said, capfd):
    code, document = search(*("--target", "1", *METRIC, "--budget", "9s"), *words)

    assert code == 2
    assert said in capfd.readouterr().err
    assert document["exit_code"] == 2
    assert not Path(".steptime").exists()


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("optuna", (), "steptime[sweep]"),
        ("scipy", (), "steptime[sweep]"),
        ("ray", ("--ray", "local"), "steptime[ray]"),
        ("scipy", ("--ray", "local"), "steptime[ray]"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(package, words, extra, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)

    code, _ = search("--param", "lr=1..2", "--target", "1", *METRIC, "--budget", "9s", *words)

    assert code == 2
    assert f"pip install '{extra}'" in capfd.readouterr().err


@needs_linux
@pytest.mark.slow("a dozen contained runs of a second each")
def test_a_search_that_was_killed_goes_on_and_makes_no_run_twice(capfd):
    words = ("--param", "lr=0.05,0.1", *METRIC, "--target", "1.0", "--budget", "9s")
    ours = [sys.executable, "-m", "steptime", "sweep", *words, "--", *TRAIN]
    running = subprocess.Popen(ours, stderr=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 60
    while not (kept := list(Path().glob(".steptime/sweeps/*/run-0002.json"))):
        assert time.monotonic() < until
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    before = kept[0].read_text()

    code, document = search(*words)

    assert code in (0, 4)
    said = capfd.readouterr().err
    assert "run 1," not in said
    assert "run 2," not in said
    assert kept[0].read_text() == before
    assert document["data"]["num_trials"] == 2
    numbers = [path.name for path in sorted(kept[0].parent.glob("run-*.json"))]
    assert len(numbers) == document["data"]["num_runs"]


@needs_linux
@pytest.mark.slow("each of its runs imports torch")
def test_each_run_has_the_levers_of_the_recipe_on(folder: Path):
    pytest.importorskip("torch")
    study = replace(
        faster(),
        recipe=(Applied(name="matmul_precision", settings={"precision": "medium"}),),
        command=TRAIN,
        torch_version=None,
    )
    script = describe_script((sys.executable, "train.py"), folder=folder)
    recipe = make_recipe(study, script=script, machine=MachineIdentity())
    write_recipe(folder / "tuned.toml", recipe)
    (folder / "train.py").write_text(
        "import random, torch\nlevel = torch.get_float32_matmul_precision()\n"
        "print('val', 'medium high highest'.split().index(level) + random.random() / 10)\n"
    )

    words = ("--param", "lr=0.1,0.2", "--metric", r"val ([\d.]+)", "--target", "0.5")
    _, document = search(*words, "--budget", "30s", "--recipe", "tuned.toml")

    assert document["data"]["candidates"][0]["num_reached"] >= 1


@needs_linux
@pytest.mark.slow("a Ray cluster takes seconds to start")
def test_runs_on_a_ray_cluster_leave_the_same_files(capfd):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        words = ("--param", "lr=0.001,0.1", *METRIC, "--target", "1.0", "--budget", "1m")
        code, document = search(*words, "--ray", "local")
    finally:
        ray.shutdown()

    assert (code, document["data"]["best"]) == (0, {"lr": "0.1"})
    (folder,) = Path(".steptime/sweeps").iterdir()
    assert (folder / "run-0001" / "stdout").read_text().startswith("step 1 val")
    assert len(list(folder.glob("run-*.json"))) == document["data"]["num_runs"]


@needs_linux
def test_a_command_without_a_seed_is_seeded_by_the_guest():
    Path("train.py").write_text("import random\nprint('val', random.random() + 1)\n")
    words = ("--param", "lr=0.1,0.2", "--metric", "val ([0-9.]+)", "--target", "0")

    search(*words, "--budget", "20s", command=(sys.executable, "train.py", "{lr}"))

    kept = [json.loads(path.read_text()) for path in Path().glob(".steptime/sweeps/*/run-*.json")]
    assert len(kept) == 2
    assert kept[0]["values"] == kept[1]["values"]  # both candidates have the first seed
