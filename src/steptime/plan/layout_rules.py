"""Holds the rules of a parallel layout: which sizes each degree must divide, and what it costs.

In: the sizes given. Out: nothing, or the rule that forbids them; notes on those that are allowed.

Source: stas00/ml-engineering, training/model-parallelism and training/performance; where another
one says more, it stands at the rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from steptime.errors import BatchRuleError
from steptime.plan.values.batch_values import BatchNote, BatchSizes, GivenSizes

MIXED_ADAMW_BYTES = (2.0, 4.0, 12.0)
"""Bytes per parameter of half weights, fp32 gradients, and master weights with two moments: 18."""


def pipeline_bubble(stages: int, chunks: int, *, virtual: int = 1) -> float:
    """Return the idle time of a pipeline over its ideal time: (p - 1) / (v m).

    Args:
        stages: p, the pipeline's degree.
        chunks: m, the micro-batches of a step.
        virtual: v, the parts of the model that each stage holds, interleaved.

    Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.
    """
    return (stages - 1) / (virtual * chunks)


def zero_bytes_per_parameter(stage: int, degree: int) -> float:
    """Return the bytes of weights, gradients and states per parameter on one rank.

    Mixed precision with AdamW and fp32 gradients: 18 without ZeRO, 6 + 12/d at stage 1, 2 + 16/d at
    stage 2, 18/d at stage 3.

    Args:
        stage: 0 to 3.
        degree: d, the ranks that share: the data-parallel degree.

    Source: Rajbhandari et al. 2020 (arXiv:1910.02054), figure 1, with 4 bytes of gradients.
    """
    weights, gradients, states = MIXED_ADAMW_BYTES
    return (
        weights / (degree if stage >= 3 else 1)
        + gradients / (degree if stage >= 2 else 1)
        + states / (degree if stage >= 1 else 1)
    )


def check_layout(given: GivenSizes) -> None:
    """Raise where a degree does not divide what it splits.

    Raises:
        BatchRuleError: it names the rule and what to do.
    """
    for rule in (_tensor_divides, _tensor_in_node, _pipeline_divides, _pipeline_with_zero):
        rule(given)


def _tensor_divides(given: GivenSizes) -> None:
    """Tensor-parallel devices hold whole heads and equal parts of every width."""
    degree = given.tensor_parallel or 1
    for name in ("hidden", "heads", "ffn", "vocab"):
        value = getattr(given, name)
        if value is not None and value % degree:
            up = -(-value // degree) * degree
            what = "Pad the vocabulary to" if name == "vocab" else f"Take {name} ="
            _refuse(
                f"tensor_divides_{name}",
                f"tensor-parallel {degree} does not divide {name} {value}.",
                f"{what} {up}, or a degree that divides {value}.",
            )
    kv = given.kv_heads
    if kv is not None and kv % degree and degree % kv:
        _refuse(
            "tensor_divides_kv_heads",
            f"tensor-parallel {degree} and {kv} key and value heads: neither divides the other.",
            f"Take a degree that divides {kv}, or a multiple of it (heads are then copied).",
        )


def _tensor_in_node(given: GivenSizes) -> None:
    """Tensor parallelism talks in every layer, so it stays on the links of one node."""
    degree, node = given.tensor_parallel or 1, given.devices_per_node
    if node is not None and (degree > node or node % degree):
        _refuse(
            "tensor_stays_in_node",
            f"tensor-parallel {degree} does not fit into nodes of {node} devices.",
            f"Take a divisor of {node}; use a pipeline or ZeRO between nodes.",
        )


def _pipeline_divides(given: GivenSizes) -> None:
    """Stages hold equally many layers, or so if both embeddings count as layers (BLOOM)."""
    stages, layers = given.pipeline_parallel or 1, given.layers
    if layers is None or stages == 1 or not layers % stages or not (layers + 2) % stages:
        return
    near = [n for n in range(1, layers + 3) if not layers % n or not (layers + 2) % n]
    best = sorted(near, key=lambda n: (abs(n - stages), n))[:2]
    _refuse(
        "pipeline_divides_layers",
        f"{stages} stages divide neither {layers} layers nor {layers + 2}, where both embeddings "
        "count as layers.",
        f"Take {' or '.join(str(one) for one in sorted(best))} stages, or other layers.",
    )


def _pipeline_with_zero(given: GivenSizes) -> None:
    """With a pipeline, stages 2 and 3 would reduce or gather for every micro-batch."""
    if (given.pipeline_parallel or 1) > 1 and (given.zero_stage or 0) > 1:
        _refuse(
            "pipeline_takes_zero_1",
            f"ZeRO stage {given.zero_stage} with a pipeline communicates for every micro-batch.",
            "Take zero=1 with a pipeline, or no pipeline.",
        )


def _refuse(rule: str, message: str, hint: str) -> None:
    raise BatchRuleError(message, rule=rule, hint=hint)


# -- what to know where nothing is forbidden


def notes_on(given: GivenSizes, sizes: BatchSizes) -> tuple[BatchNote, ...]:
    """Return what to know about sizes that are allowed."""
    return tuple(_notes(given, sizes))


def _notes(given: GivenSizes, sizes: BatchSizes) -> Iterator[BatchNote]:
    stages, stage = given.pipeline_parallel or 1, given.zero_stage or 0
    steps = sizes.grad_accum_steps
    if stages > 1:
        name = "naive_pipeline" if steps == 1 else "pipeline_bubble"
        facts = {"stages": stages, "chunks": steps, "bubble": pipeline_bubble(stages, steps)}
        yield BatchNote(name=name, facts=facts)
    if stage and sizes.data_parallel == 1:
        yield BatchNote(name="zero_alone", facts={"stage": stage})
    if stage >= 2 and steps > 1:
        yield BatchNote(name="zero_traffic", facts={"stage": stage, "times": steps})
    if stage < 2 and steps > 1 and sizes.data_parallel > 1:
        yield BatchNote(name="ddp_traffic", facts={"times": steps})
    if stage == 3 and stages == 1 and (given.tensor_parallel or 1) == 1:
        least = sizes.devices * sizes.micro_batch
        yield BatchNote(name="zero_global", facts={"least": least, "devices": sizes.devices})
    tokens = given.heads
    degree = given.tensor_parallel or 1
    if tokens is not None and degree > 1 and stages > 1:
        rows = tokens // degree * sizes.micro_batch
        if rows % 4:  # BLOOM's fused softmax falls to a slow path otherwise (BigScience chronicles)
            yield BatchNote(name="fused_softmax", facts={"num_rows": rows})
