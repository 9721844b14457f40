"""Whole runs of a small convnet with levers, judged as a study judges them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from end_to_end.harness import SPECIMENS, needs_torch, start_bare
from end_to_end.quality_runs import Baselines, Put, Script, record, shipped, wrong
from rotation import rotates
from steptime.verify.protocol import plan_runs
from steptime.verify.recordings import is_complete
from steptime.verify.values import Outcome, Verdict

pytestmark = [needs_torch, rotates(rooms=("verify",))]

CONVNET = Script(name="small_convnet", args=("--steps", "21", "--eval-every", "5"))
WRITER = Script(name="small_writer", args=("--steps", "21", "--eval-every", "5"))
WORDS = Script(name="zero_input", args=("--steps", "21"))
TWO_RANKS = Script(name="small_convnet", args=("--steps", "21", "--ranks"), nproc=2)

WRONG = {
    "dropped_gradient": "one_step",
    "halved_learning_rate": "learning_rates",
    "skipped_batches": "batches",
    "dropout_off": "one_step",
    "shifted_labels": "one_step",
    "half_batch": "samples",
    "stale_weights": "lockstep",
    "bf16_weights": "tensors",
    "wrong_loss_scale": "one_step_gradient",
    "frozen_norms": "statistics",
    "skipped_evaluation": "evaluations",
    "stale_cache": "lockstep",
    "silently_eager": "graphs",
    "halved_update": "one_step",
    "seldom_updates": "moves",
}
"""The planted wrong levers, and what gives each away; one more needs two ranks."""

WRONGLY_FUSED = {"later_words": "one_step", "other_gelu": "one_step", "first_samples": "batches"}
"""Wrong twins of levers that replace what the small GPT writes out."""


@pytest.fixture(scope="session")
def convnet(tmp_path_factory: pytest.TempPathFactory) -> Baselines:
    """The baseline's runs of the convnet, shared by all candidates."""
    return Baselines(tmp_path_factory.mktemp("convnet"), CONVNET, is_forked=True)


def failed(verdict: Verdict) -> dict[str, str | None]:
    return {c.name: c.detail for c in verdict.checks if c.outcome is Outcome.FAIL}


def test_every_planted_lever_is_judged() -> None:
    files = {path.stem for path in (SPECIMENS / "wrong_levers").glob("*.py")}

    others = {"larger_words", "noop", "rounded_weights", "unsynchronized"}
    assert files == {*WRONG, *WRONGLY_FUSED, *others}


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_wrong_lever_is_refused(convnet: Baselines, name: str) -> None:
    verdict = convnet.judge(wrong(name))

    assert verdict.outcome is Outcome.FAIL
    assert WRONG[name] in failed(verdict)


@pytest.mark.slow("a script of its own is trained eight times")
def test_wrong_twins_of_levers_that_replace_what_is_written_out_are_refused(
    tmp_path: Path,
) -> None:
    writer = Baselines(tmp_path, WRITER, is_forked=True)

    for name, check in WRONGLY_FUSED.items():
        assert check in failed(writer.judge(wrong(name))), name
    right = writer.judge(shipped("fused_attention"), shipped("fused_gelu"))
    assert right.outcome is Outcome.PASS, failed(right)


def test_a_sparse_product_that_leaves_out_small_numbers_is_refused(tmp_path: Path) -> None:
    words = Baselines(tmp_path, WORDS, is_forked=True)

    wrongly, right = words.judge(wrong("larger_words")), words.judge(shipped("sparse_input"))

    assert "one_step" in failed(wrongly)
    assert right.outcome is Outcome.PASS, failed(right)


def test_a_lever_that_does_nothing_passes_bit_for_bit(convnet: Baselines) -> None:
    verdict = convnet.judge(wrong("noop"), preserves="EXACT")

    assert (verdict.outcome, verdict.level) == (Outcome.PASS, "L0"), failed(verdict)


def test_a_lever_that_rounds_otherwise_is_not_exact(convnet: Baselines) -> None:
    verdict = convnet.judge(shipped("autocast", dtype="bf16"), preserves="EXACT")

    assert failed(verdict) == {"replay": "another loss in update 0"}


@pytest.mark.parametrize(
    "put",
    [
        wrong("noop"),
        shipped("autocast", roundoff=2.0**-8, dtype="bf16"),
        shipped("matmul_precision", roundoff=2.0**-8, precision="medium"),
        shipped("fused_optimizer", implementation="fused"),
        shipped("channels_last"),
    ],
    ids=lambda put: put.name,
)
def test_a_right_lever_passes_one_step_and_lockstep(convnet: Baselines, put: Put) -> None:
    verdict = convnet.judge(put)

    assert (verdict.outcome, verdict.level) == (Outcome.PASS, "L2"), failed(verdict)


def test_other_draws_are_no_failure_where_the_lever_may_draw_otherwise(
    convnet: Baselines,
) -> None:
    verdict = convnet.judge(wrong("noop"), preserves="STATISTICAL")

    assert verdict.outcome is Outcome.PASS, failed(verdict)


def test_a_recorded_run_prints_what_it_prints_without(tmp_path: Path) -> None:
    script = Script(name="small_convnet", args=("--steps", "12", "--seed", "5"))
    bare = start_bare(tmp_path / "bare", *script.command).finish()
    quality = {"num_updates": 20, "seed": None, "is_deterministic": False}

    recording = record(tmp_path / "run", script, quality, is_forked=True)

    assert b"loss " in bare.stdout
    assert (tmp_path / "run" / "output-0").read_bytes() == bare.stdout
    assert recording.num_updates == 12


# -- padding


def padded(tmp_path: Path, *args: str) -> Baselines:
    script = Script(name="padded_texts", args=("--steps", "21", *args))
    return Baselines(tmp_path, script, num_repeats=1, is_forked=True)


TRIM = shipped("trim_padding", multiple_of=1)
GROUP = shipped("length_grouping", window=16, trims=True)


def test_trimming_of_masked_padding_passes_one_step_and_lockstep(tmp_path: Path) -> None:
    verdict = padded(tmp_path).judge(TRIM)

    assert (verdict.outcome, verdict.level) == (Outcome.PASS, "L2"), failed(verdict)


def test_trimming_of_padding_that_the_model_counts_is_refused(tmp_path: Path) -> None:
    verdict = padded(tmp_path, "--unmasked").judge(TRIM)

    assert "one_step" in failed(verdict)


@pytest.mark.parametrize("put", [TRIM, GROUP], ids=lambda put: put.name)
def test_with_dropout_shorter_batches_are_judged_as_other_draws(tmp_path: Path, put: Put) -> None:
    verdict = padded(tmp_path, "--dropout", "0.1").judge(put, preserves="STATISTICAL")

    assert verdict.outcome is Outcome.PASS, failed(verdict)


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Baselines:
    return Baselines(tmp_path_factory.mktemp("ranks"), TWO_RANKS, num_repeats=1, is_forked=True)


def test_ranks_that_keep_their_gradients_are_refused(two_ranks: Baselines) -> None:
    verdict = two_ranks.judge(wrong("unsynchronized"))

    assert re.match("other weights on ranks", failed(verdict)["ranks_agree"] or "")


def test_two_ranks_have_a_twin_in_float64(two_ranks: Baselines) -> None:
    verdict = two_ranks.judge(shipped("fused_optimizer", implementation="fused"))

    assert verdict.outcome is Outcome.PASS, failed(verdict)
    assert "float32" not in str([check.detail for check in verdict.checks])


@pytest.mark.slow("torchrun and two ranks import torch")
def test_ranks_of_torchrun_are_recorded_each(tmp_path: Path) -> None:
    (request, *_) = plan_runs("EXACT", roundoff=2.0**-24, num_updates=20)

    recording = record(tmp_path / "run", TWO_RANKS, request.quality)

    assert [rank.head.rank for rank in recording.ranks] == [0, 1]
    assert [rank.head.world_size for rank in recording.ranks] == [2, 2]
    first, second = (rank.updates for rank in recording.ranks)
    assert [u.weights for u in first] == [u.weights for u in second]
    assert [u.inputs for u in first] != [u.inputs for u in second]
    assert is_complete(tmp_path / "run")
