"""What the sizes of a batch are, and how a learning rate goes with them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSizes:
    """What is known before; None where it is not.

    Attributes:
        global_batch_size: samples of a step over all ranks.
        micro_batch: samples of one forward and backward on one rank.
        grad_accum_steps: micro-batches of a step; the chunks of a pipeline.
        data_parallel: number of ranks that see different samples.
        devices: number of all devices.
        tensor_parallel: number of devices that share each matrix.
        pipeline_parallel: number of stages.
        zero_stage: what ZeRO shards: 0 nothing, 1 states, 2 also gradients, 3 also weights.
        devices_per_node: devices that are joined by the fast links of one node.
        layers: number of blocks of the model.
        hidden: width of the model.
        heads: number of query heads.
        kv_heads: number of key and value heads.
        ffn: inner width of the MLP.
        vocab: rows of the embedding.
    """

    global_batch_size: int | None = None
    micro_batch: int | None = None
    grad_accum_steps: int | None = None
    data_parallel: int | None = None
    devices: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    zero_stage: int | None = None
    devices_per_node: int | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    vocab: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizes:
    """Sizes that go together: global = micro x accumulation x data-parallel.

    Attributes:
        global_batch_size: samples of a step over all ranks.
        local_batch_size: samples of a step on one rank.
        micro_batch: samples of one forward and backward on one rank.
        grad_accum_steps: micro-batches of a step; the chunks of a pipeline.
        data_parallel: number of ranks that see different samples.
        devices: number of all devices.
        bubble_fraction: idle time of a pipeline over its ideal time; null without a pipeline.
    """

    global_batch_size: int
    local_batch_size: int
    micro_batch: int
    grad_accum_steps: int
    data_parallel: int
    devices: int
    bubble_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNote:
    """Something to know about sizes that are allowed.

    Attributes:
        name: what it is about, a machine word.
        facts: the numbers in it.
    """

    name: str
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateAdvice:
    """How a learning rate follows a global batch that changes.

    Attributes:
        optimizer: the optimizer that it is for.
        batch_ratio: the new global batch over the old one.
        rule: `linear`, `square_root`, or null where no rule is published.
        factor: what the learning rate is multiplied by; null without a rule.
        learning_rate: the new learning rate, if the old one is known.
        betas_factor: what 1 - beta is multiplied by, where the source says so.
        epsilon_factor: what epsilon is multiplied by, where the source says so.
        source: who says so.
        limit: how far that holds.
    """

    optimizer: str
    batch_ratio: float
    rule: str | None
    factor: float | None
    learning_rate: float | None = None
    betas_factor: float | None = None
    epsilon_factor: float | None = None
    source: str | None = None
    limit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The sizes of a batch that follow from those given.

    Attributes:
        given: what was known before.
        choices: the sizes; several if those given leave some open, the largest micro-batch first.
        num_choices: how many there are, with those that are not listed.
        assumed: sizes that were not given and were taken to be 1.
        state_bytes_per_parameter: bytes of weights, gradients and states per parameter of a rank,
            with mixed precision and AdamW; null without `zero_stage`, or where choices differ.
        notes: what to know about them.
        learning_rate: how the learning rate follows; null if the batch does not change.
    """

    given: GivenSizes
    choices: tuple[BatchSizes, ...]
    num_choices: int
    assumed: tuple[str, ...] = ()
    state_bytes_per_parameter: float | None = None
    notes: tuple[BatchNote, ...] = ()
    learning_rate: LearningRateAdvice | None = None
