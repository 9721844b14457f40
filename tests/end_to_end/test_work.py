"""The work of steps that differ, against closed forms: the mean over the window, and each kind.

Each script of tests/specimens/work writes the work of each of its updates by closed form.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from end_to_end.contained import require
from end_to_end.harness import (
    LIMIT_S,
    SPECIMENS,
    environment,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
)
from steptime.isolate.tiers import Tier

pytestmark = [needs_torch, needs_linux]

WORK = SPECIMENS / "work"
PEAKS = Path(__file__).parents[2] / "benchmarks" / "fit" / "peak_of_a_run.py"
DISTURBED = 2


@dataclass(frozen=True)
class Counted:
    """What a run said of its work, and what is true of the steps of its window."""

    data: Mapping[str, Any]
    report: str
    true: tuple[int, ...]

    @property
    def basis(self) -> Mapping[str, Any]:
        return self.data["count"]["basis"]

    @property
    def said(self) -> str:
        """The report in one line."""
        return " ".join(self.report.replace("\N{NO-BREAK SPACE}", " ").split())

    @property
    def mean(self) -> float:
        return sum(self.true) / len(self.true)

    def is_exact(self) -> bool:
        """Whether the reported mean is the true one, rounded pass by pass."""
        return abs(self.data["work"]["total"] - self.mean) <= 1.5


def run(
    folder: Path, name: str, *words: str, options: Sequence[str] = (), **variables: str
) -> Counted:
    script = WORK / f"{name}.py"
    done = run_forked(folder, "python", script, *words, options=options, **variables)
    assert done.exit_code == 0, done.stderr.decode()[-2000:]
    assert "guest_failures" not in done.notes
    work = json.loads((folder / "work.json").read_text())
    return Counted(done.data, done.stderr.decode(), window_of(folder, done.data, work))


def window_of(folder: Path, data: Mapping[str, Any], work: Sequence[int]) -> tuple[int, ...]:
    """The true work of the steps in the window, by the rows that the guest wrote."""
    made = [row for row in update_rows(folder) if row[2] >= 0]
    assert len(made) == len(work)
    begins, stepped = [], set()
    for at, row in enumerate(made):
        if not begins or row[2] in stepped:
            begins.append(at)
            stepped = set()
        stepped.add(row[2])
    ends = [*begins[1:], len(made)]
    sums = [0, *accumulate(work)]
    return tuple(
        sums[end] - sums[begin]
        for step, (begin, end) in enumerate(zip(begins, ends, strict=True))
        if step >= data["steady"]["first_step"]
        and all(row[6] != DISTURBED for row in made[begin:end])
    )


def update_rows(folder: Path) -> list[list[int]]:
    """The rows of updates that the guest wrote."""
    written = rows(run_folder(folder) / "rank-0.jsonl")
    return [row for line in written if line["k"] == "u" for row in line["rows"]]


# -- in the run itself


@pytest.mark.parametrize(
    ("name", "terms"),
    [("varying_batch", ["elements"]), ("varying_sequences", ["elements", "squares"])],
)
def test_work_is_computed_from_sizes_that_vary(tmp_path: Path, name: str, terms: list[str]) -> None:
    found = run(tmp_path, name)

    assert found.is_exact()
    assert (found.basis["how"], found.basis["scaled_by"]) == ("scaled", terms)
    assert found.basis["error_fraction"] == pytest.approx(0, abs=1e-9)
    assert found.basis["low_flops"] == min(found.true)
    assert found.basis["high_flops"] == max(found.true)
    assert found.data["mfu"]["flops_per_s"] == pytest.approx(
        found.data["work"]["total"] * len(found.true) / found.basis["window_s"]
    )


@pytest.mark.parametrize("name", ["irregular_accumulation", "lbfgs_closures"])
def test_steps_that_differ_in_no_order_are_added_up(tmp_path: Path, name: str) -> None:
    found = run(tmp_path, name)

    assert found.is_exact()
    assert found.basis["low_flops"] == min(found.true)
    assert found.basis["high_flops"] == max(found.true)
    assert sum(one["num_steps"] for one in found.basis["sizes"]) == len(found.true)
    assert sum(one["num_steps"] * one["mean_flops"] for one in found.basis["sizes"]) == sum(
        found.true
    )


def test_a_larger_batch_late_in_a_run_is_counted_too(tmp_path: Path) -> None:
    # It comes while the watch would rest.
    found = run(tmp_path, "batch_jumps", "2100", STEPTIME_WATCH="all")

    assert found.is_exact()
    assert found.basis["low_flops"] == min(found.true)
    assert found.basis["high_flops"] == max(found.true)


def test_work_that_goes_by_no_size_has_a_range_and_no_rate(tmp_path: Path) -> None:
    found = run(tmp_path, "fixed_point")

    assert found.basis["how"] == "range"
    assert found.basis["num_counted"] > 2
    assert found.basis["low_flops"] <= found.mean <= found.basis["high_flops"]
    assert found.data["mfu"]["flops_per_s"] is None
    assert "count more of them in a contained extra run: steptime run --count" in found.said


def test_the_peak_of_a_run_is_that_of_its_longest_sequence(tmp_path: Path) -> None:
    found = run(tmp_path, "random_lengths")

    peak = found.data["memory"]["run_peak"]
    work = json.loads((tmp_path / "work.json").read_text())
    first = found.data["steady"]["first_step"]
    assert peak["step"] == max(range(first, len(work)), key=lambda step: work[step])
    assert peak["how"] in ("computed", "followed")
    assert (peak["error_fraction"] or 0) < 0.001
    assert peak["bytes"] > 3 * peak["low_bytes"]
    assert f"at the peak of the run, in step {peak['step']}" in found.said


@pytest.mark.slow("each allocation of a training is followed by torch's profiler")
@pytest.mark.parametrize("name", ["random_lengths", "irregular_accumulation", "batch_jumps"])
def test_the_peak_of_a_run_is_the_highest_in_the_allocators_events(
    tmp_path: Path, name: str
) -> None:
    out = tmp_path / "peaks.json"
    command = [sys.executable, str(PEAKS), "--profile", str(WORK / f"{name}.py"), str(out)]
    subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), check=True, timeout=LIMIT_S)
    peaks = json.loads(out.read_text())
    (tmp_path / "job").mkdir()
    found = run(tmp_path / "job", name)

    said = found.data["memory"]["run_peak"]["bytes"]
    assert said == pytest.approx(max(peaks[found.data["steady"]["first_step"] :]), rel=0.01)


@pytest.mark.parametrize("name", ["growing_sequences", "unfreezing"])
def test_work_is_counted_again_where_it_changes_in_the_middle(tmp_path: Path, name: str) -> None:
    found = run(tmp_path, name)

    assert found.is_exact()
    counts = {flops: found.true.count(flops) for flops in set(found.true)}
    if len(counts) == 1:  # the steps before the change were taken for warmup
        assert found.basis["how"] == "equal"
    else:
        assert found.basis["how"] == "kinds"
        assert {one["flops"]: one["num_steps"] for one in found.basis["kinds"]} == counts


def test_models_in_threads_of_the_scripts_own_are_counted(tmp_path: Path) -> None:
    found = run(tmp_path, "own_threads")

    assert found.is_exact()
    assert found.basis["how"] == "equal"
    # The thread that goes backward owns the memory: calls in others lengthen no step.
    made = update_rows(tmp_path)
    assert sum(row[6] == DISTURBED for row in made) < len(made) // 2
    written = rows(run_folder(tmp_path) / "processes.jsonl")
    *_, held = (line for line in written if line["k"] == "mem" and "step" in line)
    assert {"activations", "weights"} <= set(held["step"]["peak"]["by_part"])


def test_each_kind_of_step_is_counted_where_optimizers_take_turns(tmp_path: Path) -> None:
    found = run(tmp_path, "gan_in_turns")

    assert found.is_exact()
    assert {tuple(one["optimizers"]): one["flops"] for one in found.basis["kinds"]} == {
        (0,): min(found.true),
        (0, 1): max(found.true),
    }


def test_the_work_of_lora_is_related_to_parameters_tokens_and_a_given_peak(tmp_path: Path) -> None:
    found = run(tmp_path, "lora", options=["--peak", "fp32=0.05"])
    facts = json.loads((tmp_path / "facts.json").read_text())
    work, mfu = found.data["model_work"], found.data["mfu"]

    assert found.is_exact()
    assert {name: work[name] for name in facts} == facts
    per_token = facts["num_parameters"] * facts["tokens_per_step"]
    assert work["flops_per_parameter"] == pytest.approx(found.mean / per_token)
    assert work["by_parameters"] == pytest.approx(
        4 + 2 * facts["num_trained"] / facts["num_parameters"]
    )
    # The peak is the user's own, wherever it is used.
    assert found.data["given_peaks"] == {"fp32": 0.05e12}
    assert mfu["is_given"]
    assert mfu["fraction"] == pytest.approx(mfu["flops_per_s"] / 0.05e12)
    assert work["six_n_fraction"] == pytest.approx(
        mfu["fraction"] * 6 / work["flops_per_parameter"]
    )
    said = " ".join(found.report.split())
    assert "50.0 GFLOPS (fp32 dense, your own figure)" in said
    assert "trained · 64 tokens per step · " in said


# -- in a contained extra run

APART = {
    "gradient_penalty": "inexact",
    "contrastive": "inexact",
    "distillation": "without_gradients",
    "rollout": "without_gradients",
    "clip": "inexact",
    "wasserstein": "inexact",
    "functional_head": "outside_modules",
    "function_threads": "forward_elsewhere",
    "nested_tensors": "subclass",
}


TURNS = ("rollout", "wasserstein")
"""Their steps are of several kinds."""


@pytest.mark.parametrize("name", APART)
def test_a_run_that_must_not_count_names_the_command_that_does(tmp_path: Path, name: str) -> None:
    done = run_forked(tmp_path, "python", WORK / f"{name}.py")

    assert done.data["count_missing"] == APART[name]
    said = " ".join(done.stderr.decode().split())
    assert f"steptime run --count -- python {WORK / name}.py" in said.replace(" ", " ")


@pytest.mark.parametrize("name", [name for name in APART if name != "nested_tensors"])
@pytest.mark.slow("a child behind walls that imports torch")
def test_an_extra_run_counts_what_the_run_must_not(tmp_path: Path, name: str) -> None:
    require(Tier.ISOLATED)

    found = run(tmp_path / "job", name, options=["--count"])

    assert found.is_exact()
    assert found.basis["how"] == ("kinds" if name in TURNS else "equal")
    assert found.data["count"]["covered_fraction"] == 1.0
    assert found.data["work"]["is_complete"] is True


@pytest.mark.slow("a child behind walls that imports torch")
def test_of_nested_tensors_those_of_the_strided_layout_are_counted(tmp_path: Path) -> None:
    require(Tier.ISOLATED)

    strided = run(tmp_path / "strided", "nested_tensors", "strided", options=["--count"])
    jagged = run(tmp_path / "jagged", "nested_tensors", options=["--count"])

    assert strided.is_exact()
    assert (jagged.data["count"], jagged.data["count_missing"]) == (None, "child_subclass")
