"""Studies as their page shows them: ends of all kinds, very long ones, hostile names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from page_cases import HOSTILE
from steptime.diagnose.values.reach_values import WaterfallPart
from steptime.report.blocks.study.study_report import StudyPageFacts
from steptime.tune.values.study_values import NotTried, StudyOutcome, TrainingScope
from steptime.verify.values import LossOverlay
from study_cases import (
    BF16,
    FUSED,
    failed_baseline,
    faster,
    interrupted,
    make_study,
    many_settings,
    mixed,
    nothing_helps,
    on,
    speedup,
    too_noisy,
    trial,
)

RECIPE = """\
[steptime]
version = "1.0"
command = ["python", "train.py"]

[levers.autocast]
dtype = "bf16"
"""


def falling(num: int, *, shift: float = 0.0) -> tuple[float, ...]:
    """Losses of a training, with the noise of its batches."""
    return tuple(
        1.2 + 3 * math.exp(-3 * i / num) + 0.15 * math.sin(7.3 * i) + shift * i / num
        for i in range(num)
    )


def compared(num: int = 60, *, shift: float = 0.004) -> tuple[LossOverlay, ...]:
    return (
        LossOverlay(
            updates=tuple(range(num)),
            baseline=falling(num),
            candidate=falling(num, shift=shift),
        ),
    )


def part(name: str, time_s: float) -> WaterfallPart:
    return WaterfallPart(name=name, time_s=time_s, formula="")


def tuned() -> StudyPageFacts:
    return StudyPageFacts(
        study=faster(),
        losses=(((BF16, FUSED), compared()),),
        recipe_file="tuned.toml",
        recipe=RECIPE,
        edits=(
            ("autocast bf16", "with torch.autocast(device):\n    f()"),
            ("fused_optimizer fused", "AdamW(..., fused=True)"),
        ),
        version="1.0",
    )


def refused() -> StudyPageFacts:
    """One of everything: the losses of what was refused leave the envelope."""
    study = mixed()
    wrong = ((*study.recipe, FUSED), compared(shift=0.9))
    right = (study.recipe, compared())
    return StudyPageFacts(study=study, losses=(right, wrong), recipe=RECIPE)


def endless() -> StudyPageFacts:
    """Thousands of trials, each of thousands of blocks."""
    trials = [
        trial(
            i + 1,
            on("num_threads", count=i + 1),
            speedup=speedup(0.9 + i % 40 / 50, 0.8 + i % 40 / 60, 1.1 + i % 40 / 40, n=12_345),
            reason="no_gain" if i % 3 else None,
        )
        for i in range(3000)
    ]
    study = make_study(
        outcome=StudyOutcome.NOTHING_HELPS,
        trials=(faster().trials[0], *trials),
        not_tried=tuple(NotTried(name=f"lever_{i}", reason="no_time") for i in range(300)),
    )
    losses = (((BF16,), compared(300)),)
    return StudyPageFacts(study=study, losses=losses)


def hostile_study(text: str) -> StudyPageFacts:
    """Every text that somebody else can choose."""
    applied = on(text, mode=text)
    study = replace(
        faster(),
        command=("python", text),
        device=text,
        torch_version=text,
        recipe=(applied,),
        training=TrainingScope(number=2, words=(text,), numbers=(0,)),
        tier_reasons=(text,),
        tried_writes=(text,),
        tried_connections=(text,),
        sample_unit=text,
        not_tried=(NotTried(name=text, reason="does_not_apply", text=text),),
        choices=(),
        trials=(
            *faster().trials,
            trial(9, applied, reason="exit_code", facts={"exit_code": 1, "last_line": text}),
            trial(10, applied, reference=(applied,), reason=text, facts={text: text}),
        ),
    )
    return StudyPageFacts(
        study=study,
        losses=(((applied,), compared()),),
        recipe_file=text,
        recipe=text,
        edits=((text, text),),
        version=text,
    )


STUDIES: Mapping[str, Callable[[], StudyPageFacts]] = {
    "tuned": tuned,
    "refused": refused,
    "endless": endless,
    "nothing_helps": lambda: StudyPageFacts(study=nothing_helps()),
    "too_noisy": lambda: StudyPageFacts(study=too_noisy()),
    "interrupted": lambda: StudyPageFacts(study=interrupted()),
    "failed": lambda: StudyPageFacts(study=failed_baseline()),
    "many_settings": lambda: StudyPageFacts(study=many_settings()),
    "hostile": lambda: hostile_study("".join(HOSTILE)),
}
