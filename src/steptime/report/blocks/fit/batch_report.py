"""Shows the sizes of a batch that follow from those given, and what to know about them.

In: a `BatchPlan`. Out: blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from steptime.core.units import format_percent
from steptime.plan.values.batch_values import BatchPlan, BatchSizes
from steptime.report.blocks.phrasing import labeled
from steptime.report.blocks.values import Blank, Block, TableBlock
from steptime.report.words.fit.batch_words import describe_rate

_HEAD = ("micro", "accumulation", "data-parallel", "global", "a rank", "devices")

Facts = Mapping[str, float]

NOTES: Mapping[str, Callable[[Facts], str]] = {
    "naive_pipeline": lambda f: (
        f"With one micro-batch per step, {f['stages'] - 1:.0f} of {f['stages']:.0f} stages are "
        "idle at any time: take more accumulation."
    ),
    "pipeline_bubble": lambda f: (
        f"The pipeline is idle for {format_percent(f['bubble'])} of its ideal time, (stages - 1) / "
        "micro-batches: more accumulation shrinks that."
    ),
    "zero_alone": lambda f: (
        f"ZeRO stage {f['stage']:.0f} shards nothing on one data-parallel rank."
    ),
    "zero_traffic": lambda f: (
        f"ZeRO stage {f['stage']:.0f} communicates for each of the {f['times']:.0f} micro-batches; "
        "stage 1 and DDP without sync do so once per step."
    ),
    "ddp_traffic": lambda f: (
        f"DDP sends gradients once per step if all but the last of {f['times']:.0f} micro-batches "
        "run under `no_sync`: a step's traffic is then that of one micro-batch."
    ),
    "zero_global": lambda f: (
        f"With ZeRO alone the global batch is {f['least']:.0f} at least on {f['devices']:.0f} "
        "devices; tensor parallelism or hybrid sharding lowers that."
    ),
    "fused_softmax": lambda f: (
        f"Heads x micro-batch is {f['num_rows']:.0f}, no multiple of 4: Megatron's fused "
        "softmax takes its slow path (BLOOM's chronicles)."
    ),
}
"""What a note says, by its name."""


def batch_blocks(plan: BatchPlan) -> list[Block]:
    """Return the sizes as a table, then what to know about them."""
    more = plan.num_choices - len(plan.choices)
    states = None
    if plan.state_bytes_per_parameter is not None:
        size = f"{plan.state_bytes_per_parameter:.3g} bytes per parameter on a rank"
        states = f"{size}, with mixed precision and AdamW"
    rates = [] if plan.learning_rate is None else describe_rate(plan.learning_rate)
    assumed = f"{' and '.join(plan.assumed)} 1, as none was given"
    return [
        TableBlock(_HEAD, [_row(one) for one in plan.choices], left=0, name="Sizes of a batch"),
        Blank(),
        *labeled(
            ("more", f"{more} further ways; give one more size to choose." if more > 0 else None),
            ("assumed", assumed if plan.assumed else None),
            ("choose", _CHOOSE if plan.num_choices > 1 else None),
            ("states", states),
        ),
        *labeled(*(("note", NOTES[note.name](note.facts)) for note in plan.notes)),
        *labeled(*(("rate", text) for text in rates)),
    ]


_CHOOSE = (
    "the largest micro-batch that fits: its alignment hardly matters, as batch and sequence are "
    "flattened (7 is better than 4 where 8 does not fit)"
)


def _row(one: BatchSizes) -> tuple[str, ...]:
    sizes = (one.micro_batch, one.grad_accum_steps, one.data_parallel)
    others = (one.global_batch_size, one.local_batch_size, one.devices)
    return tuple(str(size) for size in (*sizes, *others))
