"""The real bench on real tiny scripts: how trials end, and what they say."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from plain_child import PlainStart
from steptime.core.study import TrialEnd
from steptime.tune.bench import Baseline, ProcessRequest
from steptime.tune.folder import StudyFolder, open_study
from steptime.tune.observe import Surroundings
from steptime.tune.worlds import Doors, Subject, Worlds

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="trials train, with torch")

TINY = Path(__file__).parent / "scripts" / "tiny.py"
BUDGET_S = 30.0


def make_worlds(
    folder: Path, *words: str, script: Path = TINY, stdin: str | None = None
) -> tuple[Worlds, StudyFolder]:
    argv = (sys.executable, str(script), *words)
    study = open_study(folder, "key")
    given = None
    if stdin is not None:
        given = study.folder / "stdin"
        given.write_text(stdin)
    subject = Subject(
        argv=argv,
        environment=dict(os.environ),
        levers={},
        surroundings=Surroundings(cwd=folder, libraries={}, environment_names=("HOME",)),
        budget_s=BUDGET_S,
        stdin=given,
    )
    return Worlds(subject, study, Doors(own=PlainStart(argv, folder)), lambda: None), study


def observe(folder: Path, *words: str, stdin: str | None = None) -> Baseline:
    return make_worlds(folder, *words, stdin=stdin)[0].observe()


def test_an_endless_script_is_observed_for_a_window_and_ended(tmp_path: Path) -> None:
    worlds, study = make_worlds(tmp_path, "--sleep", "0.01")

    baseline = worlds.observe()

    assert baseline.end is TrialEnd.FINISHED
    assert baseline.reason is None
    steady = baseline.measurement.steady
    assert steady is not None
    assert steady.step_time_s is not None
    assert steady.num_steps >= 20
    assert baseline.startup_s > 0.1
    assert baseline.facts.environment_names == ("HOME",)
    assert baseline.facts.torch_version
    assert {"command.json", "plan.json", "host.jsonl", "stdout", "stderr"} <= {
        path.name for path in (study.folder / "trials" / "000").iterdir()
    }


def test_a_script_of_twenty_steps_is_measured_by_what_there_was(tmp_path: Path) -> None:
    baseline = observe(tmp_path, "--steps", "20")

    assert baseline.end is TrialEnd.FINISHED
    assert baseline.measurement.num_steps == 20


def test_a_script_that_fails_says_so_in_its_own_words(tmp_path: Path) -> None:
    baseline = observe(tmp_path, "--fail-at", "3")

    assert baseline.end is TrialEnd.FAILED
    assert baseline.reason == "exit_code"
    assert baseline.details == {
        "exit_code": "1",
        "last_line": "RuntimeError: the disk of this script is full",
    }


def test_a_script_that_makes_no_step_is_no_baseline(tmp_path: Path) -> None:
    baseline = observe(tmp_path, "--steps", "0")

    assert (baseline.end, baseline.reason) == (TrialEnd.FAILED, "no_steps")


def test_a_script_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steptime.tune.bounds.silence_s", lambda budget_s: 1.0)

    baseline = observe(tmp_path, "--hang-at", "60", "--sleep", "0.01")

    assert baseline.end is TrialEnd.TIMED_OUT
    assert baseline.reason == "hung"


def test_each_trial_reads_the_input_of_the_command(tmp_path: Path) -> None:
    worlds, study = make_worlds(tmp_path, "--read", "--steps", "30", stdin="48\n")

    assert worlds.observe().end is TrialEnd.FINISHED
    worlds.compare_processes(ProcessRequest(reference=(), candidate=(), num_pairs=1))
    outputs = [path.read_text() for path in sorted(study.folder.glob("trials/*/stdout"))]
    assert outputs == ["done 48\n"] * 3


def test_equal_states_in_processes_of_their_own_differ_by_noise_alone(tmp_path: Path) -> None:
    worlds, _ = make_worlds(tmp_path, "--sleep", "0.02")

    result = worlds.compare_processes(ProcessRequest(reference=(), candidate=(), num_pairs=2))

    assert result.end is TrialEnd.FINISHED
    assert len(result.log_ratios) == len(result.cpu_log_ratios) == 2
    assert all(abs(ratio) < 0.7 for ratio in result.log_ratios)  # sleeping takes most of it
    assert result.reference_step_s is not None
    assert result.reference_step_s > 0.02
