"""Makes the blocks on the counted work of a step, its rate, and its share of a peak.

In: the document of a run. Out: blocks. Every figure is shown with what it includes and what it is
divided by; if something was not counted, the line says why.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TypeVar

from steptime.core.devices.given_peaks import PEAK_TYPES
from steptime.core.printable import printable
from steptime.core.units import format_count, format_flops, format_percent, format_seconds
from steptime.diagnose.values.utilization_values import Utilization
from steptime.launch.values import CELL
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.operator_time import TimedModule, TimedOperator, time_of
from steptime.measure.values.model.work import (
    COUNTED_APART,
    ClassCount,
    Completeness,
    Count,
    UnmetMatrix,
    WorkBasis,
)
from steptime.plan.values import ModelWork
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.values import Block, Labeled
from steptime.report.document.run_document import RunDocument
from steptime.report.words.run.show_words import is_cell, words_again

Timed = TypeVar("Timed", ClassCount, TimedModule, TimedOperator)

# Why the work, or its share of a peak, is not known.
REASONS: Mapping[str, str] = {
    "compiled": "the script compiles",
    "inexact": "counting would have changed last bits",
    "mode_active": "a mode, profiler or transform of the script's own was on",
    "subclass": "tensors of a subclass, sparse or nested ones are in the model or its inputs",
    "captured": "a CUDA graph was being captured",
    "failed": "the counter failed; the failures of Steptime are in the record",
    "too_few_updates": "there were too few steps",
    "several_optimizers": "several optimizers take turns in a way that was not counted",
    "steps_differ": "steps are of several kinds, and one was counted",
    "without_gradients": "a model was called without gradients, too, which was not counted",
    "no_backward_seen": "no backward call was seen in the step",
    "outside_modules": "much of it is computed outside of modules, where it is not seen",
    "forward_elsewhere": "much of the forward ran in other threads, or in an update before",
    "work_differs": "steps differ in their work, and their mean is not known",
    "not_counted": "the run has no record of it",
    "no_steady_steps": "there are no steady steps",
    "unknown_device": "no datasheet peak is known for this device",
    "no_peak_for_type": "no peak is known for this type on this device",
    "not_executed": "what the compiler made of it was not counted",
    "child_uncontained": "nothing here keeps an extra run from doing harm",
    "child_not_started": "the extra run could not be started",
    "child_subclass": "tensors of a class that runs its operators itself take part (nested ones "
    "of the jagged layout, masked or quantized ones), where they are not seen",
    "child_ended": "the extra run ended before its eighth step",
    "child_out_of_memory": "the extra run, which does not compile, ran out of memory",
    "child_time_limit": "the extra run took too long",
}

_TERMS: Mapping[str, str] = {
    "updates": "a constant",
    "rows": "their rows",
    "elements": "their size",
    "squares": "its square",
    "nodes": "their graph",
    "plain": "calls without gradients",
}
"""What work is computed from, in words; the order is that of the sentence."""

_SHORT = 0.995
"""If coverage is below this fraction, the operators without a formula are named."""

_WORTH_NAMING = 0.01

_WORTH_A_WORD, _MAX_TIMED = 0.05, 4
"""Operators and modules below this share of all operators' time are not named."""

_MAX_NAMED = 2
"""As many matrices and functions are named in a line; the JSON has more."""


def work_blocks(document: RunDocument) -> list[Block]:
    """Return the work of a step, its rate and utilization; no lines if nothing is known of them."""
    m = document.measurement
    if m.count is None:
        if m.count_missing is None:
            return []
        return [Labeled("work", _describe_missing(m), style="dim")]
    text = describe_count(m.count, m.num_ranks)
    basis = m.count.basis
    if basis is not None and basis.how == "range" and not basis.is_apart:
        text += f" · count more of them in a contained extra run: {_command(m)}"
    lines = [Labeled("work", printable(text)), *_time_lines(m.count)]
    if m.steady is not None and m.steady.step_time_s is not None:
        lines += [Labeled("rate", _describe_rate(document))]
    return lines + model_blocks(document)


def brief_work(document: RunDocument) -> list[Block]:
    """Say in one line how much work a step is, its rate and its share of the peak."""
    m = document.measurement
    if m.count is None:
        return []
    least = "at least " if m.count.is_complete is False else ""
    told = [f"{least}{_describe_total(m.count)}"]
    if document.mfu.flops_per_s is not None:
        told.append(f"{least}{format_flops(document.mfu.flops_per_s)}S")
    if document.mfu.fraction is not None:
        told.append(f"MFU {least}{format_percent(document.mfu.fraction)}")
    return [Labeled("work", joined(told), max_lines=1)]


def _time_lines(count: Count) -> list[Block]:
    """Say where the time of the operators goes: classes, the largest operators, modules."""
    total_s = math.fsum(map(time_of, count.classes))
    if not count.operators or not total_s:
        return []
    classes = sorted(count.classes, key=time_of, reverse=True)
    parts = [", ".join(f"{one.name} {share}" for one, share in _shares(classes, total_s))]
    operators = [
        f"{one.name.rpartition('.')[2]} {share}{_inside(one.module_kind)}"
        for one, share in _shares(count.operators, total_s)
    ]
    modules = [
        f"{one.kind or 'outside of modules'} {share}"
        for one, share in _shares(count.module_times, total_s)
    ]
    parts += [f"of these {', '.join(operators)}", f"in modules {', '.join(modules)}"]
    text = f"{format_seconds(total_s)} in operators of the forward and the backward: "
    return [Labeled("time", printable(text + " · ".join(parts)))]


def _shares(rows: Sequence[Timed], total_s: float) -> list[tuple[Timed, str]]:
    """Return the largest rows with their shares of all time."""
    large = [one for one in rows if time_of(one) >= _WORTH_A_WORD * total_s][:_MAX_TIMED]
    return [(one, format_percent(time_of(one) / total_s)) for one in large]


def _inside(kind: str) -> str:
    return f" ({kind})" if kind else ""


def _describe_missing(m: Measurement) -> str:
    """Return why there is no count, and the command that makes one, if any does."""
    text = f"not counted: {_reason(m.count_missing)}"
    if m.count_missing in COUNTED_APART:
        text += f"; count it in a contained extra run: {_command(m)}"
    return printable(text)


def _command(m: Measurement) -> str:
    return shlex.join(["steptime", "run", "--count", "--", *words_again(m.command)])


def _reason(word: str | None) -> str:
    return REASONS.get(word or "", word or "")


def describe_count(count: Count, num_ranks: int = 1) -> str:
    """Return `2.10 TFLOP per step (forward 0.70, backward 1.40) · matmul 90 %, attention 10 %`."""
    passes = [f"forward {format_flops(count.forward)}", f"backward {format_flops(count.backward)}"]
    if count.recomputed:
        passes.append(f"recomputed {format_flops(count.recomputed)}")
    of = _describe_ranks(count) if num_ranks > 1 else ""
    least = "at least " if count.is_complete is False else ""
    text = f"{least}{_describe_total(count)}{of} ({', '.join(passes)})"
    classes = sorted(count.classes, key=lambda one: -one.flops)
    large = [one for one in classes if one.flops > _WORTH_NAMING * count.total]
    named = [f"{one.name} {format_percent(one.flops / count.total)}" for one in large]
    of_flops = f"{', '.join(named)} of the FLOP" if named else ""
    parts = [text, _describe_basis(count.basis), of_flops, _describe_coverage(count)]
    parts.append(describe_completeness(count.completeness))
    if not count.is_executed:
        parts.append("model FLOPs, not executed FLOPs")
    return _listed(parts)


def _describe_total(count: Count) -> str:
    """Return the work of a step; where steps differ, the mean and the range."""
    basis = count.basis
    if basis is None or not basis.differs:
        return f"{format_flops(count.total)} per step"
    ends = f"{format_flops(basis.low_flops)} to {format_flops(basis.high_flops)}"
    if basis.how == "range":
        return f"{ends} per step, about {format_flops(count.total)} on average"
    return f"{format_flops(count.total)} per step on average, {ends} each"


def _describe_basis(basis: WorkBasis | None) -> str:
    """Return how the count came about: how many updates were counted, and what others go by."""
    if basis is None:
        return ""
    num = basis.num_counted
    counted = "1 update counted" if num == 1 else f"{num} updates counted"
    if basis.how == "one":
        return f"{counted}; the others look like it"
    if basis.how == "equal":
        return f"{counted}, all with the same work"
    if basis.how == "kinds":
        kinds = [
            f"{format_percent(one.num_steps / basis.num_steps)} of the steps "
            f"{format_flops(one.flops)}"
            for one in basis.kinds
        ]
        return f"{counted}, each kind of step among them: {', '.join(kinds)}"
    if basis.how == "each":
        return f"{counted}, each size of step among them"
    if basis.how == "scaled":
        return f"{counted}, the others {_describe_scaling(basis)}"
    if basis.how == "range":
        return f"{counted}; what the others do is not known from their sizes"
    return counted


def _describe_scaling(basis: WorkBasis) -> str:
    if not basis.scaled_by:
        share = format_percent(basis.assumed_fraction)
        return f"taken in proportion to their size ({share} of the work)"
    words = " and ".join(word for name, word in _TERMS.items() if name in basis.scaled_by)
    text = f"computed from {words}"
    if basis.error_fraction is not None:
        text += f" (error for one left out: {format_percent(basis.error_fraction)})"
    if basis.assumed_fraction >= _WORTH_NAMING:
        text += f", {format_percent(basis.assumed_fraction)} of the work only assumed"
    return text


def _describe_ranks(count: Count) -> str:
    """Return ` on one rank`, and the range over ranks where they differ."""
    if not count.rank_flops or max(count.rank_flops) - min(count.rank_flops) <= (
        _WORTH_NAMING * max(count.rank_flops)
    ):
        return " on one rank"
    least, most = format_flops(min(count.rank_flops)), format_flops(max(count.rank_flops))
    return f" on one rank, {least} to {most} on each"


def _describe_coverage(count: Count) -> str:
    if count.covered_fraction is None:
        return ""
    text = f"FLOP formulas cover {format_percent(count.covered_fraction)} of operator time"
    proof = count.completeness
    if proof is not None and proof.num_met < proof.num_matrices:
        text = f"{format_percent(count.covered_fraction)} covered"
    if count.covered_fraction < _SHORT and count.uncovered:
        text += f" (not {', '.join(count.uncovered[:2])})"
    return text


def describe_completeness(proof: Completeness | None) -> str:
    """Return which trained matrices were not met, and what made results unseen."""
    if proof is None or (proof.is_complete and not proof.num_matrices):
        return ""
    if proof.is_complete:
        num = proof.num_matrices
        return "each trained matrix was met" if num > 1 else "the trained matrix was met"
    parts = []
    if proof.num_met < proof.num_matrices:
        missed = proof.num_matrices - proof.num_met
        named = [_describe_unmet(one) for one in proof.unmet[:_MAX_NAMED]]
        more = f" and {missed - len(named)} more" if missed > len(named) else ""
        parts.append(
            f"not counted with {missed} of {proof.num_matrices} trained matrices: "
            f"{', '.join(named)}{more}"
        )
    if proof.unseen:
        parts.append(f"no operator made the results of {', '.join(proof.unseen[:_MAX_NAMED])}")
    return _listed(parts) or "operators without a formula may have more work"


def _describe_unmet(one: UnmetMatrix) -> str:
    """Return `net.head.weight (forward, backward; NumpyLinear)`."""
    why = "; ".join([", ".join(one.passes), *one.takers[:1]])
    return f"{one.name} ({why})"


def _describe_rate(document: RunDocument) -> str:
    mfu, hfu = document.mfu, document.hfu
    least = "at least " if mfu.is_at_least else ""
    rate = "" if mfu.flops_per_s is None else f"{least}{format_flops(mfu.flops_per_s)}S"
    if mfu.fraction is None:
        how = _how(mfu, document.measurement.command)
        return _listed([rate, f"MFU and HFU not measured: {_reason(mfu.missing)}", how])
    parts = [rate, f"MFU {least}{format_percent(mfu.fraction)} of {_describe_peak(mfu)}"]
    if mfu.fraction > 1:
        parts.append("more than all of it: this peak is too low")
    if mfu.causal_fraction is not None and mfu.causal_fraction < mfu.fraction:
        parts.append(f"{format_percent(mfu.causal_fraction)} if masked attention is not counted")
    if hfu.fraction is None:
        parts.append(f"HFU not measured: {_reason(hfu.missing)}")
    else:
        parts.append(f"HFU {least}{format_percent(hfu.fraction)}")
    return _listed(parts)


def _how(mfu: Utilization, command: Sequence[str]) -> str:
    """Say how the user can give a peak that no table has."""
    if mfu.missing not in ("unknown_device", "no_peak_for_type") or mfu.dtype not in PEAK_TYPES:
        return ""
    verb = CELL if is_cell(command) else "steptime run"
    return f"give it: {verb} --peak {mfu.dtype}=TFLOPS"


def _listed(parts: list[str]) -> str:
    """Join the parts in one paragraph and escape them: the names of operators may hold anything."""
    return printable(" · ".join(part for part in parts if part))


def _describe_peak(found: Utilization) -> str:
    """Return the denominator, such as `989 TFLOPS (H100 SXM 80GB, bf16 dense, datasheet)`.

    A peak that the user gave is named as the user's own.
    """
    share = found.dtype_fraction or 1.0
    part = "" if share > 1 - _WORTH_NAMING else f", {format_percent(share)} of the work"
    peak = format_flops(found.peak_flops_per_s or 0.0)
    num = f"{found.num_devices} x " if found.num_devices > 1 else ""
    if found.is_given:
        return f"{peak}S ({num}{found.dtype} dense{part}, your own figure)"
    return f"{peak}S ({num}{found.device}, {found.dtype} dense{part}, datasheet)"


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
