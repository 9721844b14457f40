"""Whole runs of a small convnet with levers, judged as a study judges them."""

from __future__ import annotations

import pytest

from end_to_end.harness import needs_torch
from end_to_end.quality_runs import Baselines, Script, shipped
from steptime.core.study import Outcome, Verdict

pytestmark = needs_torch

CONVNET = Script(name="small_convnet", args=("--steps", "22", "--eval-every", "5"))


@pytest.fixture(scope="module")
def convnet(tmp_path_factory: pytest.TempPathFactory) -> Baselines:
    """The baseline's runs of the convnet, shared by all candidates."""
    return Baselines(tmp_path_factory.mktemp("convnet"), CONVNET, num_updates=20, num_repeats=2)


def failed(verdict: Verdict) -> dict[str, str | None]:
    return {c.name: c.detail for c in verdict.checks if c.outcome is Outcome.FAIL}


def test_the_same_run_again_passes_bit_for_bit(convnet: Baselines) -> None:
    verdict = convnet.judge(preserves="EXACT")

    assert verdict.outcome is Outcome.PASS, failed(verdict)
    assert verdict.level == "L0"


def test_a_lever_that_rounds_otherwise_is_not_exact(convnet: Baselines) -> None:
    verdict = convnet.judge(shipped("autocast", dtype="bf16"), preserves="EXACT")

    assert failed(verdict) == {"replay": "another loss in update 0"}


def test_autocast_passes_one_step_and_lockstep(convnet: Baselines) -> None:
    verdict = convnet.judge(shipped("autocast", roundoff=2.0**-8, dtype="bf16"))

    assert verdict.outcome is Outcome.PASS, failed(verdict)
    assert verdict.level == "L2"
