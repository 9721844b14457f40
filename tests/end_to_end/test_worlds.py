"""The real bench on real tiny scripts: how trials end, and what they say."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from end_to_end.acting import BURNING, early_lever, lever
from plain_child import PlainStart
from steptime.levers.base import Lever
from steptime.tune.search.bench import (
    Baseline,
    LiveRequest,
    ProcessRequest,
    WholeRequest,
    WholeResult,
)
from steptime.tune.study.study_folder import StudyFolder, open_study
from steptime.tune.trials import bounds
from steptime.tune.trials.observe_baseline import ParentFacts
from steptime.tune.trials.real_bench import RealBench, Subject
from steptime.tune.values.study_values import Applied, State, TrialEnd

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="trials train, with torch")

TINY = Path(__file__).parent / "scripts" / "stoppable.py"
BUDGET_S = 30.0


def make_worlds(
    folder: Path,
    *words: str,
    script: Path = TINY,
    stdin: str | None = None,
    levers: tuple[Lever, ...] = (),
    nproc: int | None = None,
) -> tuple[RealBench, StudyFolder]:
    argv = (sys.executable, str(script), *words)
    if nproc is not None:
        launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}")
        argv = (sys.executable, *launcher, str(script), *words)
    study = open_study(folder, "key", budget_s=600.0)
    given = None
    if stdin is not None:
        given = study.folder / "stdin"
        given.write_text(stdin)
    subject = Subject(
        argv=argv,
        environment=dict(os.environ),
        levers={lever.name: lever for lever in levers},
        surroundings=ParentFacts(cwd=folder, libraries={}, environment_names=("HOME",)),
        budget_s=BUDGET_S,
        stdin=given,
    )
    return RealBench(subject, study, PlainStart(argv, folder), lambda: None), study


def observe(folder: Path, *words: str, stdin: str | None = None) -> Baseline:
    return make_worlds(folder, *words, stdin=stdin)[0].observe()


@pytest.mark.slow("a trial lasts until its window is full")
@pytest.mark.core
def test_an_endless_script_is_observed_for_a_window_and_ended(tmp_path: Path) -> None:
    worlds, study = make_worlds(tmp_path, "--sleep", "0.01")

    baseline = worlds.observe()

    assert baseline.ending.end is TrialEnd.FINISHED
    assert baseline.ending.reason is None
    steady = baseline.measurement.steady
    assert steady is not None
    assert steady.step_time_s is not None
    # Where warm-up ends depends on what else the machine does: half of the steps count at least.
    assert baseline.measurement.num_steps >= 29
    assert steady.num_steps >= 14
    assert baseline.startup_s > 0.1
    assert baseline.facts.environment_names == ("HOME",)
    assert baseline.facts.torch_version
    assert {"command.json", "plan.json", "host.jsonl", "stdout", "stderr"} <= {
        path.name for path in (study.folder / "trials" / "000").iterdir()
    }


def test_a_script_of_twenty_steps_is_measured_by_what_there_was(tmp_path: Path) -> None:
    baseline = observe(tmp_path, "--steps", "20")

    assert baseline.ending.end is TrialEnd.FINISHED
    assert baseline.measurement.num_steps == 20


def test_the_command_is_run_to_its_end_both_ways(tmp_path: Path) -> None:
    worlds, _ = make_worlds(
        tmp_path, "--steps", "20", "--sleep", "0.01", levers=(lever("nothing"),)
    )
    state = (Applied(name="nothing", settings={}),)

    found = worlds.run_whole(WholeRequest(state=state, num_runs=1, most_s=60.0))

    assert min(*found.written_s, *found.tuned_s) > 0.2
    assert len(found.written_s) == len(found.tuned_s) == 1


def test_a_command_that_does_not_end_in_time_says_nothing_of_its_whole(tmp_path: Path) -> None:
    worlds, _ = make_worlds(tmp_path, "--sleep", "0.01")

    assert worlds.run_whole(WholeRequest(state=(), num_runs=1, most_s=1.0)) == WholeResult()


def test_a_script_that_fails_says_so_in_its_own_words(tmp_path: Path) -> None:
    baseline = observe(tmp_path, "--fail-at", "3")

    assert baseline.ending.end is TrialEnd.FAILED
    assert baseline.ending.reason == "exit_code"
    assert baseline.ending.facts == {
        "exit_code": 1,
        "last_line": "RuntimeError: the disk of this script is full",
    }


def test_a_script_that_makes_no_step_is_no_baseline(tmp_path: Path) -> None:
    baseline = observe(tmp_path, "--steps", "0")

    assert (baseline.ending.end, baseline.ending.reason) == (TrialEnd.FAILED, "no_steps")


@pytest.mark.slow("silence is waited for")
def test_a_script_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "silence_s", lambda budget_s: 1.0)

    baseline = observe(tmp_path, "--hang-at", "20")

    assert baseline.ending.end is TrialEnd.TIMED_OUT
    assert baseline.ending.reason == "hung"


@pytest.mark.slow("three trials, each a process that imports torch")
def test_each_trial_reads_the_input_of_the_command(tmp_path: Path) -> None:
    worlds, study = make_worlds(tmp_path, "--read", "--steps", "30", stdin="48\n")

    assert worlds.observe().ending.is_well
    worlds.compare_processes(ProcessRequest(reference=(), candidate=(), num_pairs=1))
    outputs = [path.read_text() for path in sorted(study.folder.glob("trials/*/stdout"))]
    assert outputs == ["done 48\n"] * 3


@pytest.mark.slow("four trials, one after the other")
@pytest.mark.serial
def test_equal_states_in_processes_of_their_own_differ_by_noise_alone(tmp_path: Path) -> None:
    worlds, _ = make_worlds(tmp_path, "--sleep", "0.02")

    result = worlds.compare_processes(ProcessRequest(reference=(), candidate=(), num_pairs=2))

    assert result.ending.is_well
    assert len(result.arms[0].log_ratios) == len(result.arms[0].cpu_log_ratios) == 2
    assert all(abs(ratio) < 0.7 for ratio in result.arms[0].log_ratios)  # sleeping takes most of it
    assert result.reference_step_s is not None
    assert result.reference_step_s > 0.02


def on(*levers: Lever) -> State:
    return tuple(Applied(name=one.name, settings=one.space(None)[0]) for one in levers)  # type: ignore[arg-type]


@pytest.mark.slow("two trials, one after the other")
@pytest.mark.serial
def test_an_environment_lever_is_compared_between_processes(tmp_path: Path) -> None:
    early = early_lever()
    worlds, _ = make_worlds(tmp_path, script=BURNING, levers=(early,))

    result = worlds.compare_processes(
        ProcessRequest(reference=(), candidate=on(early), num_pairs=1)
    )

    assert result.ending.is_well
    assert result.arms[0].cpu_log_ratios[0] > 0.7


@pytest.mark.slow("two trials that take turns")
def test_two_processes_are_kept_and_take_turns(tmp_path: Path) -> None:
    early = early_lever()
    worlds, study = make_worlds(tmp_path, script=BURNING, levers=(early,))
    ask = ProcessRequest(reference=(), candidate=on(early), num_pairs=2, is_kept=True)

    results = [worlds.compare_processes(ask) for _ in range(2)]
    held = [process for process in psutil.process_iter() if process.status() == "stopped"]
    worlds.close()

    assert all(one.ending.is_well for one in results)
    ratios = [ratio for one in results for ratio in one.arms[0].cpu_log_ratios]
    assert len(ratios) == 4
    assert min(ratios) > 0.7
    assert len(list(study.folder.glob("trials/*"))) == 2
    assert len(held) >= 2  # they wait for more questions, and take no core
    assert not any(process.is_running() for process in held)


@pytest.mark.slow("a lever that hangs is waited for, and the trial starts again")
@pytest.mark.core
@pytest.mark.serial
def test_live_levers_that_fail_lose_their_own_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "silence_s", lambda budget_s: 3.0)
    quick, crash, hang = lever("quick"), lever("crash"), lever("hang")
    worlds, _ = make_worlds(tmp_path, script=BURNING, levers=(quick, crash, hang))
    states = ((), on(quick), on(crash), on(hang))

    result = worlds.compare_live(LiveRequest(fixed=(), states=states, num_rounds=3))
    worlds.close()

    assert [(arm.ending.end, arm.ending.reason) for arm in result.arms] == [
        (TrialEnd.FINISHED, None),
        (TrialEnd.FAILED, "lever_failed"),
        (TrialEnd.TIMED_OUT, "hung"),
    ]
    assert min(result.arms[0].cpu_log_ratios) > 0.7
    assert (result.arms[1].ending.facts or {})["error"] == "RuntimeError: planted"


@pytest.mark.slow("a trial for each twenty steps")
@pytest.mark.serial
def test_a_script_of_twenty_steps_is_compared_by_starting_it_again(tmp_path: Path) -> None:
    quick = lever("quick")
    worlds, _ = make_worlds(tmp_path, "--steps", "20", script=BURNING, levers=(quick,))

    result = worlds.compare_live(LiveRequest(fixed=(), states=((), on(quick)), num_rounds=2))
    worlds.close()

    assert result.ending.is_well
    assert len(result.arms[0].log_ratios) >= 2


@pytest.mark.slow("torchrun and two ranks, twice")
@pytest.mark.serial
def test_two_ranks_are_compared_by_the_clock_of_the_first(tmp_path: Path) -> None:
    quick = lever("quick")
    worlds, _ = make_worlds(tmp_path, "--ranks", script=BURNING, levers=(quick,), nproc=2)

    baseline = worlds.observe()
    result = worlds.compare_live(LiveRequest(fixed=(), states=((), on(quick)), num_rounds=3))
    worlds.close()

    assert baseline.measurement.num_ranks == 2
    assert baseline.facts.world_size == 2
    assert baseline.samples_per_step == 32
    assert result.ending.is_well
    assert min(result.arms[0].cpu_log_ratios) > 0.5
