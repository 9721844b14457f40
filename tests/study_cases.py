"""Studies that look real, for the tests of recipe, report and document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.tune.values.study_values import (
    Applied,
    Choice,
    NotTried,
    State,
    Study,
    StudyOutcome,
    Trial,
    TrialEnd,
)
from steptime.verify.values import Outcome, QualityCheck, Verdict

STUDY_ID = "20261120-101500-3fa2"


def on(name: str, **settings: str | int | float | bool) -> Applied:
    return Applied(name=name, settings=settings)


BF16, FP16 = on("autocast", dtype="bf16"), on("autocast", dtype="fp16")
FUSED, COMPILE = on("fused_optimizer", mode="fused"), on("compile", mode="default")
ONE_THREAD, TCMALLOC = on("num_threads", count=1), on("allocator", library="tcmalloc")

PASSED = Verdict(
    outcome=Outcome.PASS,
    level="L2",
    checks=(
        QualityCheck(name="batches", outcome=Outcome.PASS, n=60),
        QualityCheck(name="updates", outcome=Outcome.PASS, n=60),
        QualityCheck(
            name="one_step",
            outcome=Outcome.PASS,
            estimate=0.0021,
            limit=0.0312,
            n=41,
            detail="blocks.3.attn.weight",
        ),
        QualityCheck(name="lockstep", outcome=Outcome.PASS, estimate=0.0009, limit=0.0043, n=60),
    ),
)
WRONG = Verdict(
    outcome=Outcome.FAIL,
    level="L1",
    checks=(
        QualityCheck(
            name="one_step",
            outcome=Outcome.FAIL,
            estimate=0.31,
            limit=0.0312,
            n=41,
            detail="blocks.3.attn.weight",
        ),
    ),
)
UNSURE = Verdict(
    outcome=Outcome.INCONCLUSIVE,
    level="L1",
    checks=(
        QualityCheck(name="lockstep", outcome=Outcome.INCONCLUSIVE, detail="too few steps", n=4),
    ),
)


def speedup(estimate: float, low: float, high: float, n: int = 12) -> Interval:
    return Interval(estimate=estimate, low=low, high=high, n=n)


def trial(number: int, *state: Applied, **changes: Any) -> Trial:
    base = Trial(number=number, state=state, end=TrialEnd.FINISHED, kind="live")
    return replace(base, **changes)


OBSERVED = trial(0, kind="observe")


def make_study(**changes: Any) -> Study:
    base = Study(
        study_id=STUDY_ID,
        command=("python", "train.py", "--lr", "3e-4"),
        started_unix_s=1_795_169_700.0,
        ended_unix_s=1_795_170_252.0,
        tier="isolated",
        outcome=None,
        recipe=(),
        speedup=None,
        noise_floor=0.012,
        quality=None,
        baseline_step_s=0.1182,
        tuned_step_s=None,
        sample_unit="samples",
        samples_per_step=16.0,
        device="cpu",
        torch_version="2.13.0",
        trials=(OBSERVED,),
        not_tried=(),
        choices=(),
    )
    return replace(base, **changes)


def faster() -> Study:
    recipe: State = (BF16, FUSED)
    return make_study(
        outcome=StudyOutcome.FASTER,
        recipe=recipe,
        speedup=speedup(1.52, 1.47, 1.58, n=8),
        loop_speedup=speedup(1.31, 1.26, 1.35, n=8),
        quality=PASSED,
        tuned_step_s=0.0777,
        trials=(
            OBSERVED,
            trial(1, BF16, speedup=speedup(1.41, 1.37, 1.46)),
            trial(2, FUSED, speedup=speedup(1.08, 1.06, 1.11)),
            trial(3, BF16, FUSED, reference=(BF16,), speedup=speedup(1.07, 1.05, 1.1)),
            trial(4, *recipe, kind="quality", quality=PASSED),
            trial(5, *recipe, kind="confirm", speedup=speedup(1.52, 1.47, 1.58, n=8)),
        ),
        not_tried=(
            NotTried(
                name="dataloader",
                reason="headroom_below_noise",
                evidence=(
                    Evidence(name="headroom", value=1.004, unit="x"),
                    Evidence(name="noise_floor", value=0.012, unit="fraction"),
                ),
            ),
            NotTried(
                name="channels_last",
                reason="does_not_apply",
                text="the model has no convolution",
            ),
            NotTried(name="compile", reason="excluded"),
        ),
        choices=(
            Choice(code="noise_floor", facts={"wall": 0.012, "n": 24}),
            Choice(code="offered", lever="autocast", facts={"headroom": 9.1, "is_aimed": True}),
            Choice(
                code="alone",
                lever="autocast",
                facts={
                    "worth": "gain",
                    "speedup": 1.41,
                    "low": 1.37,
                    "high": 1.46,
                    "n": 12,
                },
            ),
            Choice(code="gremlin", lever="x", facts={"n": 3}),
        ),
    )


def nothing_helps() -> Study:
    return make_study(
        outcome=StudyOutcome.NOTHING_HELPS,
        tier="guarded",
        tier_reasons=("no_user_namespace",),
        trials=(
            OBSERVED,
            trial(1, BF16, speedup=speedup(0.71, 0.69, 0.73), reason="slower"),
            trial(2, FUSED, speedup=speedup(1.003, 0.991, 1.014), reason="no_gain"),
        ),
        not_tried=(NotTried(name="num_threads", reason="no_time"),),
    )


def too_noisy() -> Study:
    return make_study(
        outcome=StudyOutcome.TOO_NOISY,
        noise_floor=0.21,
        reason="noise_floor",
        trials=(OBSERVED, trial(1, BF16, speedup=speedup(1.2, 0.9, 1.6), reason="cannot_tell")),
    )


def interrupted() -> Study:
    return make_study(
        is_interrupted=True,
        ended_unix_s=1_795_169_860.0,
        trials=(
            OBSERVED,
            trial(1, BF16, speedup=speedup(1.41, 1.37, 1.46)),
            trial(2, FUSED, end=TrialEnd.INTERRUPTED),
        ),
    )


def failed_baseline() -> Study:
    return make_study(
        noise_floor=None,
        baseline_step_s=None,
        samples_per_step=None,
        sample_unit=None,
        device=None,
        torch_version=None,
        trials=(
            replace(
                OBSERVED,
                end=TrialEnd.FAILED,
                reason="exit_code",
                facts={"exit_code": 1, "last_line": "FileNotFoundError: data.bin"},
            ),
        ),
    )


def mixed() -> Study:
    """One of everything: refused, harmful, crashed, hung, and still something that helps."""
    return replace(
        faster(),
        tier="guarded",
        tier_reasons=("no_user_namespace", "no_overlay"),
        break_even_steps=1240,
        recipe=(BF16, COMPILE),
        quality=PASSED,
        trials=(
            OBSERVED,
            trial(1, BF16, speedup=speedup(1.41, 1.37, 1.46)),
            trial(2, FP16, speedup=speedup(0.62, 0.6, 0.65), reason="slower"),
            trial(3, FUSED, end=TrialEnd.FAILED, reason="lever_failed",
                  facts={"error": "no fused Muon"}),
            trial(4, COMPILE, speedup=speedup(1.19, 1.12, 1.24, n=9)),
            trial(
                5,
                BF16,
                COMPILE,
                reference=(BF16,),
                speedup=speedup(1.11, 1.07, 1.16),
            ),
            trial(6, ONE_THREAD, kind="process", speedup=speedup(0.81, 0.77, 0.86, n=3),
                  reason="slower"),
            trial(7, TCMALLOC, kind="process", end=TrialEnd.TIMED_OUT),
            trial(8, on("whole_batch_fetch"), end=TrialEnd.OUT_OF_MEMORY),
            trial(9, BF16, COMPILE, FUSED, kind="quality", quality=WRONG, reason="harmful"),
            trial(10, BF16, COMPILE, kind="quality", quality=PASSED),
            trial(11, BF16, COMPILE, kind="confirm", speedup=speedup(1.52, 1.47, 1.58, n=8)),
        ),
        tried_writes=("out/checkpoint.pt", "out/log.txt", "/home/me/.cache/x", "a", "b", "c"),
    )  # fmt: skip


def workers(num: int, prefetch: int) -> Applied:
    return on("dataloader", num_workers=num, persistent_workers=True, prefetch_factor=prefetch)


def many_settings() -> Study:
    """Settings of levers whose names are longer than a narrow terminal has room for."""
    return make_study(
        outcome=StudyOutcome.NOTHING_HELPS,
        trials=(
            OBSERVED,
            trial(1, workers(1, 2), kind="process", speedup=speedup(1.02, 0.96, 1.09, n=6)),
            trial(2, workers(2, 2), kind="process", speedup=speedup(1.11, 0.98, 1.21, n=6)),
            trial(3, workers(2, 8), kind="process", speedup=speedup(0.98, 0.92, 1.03, n=6)),
            trial(4, BF16, FUSED, reference=(BF16,), speedup=speedup(1.01, 0.97, 1.04)),
            trial(5, on("allocator", library="glibc_tuned", mmap_threshold_mib=32), kind="process"),
            trial(6, on("allocator", library="glibc_tuned", mmap_threshold_mib=1024),
                  kind="process"),
        ),
    )  # fmt: skip


CASES = {
    "faster": faster,
    "nothing_helps": nothing_helps,
    "too_noisy": too_noisy,
    "interrupted": interrupted,
    "failed_baseline": failed_baseline,
    "mixed": mixed,
}
