"""Shows the sizes of a batch that follow from those given, and what larger batches give.

In: a `BatchPlan`, or the batches of a fit. Out: blocks, and sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from steptime.core.interval import Interval
from steptime.core.units import format_bytes, format_percent
from steptime.plan.values.batch_values import BatchPlan, BatchSizes, LearningRateAdvice
from steptime.report.blocks.phrasing import labeled
from steptime.report.blocks.values import Blank, Block, TableBlock
from steptime.report.words.fit.fit_words import describe_reason
from steptime.tune.values.fit_values import BatchTrial, FitStudy

REASONS = {
    "excluded": "the lever `larger_batch` was left out",
    "growth_not_known": "it is not known what grows with the batch",
    "no_room": "the limit has no room for twice the batch",
    "other_device": "that device is not here, and its rates are not those of this machine",
    "too_few_rounds": "there were too few rounds in turns",
}

_REPEATED = (
    "The script makes its batches itself, so the rows of each call of the model were repeated: "
    "what makes batches, and a loss outside of the model, is not in these figures."
)

_SILENT = frozenset({"no_room", "excluded"})
"""What the report says elsewhere, or the user knows."""


def describe_batches(study: FitStudy) -> list[str]:
    """Return sentences: whether the rate rises, by how much, and what to do about it."""
    if not study.larger_batches:
        word = study.batch_reason
        if word is None or word in _SILENT:
            return []
        return [f"whether a larger batch would be faster is not known: {_why_none(study)}"]
    lines = [_finding(study.larger_batches)]
    lines += [describe_trial(one) for one in study.larger_batches]
    if any(one.how == "repeated" for one in study.larger_batches):
        lines.append(_REPEATED)
    best = _best(study.larger_batches)
    if best is not None:
        lines += _advice(best)
    return lines


def _why_none(study: FitStudy) -> str:
    text = (study.batch_facts or {}).get("text")
    word = study.batch_reason or ""
    return str(text) if text is not None else REASONS.get(word, word)


def _finding(trials: tuple[BatchTrial, ...]) -> str:
    if any(one.rises for one in trials):
        return "the batch is too small for this device: the rate still rises with it"
    if all(one.rises is False for one in trials):
        return "the batch is large enough for this device: a larger one gives nothing"
    return "it cannot be told whether the rate rises with the batch"


def describe_trial(one: BatchTrial) -> str:
    """Return what one size of the batch gives."""
    size = f"{one.factor} times the batch"
    if one.rate_gain is None:
        word = one.reason or "too_few_rounds"
        why = REASONS.get(word) or describe_reason(word, one.facts)
        return f"{size}: not measured: {why}"
    text = f"{size}: {format_gain(one.rate_gain)} samples in a second, in turns in one process"
    text += ", by the processor's time" if one.clock == "cpu" else ""
    if one.estimate_bytes is not None:
        text += f"; its peak should be {format_bytes(one.estimate_bytes)}"
    if one.same_global_gain is not None:
        text += (
            f"; with 1/{one.factor} of the accumulation the global batch stays, and a step should "
            f"be {format_gain(one.same_global_gain)} as fast"
        )
    return text


def format_gain(gain: Interval) -> str:
    """Return a gain with its interval."""
    return f"{gain.estimate:.2f}x [{gain.low:.2f}, {gain.high:.2f}] (n {gain.n})"


def _best(trials: tuple[BatchTrial, ...]) -> BatchTrial | None:
    rising = [one for one in trials if one.rises and one.rate_gain is not None]
    return max(rising, key=lambda one: one.rate_gain.low if one.rate_gain else 0.0, default=None)


def _advice(best: BatchTrial) -> list[str]:
    if best.same_global_gain is not None:
        return [
            "With less accumulation it is the same training, except batch statistics and means "
            "over tokens of a micro-batch; the loss is divided by the new number of micro-batches."
        ]
    caution = "It is another training, and its quality was not judged."
    if best.learning_rate is None:
        return [caution]
    told = (one for one in describe_rate(best.learning_rate) if one != CAUTION)
    return [caution, *told]


CAUTION = "It is another training all the same: judge its quality."


def describe_rate(advice: LearningRateAdvice) -> Iterator[str]:
    """Yield what to do, how betas and epsilon follow, the source, and the caution."""
    ratio = f"The global batch changes by {advice.batch_ratio:.3g}x"
    if advice.factor is None:
        yield f"{ratio}; no rule is published for {advice.optimizer}: search the learning rate."
        return
    rule = "linearly" if advice.rule == "linear" else "by the square root"
    new = "" if advice.learning_rate is None else f", to {advice.learning_rate:.4g}"
    yield f"{ratio}: scale the learning rate {rule}, by {advice.factor:.4g}{new}."
    if advice.betas_factor is not None and advice.epsilon_factor is not None:
        yield (
            f"Scale 1 - beta of both betas by {advice.betas_factor:.4g}, epsilon by "
            f"{advice.epsilon_factor:.4g}."
        )
    yield f"Source: {advice.source}; {advice.limit}."
    yield CAUTION


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
