"""The rarer training loops: counted exactly, reported honestly, and left as they are."""

from __future__ import annotations

import os
import re
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from end_to_end.conftest import RunSpecimen
from end_to_end.harness import (
    SPECIMENS,
    Job,
    needs_linux,
    needs_torch,
    rows,
    run_both_forked,
    run_folder,
    start_observed,
    updates,
    wait_until,
)
from end_to_end.test_specimens import Case, assert_counts, plain
from rotation import in_turn, rotates
from steptime.measure.values.measurement import PHASES

pytestmark = [needs_torch, needs_linux]

BY_HAND_NOTE = "steps_by_backward"

CASES = {
    "LBFGS": Case("lbfgs", steps=10, updates=10, backwards=600),
    "step in backward": Case("step_in_backward", steps=30, updates=120, backwards=30),
    "four optimizers": Case("four_optimizers", steps=25, updates=100, backwards=100),
    "alternating": Case("alternating", steps=60, updates=72, backwards=72, period=5),
    "plain wrapper": Case("wrapped_step", ("--kind", "plain"), steps=20, updates=20, backwards=80),
    "wrapper": Case("wrapped_step", steps=20, updates=20, backwards=80),
    # The three backward calls after the last update that came through count too.
    "first through": Case("wrapped_step", ("--kind", "first"), steps=20, updates=20, backwards=80),
    "per sample": plain("per_sample", steps=25),
    "double backward": plain("double_backward", steps=25, backwards=50),
    "SAM": plain("sharpness", steps=25, backwards=50),
    "folds": plain("folds", steps=40),
    "folds with two": Case("folds", ("--optimizers", "2"), steps=40, updates=80, backwards=40),
    "evaluates first": plain("evaluates_first", steps=30),
    "endless": plain("endless", steps=50),
    "tiny steps": plain("few_steps", "--steps", "5000", steps=5000),
    "skips first": plain("scaler", "--overflow-at", "0", steps=40, skipped=4),
}

BY_HAND = {
    "through data": plain("by_hand", steps=40, updates=0),
    "without gradients": plain("by_hand", "--way", "no_grad", steps=40, updates=0),
    "autograd.grad": plain("by_hand", "--way", "grad", steps=40, updates=0, backwards=0),
    "then an optimizer": plain("by_hand", "--then", "20", steps=60, updates=20),
    "blocks": plain("few_steps", "--by-hand", "--steps", "20250", steps=20250, updates=0),
}

ALL = CASES | BY_HAND


@pytest.fixture(params=in_turn(ALL))
def case(request: pytest.FixtureRequest) -> Case:
    """Every rare loop."""
    return ALL[request.param]


# -- counts and sums


def test_steps_updates_and_backward_calls_are_counted_exactly(
    run_specimen: RunSpecimen, case: Case
) -> None:
    assert_counts(case.run(run_specimen).data, case)


def test_the_phases_of_each_step_add_up_to_it(run_specimen: RunSpecimen, case: Case) -> None:
    run = case.run(run_specimen)

    for before, step in pairwise(run.steps()):
        whole_s = step.step_time_s + sum(step.spans_s.values())
        assert whole_s == pytest.approx(step.end_s - before.end_s, abs=1e-6)
    phases = [run.data["phases"][name] for name in PHASES]
    assert sum(phase["fraction"] for phase in phases if phase) == pytest.approx(1, abs=1e-6)


def test_nothing_is_said_that_is_not_so(run_specimen: RunSpecimen, case: Case) -> None:
    data = case.run(run_specimen).data

    notes = {note["code"]: note["facts"] for note in data["notes"]}
    num_by_hand = case.steps - case.updates if case in BY_HAND.values() else 0
    facts = {"steps": num_by_hand, "num_steps": case.steps}
    rests = notes.pop("watched_in_bursts", {"steps": case.steps})
    assert rests["steps"] == case.steps
    evaluations = notes.pop("closure_evaluations", {"optimizer_steps": case.updates})
    assert evaluations["optimizer_steps"] == case.updates
    assert notes == ({BY_HAND_NOTE: facts} if num_by_hand else {})
    assert all(rank["ended_cleanly"] for rank in data["ranks"])


@pytest.mark.parametrize(
    "name",
    in_turn(["LBFGS", "step in backward", "plain wrapper", "wrapper", "first through", "SAM"]),
)
def test_the_odd_ones_print_the_same_with_and_without_us(tmp_path: Path, name: str) -> None:
    case = CASES[name]

    bare, observed = run_both_forked(tmp_path, "python", SPECIMENS / f"{case.name}.py", *case.args)

    assert (bare.exit_code, bare.stdout) == (observed.exit_code, observed.stdout)
    assert bare.stdout.count(b"loss")


# -- one by one


@rotates("LBFGS")
def test_hundreds_of_backward_calls_in_one_step_are_all_there(run_specimen: RunSpecimen) -> None:
    run = CASES["LBFGS"].run(run_specimen)

    assert "closures 600\n" in run.stdout
    assert [step.count("backwards") for step in run.steps()] == [60] * 10


@rotates("one_long_step")
def test_a_training_of_one_step_is_one_step_whose_evaluations_are_counted(
    run_specimen: RunSpecimen,
) -> None:
    run = run_specimen("one_long_step")

    (closures,) = re.findall(r"closures (\d+)", run.stdout)
    assert run.data["num_backwards"] == int(closures)
    assert run.data["num_steps"] == 1
    notes = {note["code"]: note["facts"] for note in run.data["notes"]}
    facts = {"evaluations": int(closures), "optimizer_steps": 1}
    assert notes["closure_evaluations"] == facts


@rotates("step in backward")
def test_a_backward_call_with_steps_inside_is_one_step(run_specimen: RunSpecimen) -> None:
    steps = CASES["step in backward"].run(run_specimen).steps()

    assert [step.count("backwards") for step in steps] == [1] * 30
    assert {step.optimizers for step in steps} == {(0, 1, 2, 3)}
    assert all(step.wall_s["backward"] > 0 and step.wall_s["optimizer"] > 0 for step in steps)


@pytest.mark.parametrize(
    ("name", "backwards"),
    in_turn(
        [("plain wrapper", [4] * 20), ("wrapper", [4] * 20), ("first through", [1] + [4] * 19)]
    ),
)
def test_what_a_wrapper_holds_back_belongs_to_the_step_it_lets_through(
    run_specimen: RunSpecimen, name: str, backwards: list[int]
) -> None:
    steps = CASES[name].run(run_specimen).steps()

    assert [step.count("backwards") for step in steps] == backwards
    assert [step.num_updates for step in steps] == [1] * 20


@rotates("folds")
def test_each_fold_has_steps_and_optimizers_of_its_own(run_specimen: RunSpecimen) -> None:
    one, two = (CASES[name].run(run_specimen).steps() for name in ("folds", "folds with two"))

    assert [step.optimizers for step in one] == [(n // 10,) for n in range(40)]
    assert [step.optimizers for step in two] == [(n // 10 * 2, n // 10 * 2 + 1) for n in range(40)]
    assert [s.index for s in one if s.spans_s["evaluation"] > 0] == [10, 20, 30]


@rotates("evaluates first")
def test_an_evaluation_before_the_first_step_is_no_part_of_it(run_specimen: RunSpecimen) -> None:
    run = CASES["evaluates first"].run(run_specimen)
    first, *others = run.steps()

    assert first.spans_s["evaluation"] >= 0.200
    assert first.step_time_s + first.spans_s["evaluation"] <= first.end_s
    assert not any(step.spans_s["evaluation"] for step in others)
    assert run.data["spans"]["evaluation"]["num_steps_touched"] == 1
    assert run.data["steady"]["step_time_s"]["estimate"] < 0.020
    assert run.median_s("forward") >= 0.005


@rotates("skips first")
def test_the_first_update_may_be_one_that_was_skipped(run_specimen: RunSpecimen) -> None:
    steps = CASES["skips first"].run(run_specimen).steps()

    assert [step.index for step in steps if step.num_skipped] == [0, 10, 20, 30]
    assert [step.count("backwards") for step in steps] == [1] * 40


@rotates("spawned")
@pytest.mark.slow("spawned children import torch")
def test_spawned_children_that_share_nothing_are_trainings_of_their_own(
    run_specimen: RunSpecimen,
) -> None:
    data = run_specimen("spawned").data
    found = data["trainings"]

    ranks = [rank for one in found for rank in one["measurement"]["ranks"]]
    assert sorted(rank["num_steps"] for rank in ranks) == [20, 30]
    assert [rank["num_backwards"] for rank in ranks] == [
        rank["num_optimizer_updates"] for rank in ranks
    ]
    assert len(found) == 2
    assert data["num_steps"] == data["num_optimizer_updates"]  # of whichever lasted longer
    assert data["num_steps"] in (20, 30)
    assert [note["code"] for note in data["notes"]] == ["trainings_beside"]


@rotates("few_steps")
def test_one_step_is_a_step(run_specimen: RunSpecimen) -> None:
    data = run_specimen("few_steps").data

    assert (data["num_steps"], data["num_optimizer_updates"], data["num_backwards"]) == (1, 1, 1)
    assert data["steady"]["num_steps"] == 0


# -- by hand


@rotates("through data")
def test_no_optimizer_is_said_to_have_stepped(run_specimen: RunSpecimen) -> None:
    run = BY_HAND["through data"].run(run_specimen)

    assert run.data["phases"]["optimizer"] is None
    assert run.data["phases_missing"]["optimizer"] == "no_optimizer_seen"
    assert run.median_s("other") >= 0.002  # the pause after the backward call
    assert run.median_s("loss") > 0
    assert {step.optimizers for step in run.steps()} == {(-1,)}


@rotates("autograd.grad")
def test_gradients_asked_for_are_a_backward_phase_with_a_loss_before_it(
    run_specimen: RunSpecimen,
) -> None:
    run = BY_HAND["autograd.grad"].run(run_specimen)

    assert run.median_s("backward") > 0
    assert run.median_s("loss") > 0


@rotates("blocks")
def test_steps_by_hand_go_into_blocks(run_specimen: RunSpecimen) -> None:
    run = BY_HAND["blocks"].run(run_specimen)

    lines = rows(run.folder / "rank-0.jsonl")
    blocks = [line["row"] for line in lines if line["k"] == "b"]
    assert [(row[2], row[3]) for row in blocks] == [(100, 0), (100, 0), (50, 0)]
    assert [line["updates"] for line in lines if line["k"] in ("o", "end")][-1] == 0
    assert run.data["overhead"]["cpu_s_per_step"] > 0


@rotates("own_backward")
def test_where_nothing_ends_a_step_it_is_said_what_was_seen(run_specimen: RunSpecimen) -> None:
    data = run_specimen("own_backward").data
    nothing = run_specimen("few_steps", "--steps", "0").data

    (note,) = data["notes"]
    assert note["code"] == "no_steps_seen"
    assert note["facts"] == {"forwards": 0, "backwards": 0, "batches": 20}
    assert data["num_steps"] == nothing["num_steps"] == 0
    assert [note["code"] for note in nothing["notes"]] == ["no_steps_seen"]


# -- ended by somebody


def start_and_wait(folder: Path, num_lines: int, *command: str) -> tuple[Job, Path]:
    """A specimen that says each step on stdout, which goes to a file, once it has said some."""
    said = folder / "said.txt"
    script = " ".join(["exec python", str(SPECIMENS / command[0]), *command[1:], f"> {said}"])
    job = start_observed(folder, "sh", "-c", script)
    wait_until(lambda: said.exists() and len(said.read_text().splitlines()) >= num_lines)
    return job, said


def child_pid(folder: Path) -> int:
    (pid,) = {line["pid"] for line in rows(run_folder(folder) / "processes.jsonl")}
    return int(pid)


def test_a_kill_loses_no_step_by_hand_but_the_last_moment(tmp_path: Path) -> None:
    job, said = start_and_wait(
        tmp_path, 60, "by_hand.py", "--steps", "9999", "--say", "--pause", "0.01"
    )
    killed_at = time.time()
    os.kill(child_pid(tmp_path), signal.SIGKILL)
    done = job.finish()

    ended = [float(line.split()[1]) for line in said.read_text().splitlines() if " " in line]
    num_promised = sum(ended_at < killed_at - 0.2 for ended_at in ended)
    assert 10 < num_promised <= done.data["num_steps"] <= len(ended) + 1
    assert done.data["num_optimizer_updates"] == 0
    assert set(done.notes) == {"ended_abruptly", BY_HAND_NOTE}


@pytest.mark.slow("a true process that steps until it is interrupted")
@pytest.mark.core
def test_an_endless_loop_that_is_interrupted_loses_nothing(tmp_path: Path) -> None:
    job, said = start_and_wait(tmp_path, 60, "endless.py", "--steps", "-1")
    os.killpg(job.process.pid, signal.SIGINT)
    done = job.finish()

    num_said = len(said.read_text().splitlines())
    assert num_said <= done.data["num_steps"] <= num_said + 1
    assert len(updates(run_folder(tmp_path) / "rank-0.jsonl")) == done.data["num_steps"]
    assert done.data["num_optimizer_updates"] == done.data["num_steps"]
    assert "ended_abruptly" not in done.notes
