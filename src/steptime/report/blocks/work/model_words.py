"""Writes the line on a model's parameters and tokens, and on the convention of its FLOPs.

In: the document of a run. Out: a line, so that the work can be compared with what papers print.
"""

from __future__ import annotations

from steptime.core.units import format_count, format_percent
from steptime.plan.values import ModelWork
from steptime.report.blocks.values import Block, Labeled
from steptime.report.document.run_document import RunDocument

FULL = 6
"""FLOP per parameter and token by parameters alone, where all are trained."""


def model_blocks(document: RunDocument) -> list[Block]:
    """Return the parameters, the tokens and the work of each; no line if they are not known."""
    work = document.model_work
    is_least = document.work is not None and document.work.is_complete is False
    return [] if work is None else [Labeled("model", describe_model_work(work, is_least=is_least))]


def describe_model_work(work: ModelWork, *, is_least: bool = False) -> str:
    """Return `124 million parameters, all trained · 8,192 tokens per step · 6.4 FLOPs …`."""
    parts = [f"{format_count(work.num_parameters)} parameters, {_describe_trained(work)}"]
    if work.tokens_per_step is not None:
        parts.append(f"{format_count(work.tokens_per_step)} tokens per step")
    if work.flops_per_parameter is not None:
        parts.append(("at least " if is_least else "") + _describe_convention(work))
    if work.six_n_fraction is not None:
        mfu = format_percent(work.six_n_fraction)
        parts.append(f"MFU is by operators; by 6 N per token it is {mfu}")
    return " · ".join(parts)


def _describe_trained(work: ModelWork) -> str:
    if work.num_trained == work.num_parameters:
        return "all trained"
    return f"{format_percent(work.num_trained / work.num_parameters)} trained"


def _describe_convention(work: ModelWork) -> str:
    """Return the counted work per parameter and token, beside what parameters alone would give."""
    model = work.flops_per_parameter or 0.0
    least = "at least " if work.is_at_least else ""
    text = f"{least}{model:.2f} FLOPs per parameter per token"
    again = work.executed_per_parameter
    if again is not None and again > 1.001 * model:
        text += f", {again:.2f} with what is recomputed"
    if work.num_trained == work.num_parameters:
        return f"{text} (by parameters alone 6 N)"
    return f"{text} (by parameters alone {work.by_parameters:.2f} N; {FULL} N if all were trained)"
