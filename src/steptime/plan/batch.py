"""Finds the sizes of a batch that follow from those given, or the rule that forbids them.

In: any of micro-batch, accumulation, data-parallel and global batch, and the layout. Out: a
`BatchPlan`. One equation holds them together: global = micro x accumulation x data-parallel, where
data-parallel = devices / (tensor-parallel x pipeline). `layout_rules.py` has the rules of a layout,
`learning_rate.py` what else changes with the global batch.

Source: stas00/ml-engineering, training/performance, "Batch sizes", and model-parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from math import isqrt

from steptime.errors import BatchRuleError
from steptime.plan.layout_rules import (
    check_layout,
    notes_on,
    pipeline_bubble,
    zero_bytes_per_parameter,
)
from steptime.plan.values.batch_values import (
    BatchPlan,
    BatchSizes,
    GivenSizes,
    LearningRateAdvice,
)

MAX_CHOICES = 12
"""More of them are counted and not listed: a hundred divisors are too many to read."""


def plan_batch(given: GivenSizes, *, learning_rate: LearningRateAdvice | None = None) -> BatchPlan:
    """Return the sizes that go together with those given.

        plan_batch(GivenSizes(global_batch_size=512, micro_batch=8, data_parallel=4))

    Raises:
        BatchRuleError: a rule forbids them, or they are not enough; it says which and what to do.
    """
    _check_sizes(given)
    check_layout(given)
    share = (given.tensor_parallel or 1) * (given.pipeline_parallel or 1)
    data_parallel = _data_parallel(given, share)
    assumed: list[str] = []
    if given.global_batch_size is None:
        micro = _need_micro(given)
        steps = _or_one(given.grad_accum_steps, "grad_accum_steps", assumed)
        ranks = _or_one(data_parallel, "data_parallel", assumed)
        found = [(micro, steps, ranks)]
    else:
        found = list(_splits(given, given.global_batch_size, data_parallel))
    choices = [_sizes(given, one, share) for one in sorted(found, reverse=True)]
    ranks_now = {one.data_parallel for one in choices}
    stage = given.zero_stage
    per_parameter = (
        zero_bytes_per_parameter(stage, ranks_now.pop())
        if stage is not None and len(ranks_now) == 1
        else None
    )
    return BatchPlan(
        given=given,
        choices=tuple(choices[:MAX_CHOICES]),
        num_choices=len(choices),
        assumed=tuple(assumed),
        state_bytes_per_parameter=per_parameter,
        notes=notes_on(given, choices[0]),
        learning_rate=learning_rate,
    )


def _check_sizes(given: GivenSizes) -> None:
    for name, value in asdict(given).items():
        least = 0 if name == "zero_stage" else 1
        if value is not None and value < least:
            raise BatchRuleError(
                f"{name} must be a whole number of {least} or more, got {value}.",
                rule="whole_numbers",
                hint="Give a larger number, or leave it out.",
            )
    if given.zero_stage is not None and given.zero_stage > 3:
        raise BatchRuleError(
            f"zero_stage must be 0, 1, 2 or 3, got {given.zero_stage}.",
            rule="zero_stages",
            hint="1 shards the optimizer's states, 2 also gradients, 3 also weights.",
        )


def _data_parallel(given: GivenSizes, share: int) -> int | None:
    """Return the data-parallel degree, given or by the number of devices."""
    if given.devices is None:
        return given.data_parallel
    if given.devices % share:
        raise BatchRuleError(
            f"{given.devices} devices cannot be divided among tensor-parallel x pipeline = "
            f"{share}: {given.devices} / {share} is no whole number.",
            rule="devices_by_layout",
            hint=f"Take a multiple of {share} devices, or another layout.",
        )
    ranks = given.devices // share
    if given.data_parallel not in (None, ranks):
        raise BatchRuleError(
            f"data_parallel is {given.data_parallel}, but {given.devices} devices with "
            f"tensor-parallel x pipeline = {share} give {ranks}.",
            rule="data_parallel_is_devices_by_layout",
            hint="Leave one of them out: data_parallel = devices / (tensor x pipeline).",
        )
    return ranks


def _need_micro(given: GivenSizes) -> int:
    if given.micro_batch is not None:
        return given.micro_batch
    raise BatchRuleError(
        "neither the global batch nor the micro-batch is known, so nothing follows.",
        rule="too_little_given",
        hint="Give one of them: global=512, or micro=8.",
    )


def _or_one(value: int | None, name: str, assumed: list[str]) -> int:
    if value is None:
        assumed.append(name)
        return 1
    return value


def _splits(
    given: GivenSizes, total: int, data_parallel: int | None
) -> Iterator[tuple[int, int, int]]:
    """Yield micro-batch, accumulation and data-parallel degree of every way to split the batch."""
    known = (given.micro_batch, given.grad_accum_steps, data_parallel)
    product = 1
    for value in known:
        product *= value or 1
    if total % product:
        _refuse_split(total, known, product)
    rest = total // product
    num_open = known.count(None)
    if not num_open and rest > 1:
        _refuse_split(total, known, product)
    for parts in _factors(rest, num_open):
        left = iter(parts)
        micro, steps, ranks = (next(left) if value is None else value for value in known)
        yield micro, steps, ranks


def _refuse_split(total: int, known: tuple[int | None, ...], product: int) -> None:
    names = ("micro", "accumulation", "data-parallel")
    told = [
        f"{name} {value}" for name, value in zip(names, known, strict=True) if value is not None
    ]
    near = sorted({max(1, total // product) * product, (total // product + 1) * product})
    is_whole = None not in known
    must = f"be {product}" if is_whole else f"be a multiple of {product}"
    raise BatchRuleError(
        f"global batch {total} must {must} = {' x '.join(told)}.",
        rule="global_is_micro_by_accumulation_by_data_parallel",
        hint=f"Take global {product}, or change another size."
        if is_whole
        else f"The nearest that go: global {' or '.join(str(one) for one in near)}.",
    )


def _factors(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to write a number as a product of so many, in order."""
    if parts == 0:
        yield ()
    elif parts == 1:
        yield (number,)
    else:
        low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
        for one in sorted({*low, *(number // n for n in low)}):
            for others in _factors(number // one, parts - 1):
                yield (one, *others)


def _sizes(given: GivenSizes, split: tuple[int, int, int], share: int) -> BatchSizes:
    micro, steps, ranks = split
    stages = given.pipeline_parallel or 1
    return BatchSizes(
        global_batch_size=micro * steps * ranks,
        local_batch_size=micro * steps,
        micro_batch=micro,
        grad_accum_steps=steps,
        data_parallel=ranks,
        devices=ranks * share,
        bubble_fraction=pipeline_bubble(stages, steps) if stages > 1 else None,
    )
