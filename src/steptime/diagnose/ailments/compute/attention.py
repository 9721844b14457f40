"""Ailments of attention: it is computed by a slower kernel than torch has, or without one.

They are hints: how much of a step attention takes is not known here, and whether a fused kernel is
faster is for a trial to show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import count, make_finding
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.attention_call import AttentionCall

MIN_LENGTH = Threshold(
    name="MIN_LENGTH",
    value=128,
    why="positions of a row: below, the fused kernel gave nothing here, or cost time "
    "(benchmarks/tune/fused_levers.py)",
)

SLOWER = ("math", "efficient")
"""Backends of torch beside which it has a faster one."""


def find_slow_backend(measurement: Measurement) -> Finding | None:
    """No measured bottleneck: torch did not take its fastest kernel for attention."""
    calls = _long(measurement, "function")
    slow = [one for one in calls if one.backend in SLOWER and one.reasons]
    if not slow:
        return None
    worst = max(slow, key=lambda one: (-SLOWER.index(one.backend), one.length, one.num))
    reason = worst.reasons[0] if len(worst.reasons) == 1 else "several_reasons"
    names = {"backend": worst.backend, "reason": reason}
    return replace(_found(SLOW_BACKEND, slow, worst), names=names)


def find_unused_kernel(measurement: Measurement) -> Finding | None:
    """No measured bottleneck: `nn.MultiheadAttention` computes weights, so it uses no kernel."""
    calls = _long(measurement, "layer")
    return _found(WEIGHTS_WANTED, calls, calls[0]) if calls else None


def find_written(measurement: Measurement) -> Finding | None:
    """No measured bottleneck: attention is written out in single operators."""
    calls = _long(measurement, "written")
    return _found(WRITTEN, calls, calls[0]) if calls else None


def _long(measurement: Measurement, way: str) -> list[AttentionCall]:
    """Return the calls of one way with rows that are long enough, the longest rows first."""
    calls = [one for one in measurement.attention or () if one.way == way]
    calls = [one for one in calls if one.length >= MIN_LENGTH.value]
    return sorted(calls, key=lambda one: (-one.length, -one.num))


def _found(row: Ailment, calls: Sequence[AttentionCall], worst: AttentionCall) -> Finding:
    num = sum(one.num for one in calls)
    evidence = (count("num_calls", num), count("num_positions", worst.length))
    return replace(make_finding(row, severity=Severity.INFO, evidence=evidence), where=worst.where)


_BY_ARGUMENTS = by_facts("The arguments decide on the kernel, whoever else was there.")

SLOW_BACKEND = Ailment(
    cause="attention_backend",
    what="torch takes a slower kernel for attention than it has",
    needs="`attention`",
    rule=find_slow_backend,
    asked=Asked.ALWAYS,
    thresholds=(MIN_LENGTH,),
    title="attention",
    sentence="torch computes attention by its {backend} backend in {num_calls} calls of a step, "
    "over rows of {num_positions} positions, because of {reason}.",
    remedy="Take that away where the model allows it: is_causal=True in place of a causal mask, a "
    "mask without gradients, dropout outside of attention, 16 bits on a GPU.",
    when_contended=_BY_ARGUMENTS,
)
WEIGHTS_WANTED = Ailment(
    cause="attention_weights",
    what="a layer of attention computes its weights, so that no fused kernel can be used",
    needs="`attention`",
    rule=find_unused_kernel,
    asked=Asked.ALWAYS,
    thresholds=(MIN_LENGTH,),
    title="attention",
    sentence="nn.MultiheadAttention computes its weights in {num_calls} calls of a step, over rows "
    "of {num_positions} positions, and therefore uses no fused kernel.",
    remedy="Call it with need_weights=False if nothing uses the weights.",
    when_contended=_BY_ARGUMENTS,
)
WRITTEN = Ailment(
    cause="attention_written",
    what="attention is written out in single operators",
    needs="`attention`",
    rule=find_written,
    asked=Asked.ALWAYS,
    thresholds=(MIN_LENGTH,),
    title="attention",
    sentence="attention is written out in single operators, {num_calls} times per step, over rows "
    "of {num_positions} positions. All its weights are kept in memory.",
    remedy="Use torch.nn.functional.scaled_dot_product_attention where the weights are needed for "
    "nothing else.",
    levers=("fused_attention",),
    when_contended=_BY_ARGUMENTS,
)
AILMENTS = (SLOW_BACKEND, WEIGHTS_WANTED, WRITTEN)
