"""Each loop shape is counted exactly, each planted ailment is found as itself.

The planted times are sleeps, so that a busy machine can only make them longer: windows are
exact below and wide above. Counts are exact.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from end_to_end.conftest import RunSpecimen, SpecimenRun
from end_to_end.harness import SPECIMENS, needs_torch, run_both_forked
from rotation import in_turn, rotates
from specimens.neighbor_starts import start_neighbors
from steptime.measure.values.measurement import PHASES

TOO_LONG = 3
"""A sleep takes up to this many times as long in the median of thirty steps, where others work."""

SHORT_S = 0.005
"""More than the networks here ever take in one phase."""

COMPUTE = ("forward", "loss", "forward_and_loss", "backward", "gradient_processing", "optimizer")
PHASE_KINDS = ("INPUT_BOUND", "COMMUNICATION_BOUND", "STRAGGLER")


@dataclass(frozen=True)
class Case:
    """How a specimen is started and what is planted in it."""

    name: str
    args: tuple[str, ...] = ()
    nproc: int | None = None
    steps: int = 0
    updates: int = 0
    backwards: int = 0
    skipped: int = 0
    period: int = 1

    def run(self, run_specimen: RunSpecimen) -> SpecimenRun:
        return run_specimen(self.name, *self.args, nproc=self.nproc)


def plain(name: str, *args: str, steps: int, **more: int) -> Case:
    """A loop with one update and one backward a step."""
    numbers = {"updates": steps, "backwards": steps, **more}
    return Case(name, args, steps=steps, **numbers)


CASES = {
    "textbook": plain("textbook", steps=36),
    "no loader": plain("no_loader", steps=30),
    "several loaders": plain("several_loaders", steps=36),
    "accumulation": Case("accumulation", steps=24, updates=24, backwards=80, period=3),
    "GAN": Case("gan", steps=25, updates=50, backwards=75),
    "actor-critic": Case("actor_critic", steps=25, updates=50, backwards=25),
    "PPO": plain("ppo", steps=32),
    "DQN": plain("dqn", steps=32),
    "GRPO": plain("grpo", steps=24),
    "fed by a process": plain("fed", steps=24),
    "scaler with SGD": plain("scaler", "--optimizer", "sgd", steps=40, skipped=4),
    "scaler with fused AdamW": plain("scaler", "--optimizer", "fused_adamw", steps=40, skipped=4),
    "pieces": plain("pieces", steps=25),
    "compiled model": plain("compiled_model", steps=30),
    "compiled function": plain("compiled_function", steps=30),
    "two ranks": plain("ddp", steps=30, nproc=2),
    "slow rank": plain("ddp", "--slow-rank", "1", steps=30, nproc=2),
    "slow fetch": plain("slow_fetch", steps=40),
    "slow fetch in workers": plain("slow_fetch", "--num-workers", "2", steps=40),
    "slow collate": plain("slow_collate", steps=40),
    "worker start-up": plain("worker_startup", steps=36),
    "checkpointing": plain("checkpointing", steps=30),
    "closure": plain("closure", steps=25),
    "teacher": plain("teacher", steps=25),
    "healthy": plain("healthy", steps=30),
}

# Specimen, phase, planted time a step [s].
PLANTED = [
    ("textbook", "forward", 0.010),
    ("textbook", "backward", 0.020),
    ("no loader", "forward", 0.020),
    ("no loader", "loss", 0.005),
    ("no loader", "other", 0.010),
    ("several loaders", "input_wait", 0.018),
    ("several loaders", "fetch", 0.018),
    ("accumulation", "gradient_processing", 0.010),
    ("GAN", "forward", 0.015),
    ("actor-critic", "other", 0.020),
    ("DQN", "rollout", 0.014),
    ("scaler with SGD", "gradient_processing", 0.010),
    ("scaler with fused AdamW", "gradient_processing", 0.010),
    ("pieces", "forward", 0.020),
    ("pieces", "loss", 0.010),
    ("compiled model", "forward", 0.010),
    ("compiled function", "forward_and_loss", 0.010),
    ("two ranks", "forward", 0.010),
    ("slow fetch", "fetch", 0.040),
    ("slow fetch", "input_wait", 0.040),
    ("slow collate", "collate", 0.030),
    ("slow collate", "input_wait", 0.030),
    ("worker start-up", "forward", 0.020),
    ("checkpointing", "forward", 0.010),
    ("closure", "forward", 0.010),
    ("closure", "backward", 0.010),
    ("teacher", "forward", 0.030),
    ("healthy", "forward", 0.010),
    ("healthy", "backward", 0.020),
    ("healthy", "other", 0.008),
]

# What has tests of its own, since it differs from step to step or from rank to rank.
PLANTED_ELSEWHERE = {
    "accumulation": {"forward"},
    "slow fetch in workers": {"input_wait"},
    "slow rank": {"forward", "communication"},
    "two ranks": {"communication"},
    "PPO": {"rollout"},
    "GRPO": {"rollout", "forward"},
    "fed by a process": {"process_wait"},
}


@pytest.fixture(params=in_turn(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    """Every specimen whose steps can be known beforehand."""
    return CASES[request.param]


def is_contended(run: SpecimenRun) -> bool:
    """True if other programs disturbed the run, as they do where tests share a machine."""
    return any(f["severity"] != "info" for f in run.findings("CONTENDED"))


def assert_takes(planted_s: float, found_s: float) -> None:
    assert planted_s <= found_s <= TOO_LONG * planted_s


def assert_counts(data: dict[str, Any], case: Case) -> None:
    """What was counted is what the script did, exactly."""
    assert data["num_steps"] == case.steps
    assert data["num_optimizer_updates"] == case.updates
    assert data["num_backwards"] == case.backwards
    assert data["num_skipped_updates"] == case.skipped
    assert data["period"] == case.period


# -- counts and sums


def test_steps_updates_backwards_and_skips_are_counted_exactly(
    run_specimen: RunSpecimen, case: Case
) -> None:
    data = case.run(run_specimen).data

    assert_counts(data, case)
    assert data["num_ranks"] == (case.nproc or 1)


def test_the_fractions_of_the_phases_sum_to_one(run_specimen: RunSpecimen, case: Case) -> None:
    data = case.run(run_specimen).data

    for holder in (data, *data["ranks"]):
        phases = [holder["phases"][name] for name in PHASES]
        total = sum(phase["fraction"] for phase in phases if phase is not None)
        assert total == pytest.approx(1, abs=1e-6)


def test_nothing_of_ours_failed(run_specimen: RunSpecimen, case: Case) -> None:
    run = case.run(run_specimen)

    assert run.data["notes"] == []
    assert all(rank["ended_cleanly"] for rank in run.data["ranks"])


def test_each_step_lasts_from_the_update_before_it_to_its_own(
    run_specimen: RunSpecimen, case: Case
) -> None:
    steps = case.run(run_specimen).steps()

    for before, step in pairwise(steps):
        whole_s = step.step_time_s + sum(step.spans_s.values())
        assert whole_s == pytest.approx(step.end_s - before.end_s, abs=1e-6)


@pytest.mark.parametrize(("name", "phase", "planted_s"), in_turn(PLANTED))
def test_a_planted_time_is_found_in_its_phase(
    run_specimen: RunSpecimen, name: str, phase: str, planted_s: float
) -> None:
    run = CASES[name].run(run_specimen)

    assert_takes(planted_s, run.median_s(phase))


@pytest.mark.parametrize("name", in_turn(CASES))
def test_a_phase_in_which_nothing_is_planted_is_short(run_specimen: RunSpecimen, name: str) -> None:
    run = CASES[name].run(run_specimen)
    planted = {phase for specimen, phase, _ in PLANTED if specimen == name}
    planted |= PLANTED_ELSEWHERE.get(name, set())

    for phase in set(PHASES) - planted:
        if run.data["phases"][phase] is not None:
            assert run.median_s(phase) < SHORT_S


# -- loop shapes


@rotates("textbook")
def test_an_evaluation_after_an_epoch_is_kept_apart(run_specimen: RunSpecimen) -> None:
    run = CASES["textbook"].run(run_specimen)
    steps = run.steps()
    touched = [step.index for step in steps if step.spans_s["evaluation"] > 0]

    assert touched == [12, 24]  # the third one follows the last update
    assert all(steps[i].spans_s["evaluation"] >= 0.080 for i in touched)
    assert min(steps[i].step_time_s for i in touched) < 0.080
    assert run.data["spans"]["evaluation"]["total_s"] >= 2 * 0.080


@rotates("several loaders")
def test_what_an_evaluation_loads_is_not_input_wait(run_specimen: RunSpecimen) -> None:
    run = CASES["several loaders"].run(run_specimen)
    steps = run.steps()

    assert [step.count("batches") for step in steps] == [2] * len(steps)
    assert [step.index for step in steps if step.spans_s["evaluation"] > 0] == [12, 24]
    assert all(steps[i].spans_s["evaluation"] >= 0.080 for i in (12, 24))
    assert min(steps[i].step_time_s for i in (12, 24)) < 0.080


@rotates("no loader")
def test_without_a_loader_nothing_is_known_of_input_wait(run_specimen: RunSpecimen) -> None:
    run = CASES["no loader"].run(run_specimen)

    assert run.data["phases"]["input_wait"] is None
    assert run.data["phases_missing"]["input_wait"] == "no_loader_seen"


@rotates("accumulation")
def test_micro_batches_are_one_step_and_the_last_may_have_fewer(run_specimen: RunSpecimen) -> None:
    steps = CASES["accumulation"].run(run_specimen).steps()

    assert [step.count("backwards") for step in steps] == [4, 4, 2] * 8
    for step in steps:
        assert step.wall_s["forward"] >= 0.005 * step.count("backwards")


@rotates("GAN")
def test_each_round_of_two_optimizers_has_one_update_of_each(run_specimen: RunSpecimen) -> None:
    for name in ("GAN", "actor-critic"):
        steps = CASES[name].run(run_specimen).steps()

        assert {step.optimizers for step in steps} == {(0, 1)}


@rotates("actor-critic")
def test_rollouts_without_gradients_are_no_evaluation(run_specimen: RunSpecimen) -> None:
    run = CASES["actor-critic"].run(run_specimen)

    assert run.data["spans"]["evaluation"] is None
    assert run.fraction("rollout") in (None, 0.0)  # no library's environment is stepped


@pytest.mark.parametrize(
    ("name", "every", "planted_s"),
    in_turn([("PPO", 4, 0.036), ("DQN", 1, 0.014), ("GRPO", 2, 0.018)]),
)
def test_a_rollout_is_a_phase_of_the_update_that_follows_it(
    run_specimen: RunSpecimen, name: str, every: int, planted_s: float
) -> None:
    steps = CASES[name].run(run_specimen).steps()[1:]  # before the first, nothing has trained

    with_one = [step for step in steps if step.wall_s["rollout"] > 0]
    assert [step.index % every for step in with_one] == [0] * len(with_one)
    assert len(with_one) == len(steps[every - 1 :: every])
    assert all(step.wall_s["rollout"] >= planted_s for step in with_one)


@pytest.mark.parametrize("name", in_turn(["PPO", "DQN", "GRPO"]))
def test_at_most_a_tenth_of_a_loop_with_rollouts_is_unattributed(
    run_specimen: RunSpecimen, name: str
) -> None:
    run = CASES[name].run(run_specimen)

    assert run.fraction("other") <= 0.10
    assert run.data["spans"]["evaluation"] is None
    found = [one["cause"] for one in run.data["diagnosis"]["findings"]]
    assert "rollout" in found
    assert "unattributed_time" not in found


@pytest.mark.parametrize("name", in_turn(["PPO", "DQN"]))
def test_a_rollout_is_where_environments_are_stepped(run_specimen: RunSpecimen, name: str) -> None:
    run, script = CASES[name].run(run_specimen), SPECIMENS / f"{CASES[name].name}.py"
    lines = script.read_text().splitlines()
    line = next(
        n for n, text in enumerate(lines, start=1) if "= environment" in text and ".step(" in text
    )
    (found,) = (one for one in run.findings() if one["cause"] == "rollout")

    assert found["where"].endswith(f"{script.name}:{line}")


@rotates("GRPO")
def test_the_target_and_the_reference_stay_in_the_forward(run_specimen: RunSpecimen) -> None:
    steps = CASES["GRPO"].run(run_specimen).steps()[1:]

    # A model's call sleeps: the update's own, the reference's and the old policy's.
    assert all(step.wall_s["forward"] >= 0.001 for step in steps)
    assert median(step.wall_s["forward"] for step in steps[1::2]) >= 0.002


@rotates("fed by a process")
def test_a_step_that_is_fed_by_another_process_waits_for_it(run_specimen: RunSpecimen) -> None:
    run = CASES["fed by a process"].run(run_specimen)
    (awaited,) = run.data["ranks"][0]["awaited"]
    (found,) = (one for one in run.findings() if one["cause"] == "process_wait")

    assert run.fraction("process_wait") >= 0.5
    assert run.fraction("other") <= 0.10
    assert awaited["name"] == "feeder"
    assert awaited["total_s"] >= 0.3
    assert f"process {awaited['pid']} feeder" in found["names"]["process"]


@needs_torch
@pytest.mark.parametrize("name", in_turn(["PPO", "DQN", "GRPO", "fed by a process"]))
def test_loops_that_make_their_own_data_print_the_same_with_and_without_us(
    tmp_path: Path, name: str
) -> None:
    script = SPECIMENS / f"{CASES[name].name}.py"
    bare, observed = run_both_forked(tmp_path, "python", script)

    assert (bare.exit_code, bare.stdout) == (observed.exit_code, observed.stdout)
    assert bare.stdout.count(b"loss")


@rotates("scaler with SGD")
def test_the_skipped_steps_are_those_that_overflowed(run_specimen: RunSpecimen) -> None:
    for name in ("scaler with SGD", "scaler with fused AdamW"):
        steps = CASES[name].run(run_specimen).steps()

        assert [step.index for step in steps if step.num_skipped] == [5, 15, 25, 35]


@pytest.mark.parametrize("name", in_turn(["compiled model", "compiled function"]))
def test_compiling_is_kept_apart(run_specimen: RunSpecimen, name: str) -> None:
    run = CASES[name].run(run_specimen)
    first, *others = run.steps()

    assert first.spans_s["compile"] > 0.1
    assert run.data["spans"]["compile"]["total_s"] >= first.spans_s["compile"]
    assert median(step.spans_s["compile"] for step in others) == 0


@rotates("compiled model")
def test_a_compiled_model_still_has_its_forward(run_specimen: RunSpecimen) -> None:
    run = CASES["compiled model"].run(run_specimen)

    assert run.data["phases"]["forward_and_loss"] is None
    assert run.data["phases_missing"]["forward_and_loss"] == "not_compiled_together"


@rotates("compiled function")
def test_a_compiled_function_has_forward_and_loss_together(run_specimen: RunSpecimen) -> None:
    run = CASES["compiled function"].run(run_specimen)

    assert run.data["phases"]["forward"] is None
    assert run.data["phases"]["loss"] is None
    assert run.data["phases_missing"]["forward"] == "inside_forward_and_loss"


@rotates("closure")
def test_forward_and_backward_inside_a_closure_are_not_the_optimizers(
    run_specimen: RunSpecimen,
) -> None:
    run = CASES["closure"].run(run_specimen)

    assert run.median_s("optimizer") < SHORT_S
    assert all(step.wall_s["backward"] >= 0.010 for step in run.steps())


@rotates("teacher")
def test_a_teacher_inside_the_step_is_no_evaluation(run_specimen: RunSpecimen) -> None:
    steps = CASES["teacher"].run(run_specimen).steps()

    # In the first step nothing has been trained yet: nobody can know that it is a teacher.
    assert [step.index for step in steps if step.spans_s["evaluation"] > 0] in ([], [0])


@rotates("checkpointing")
def test_writing_checkpoints_is_kept_apart(run_specimen: RunSpecimen) -> None:
    run = CASES["checkpointing"].run(run_specimen)
    steps = run.steps()
    touched = [step.index for step in steps if step.spans_s["checkpoint"] > 0]

    assert touched == [5, 10, 15, 20, 25]  # the last one follows the last update
    assert all(steps[i].spans_s["checkpoint"] >= 0.050 for i in touched)
    assert min(steps[i].step_time_s for i in touched) < 0.050


@rotates("slow fetch in workers")
def test_starting_workers_is_kept_apart(run_specimen: RunSpecimen) -> None:
    run = CASES["slow fetch in workers"].run(run_specimen)
    steps = run.steps()

    assert [step.index for step in steps if step.spans_s["epoch_start"] > 0] == [0]
    assert steps[0].spans_s["epoch_start"] >= 0.040  # the first batch is part of it


@rotates("worker start-up")
def test_stopping_workers_at_the_end_of_an_epoch_is_kept_apart_too(
    run_specimen: RunSpecimen,
) -> None:
    run = CASES["worker start-up"].run(run_specimen)
    first, *others = [step for step in run.steps() if step.spans_s["epoch_start"] > 0]

    assert [step.index for step in (first, *others)] == [0, 6, 12, 18, 24, 30]
    assert first.spans_s["epoch_start"] >= 0.150
    assert all(step.spans_s["epoch_start"] >= 0.150 + 0.050 for step in others)


@rotates("two ranks")
def test_each_of_two_ranks_is_counted(run_specimen: RunSpecimen) -> None:
    run = CASES["two ranks"].run(run_specimen)

    assert [rank["rank"] for rank in run.data["ranks"]] == [0, 1]
    assert [rank["world_size"] for rank in run.data["ranks"]] == [2, 2]
    assert [rank["num_steps"] for rank in run.data["ranks"]] == [30, 30]
    # DDP tells of an exchange with the next call of the model.
    assert [rank["num_exchanges"] for rank in run.data["ranks"]] == [29, 29]
    assert run.median_s("communication") > 0


# -- ailments


@pytest.mark.parametrize(
    ("name", "cause"),
    in_turn(
        [
            ("slow fetch", "fetch"),
            ("several loaders", "fetch"),
            ("slow collate", "collate"),
            ("slow fetch in workers", "worker_fetch"),
        ]
    ),
)
def test_a_slow_input_is_input_bound_with_its_cause(
    run_specimen: RunSpecimen, name: str, cause: str
) -> None:
    run = CASES[name].run(run_specimen)

    assert run.data["diagnosis"]["kind"] == "INPUT_BOUND"
    (finding,) = run.findings(*PHASE_KINDS)
    assert (finding["cause"], finding["severity"]) == (cause, "critical")
    assert finding["headroom_speedup"] > 1.5


@rotates("slow fetch in workers")
def test_slow_workers_report_what_a_batch_takes_them(run_specimen: RunSpecimen) -> None:
    run = CASES["slow fetch in workers"].run(run_specimen)

    assert run.data["workers"]["num_workers"] == 2
    assert run.data["workers"]["num_batches"] == 40
    assert run.data["workers"]["num_threads"] == 1
    assert_takes(0.040, run.data["workers"]["fetch_s_per_batch"])
    # Two workers load at once, so batches come in pairs: half of the steps wait.
    waits_s = [step.wall_s["input_wait"] for step in run.steps()[1:]]
    assert 0.015 <= mean(waits_s) <= TOO_LONG * 0.020


@rotates("slow rank")
def test_a_slow_rank_is_a_straggler_in_its_forward(run_specimen: RunSpecimen) -> None:
    run = CASES["slow rank"].run(run_specimen)

    assert run.data["diagnosis"]["kind"] == "STRAGGLER"
    (finding,) = run.findings("STRAGGLER")
    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    assert finding["cause"] == "forward"
    assert evidence["late_rank"] == 1
    # Rank 1 sleeps for 40 ms a step: rank 0 waits for as much of it as its own work leaves.
    own_s = sum(run.median_s(phase, rank=0) for phase in ("forward", "backward", "optimizer"))
    assert own_s + run.median_s("communication", rank=0) >= 0.040
    assert run.median_s("communication", rank=0) <= TOO_LONG * 0.030
    assert run.median_s("communication", rank=1) < 0.015


@pytest.mark.slow("a neighbor is looked at for seconds")
@pytest.mark.serial
def test_a_busy_neighbor_is_found(run_specimen: RunSpecimen) -> None:
    run = run_specimen("busy_neighbor", is_forked=False)

    assert f"steps {run.data['num_steps']}\n" in run.stdout
    (finding,) = run.findings("CONTENDED")
    assert finding["cause"] == "neighbor"
    assert finding["severity"] in ("warning", "critical")  # by what the steps lost
    assert run.data["host"]["others_cores"] > 0.5 * run.data["host"]["num_cores"]
    assert run.findings(*PHASE_KINDS) == []
    assert run.data["diagnosis"]["kind"] == "CONTENDED"


@pytest.mark.slow("neighbors keep every core busy from the start to the end")
@pytest.mark.serial
def test_slow_loading_is_found_beside_busy_neighbors(run_specimen: RunSpecimen) -> None:
    neighbors = start_neighbors()
    try:
        run = run_specimen("slow_fetch", is_forked=False)
    finally:
        for pid in neighbors:
            os.kill(pid, signal.SIGKILL)

    # It sleeps most of the time: what it loses to them differs between kernels.
    assert run.findings("CONTENDED")
    (finding,) = run.findings("INPUT_BOUND")
    assert (finding["cause"], finding["severity"]) == ("fetch", "critical")
    assert finding["held_by"] == ("cpu_time" if is_contended(run) else None)
    assert run.data["diagnosis"]["kind"] == "INPUT_BOUND"


@rotates("healthy")
def test_a_healthy_loop_is_balanced(run_specimen: RunSpecimen) -> None:
    run = CASES["healthy"].run(run_specimen)

    assert 0.6 <= run.fraction(*COMPUTE) <= 0.85
    assert run.fraction("input_wait") < 0.08
    assert run.findings(*PHASE_KINDS) == []
    assert run.diagnose_alone().kind == "BALANCED"
    assert run.data["diagnosis"]["kind"] == ("CONTENDED" if is_contended(run) else "BALANCED")


@pytest.mark.serial  # beside other tests its steps can scatter too much for a verdict
@rotates("pieces")
def test_a_loop_that_computes_all_the_time_is_compute_bound(run_specimen: RunSpecimen) -> None:
    run = CASES["pieces"].run(run_specimen)

    assert [finding["cause"] for finding in run.findings("COMPUTE_BOUND")] == [None]
    assert run.diagnose_alone().kind == "COMPUTE_BOUND"


@rotates("DQN")
def test_gradients_that_nobody_uses_are_found(run_specimen: RunSpecimen) -> None:
    run = CASES["DQN"].run(run_specimen)

    (found,) = [one for one in run.diagnose_alone().findings if one.cause == "unused_graphs"]
    numbers = {one.name: one.value for one in found.evidence}
    assert numbers["num_nodes"] - numbers["num_unused_nodes"] == 8  # of one forward and its loss


@pytest.mark.parametrize(
    ("specimen", "cause", "share", "line"),
    in_turn(
        [
            ("input_dropout", "random_numbers", 0.4, "self.drop(x)"),
            ("heavy_optimizer", "optimizer", 0.4, "optimizer.step()"),
        ]
    ),
)
def test_a_part_of_the_arithmetic_that_takes_the_step_is_named_with_its_line(
    run_specimen: RunSpecimen, specimen: str, cause: str, share: float, line: str
) -> None:
    run = run_specimen(specimen, is_forked=False)

    (finding,) = run.findings("COMPUTE_BOUND")
    assert finding["cause"] == cause
    assert {e["name"]: e["value"] for e in finding["evidence"]}[cause] > share
    lines = (SPECIMENS / f"{specimen}.py").read_text().splitlines()
    place, _, number = finding["where"].rpartition(":")
    assert place.endswith(f"{specimen}.py")
    assert line in lines[int(number) - 1]


@rotates("zero_input")
def test_an_input_of_zeros_is_found_with_its_module_and_a_dense_one_is_not(
    run_specimen: RunSpecimen,
) -> None:
    run = run_specimen("zero_input")
    seen = run.data["operators"]["zero_input"]
    (found,) = [one for one in run.diagnose_alone().findings if one.cause == "zero_input"]
    lines = (SPECIMENS / "zero_input.py").read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.endswith("# ailment"))

    assert (seen["rows"], seen["columns"], seen["module"]) == (512, 2048, "Sequential.0")
    assert 0.98 < seen["zero_fraction"] < 1
    assert (found.where or "").endswith(f"zero_input.py:{line}")
    assert (found.headroom_speedup or 0) > 1.5
    assert run_specimen("zero_input", "--dense").data["operators"]["zero_input"] is None
