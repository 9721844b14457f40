"""Which changes of a tf.data pipeline are worth trying, each with the most that it can give.

The bound is that of the parts' times: with the change made, the step takes no less than its own
time with what runs in its thread, and no less than the slowest part.

Source: the tf.data guide "Better performance with the tf.data API", and Murray et al., tf.data: A
Machine Learning Data Processing Framework (2021), section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from steptime.data.values.tf_data_values import TfAdvice, TfStage

MIN_WAIT_FRACTION = 0.05  # less than that is not worth a change
MIN_BOUND = 1.05
VECTORIZE_BELOW_S = 50e-6  # a call of a function costs some 10 to 20 us, whatever it does
MIN_BATCH = 8

_READING = (
    *("interleave", "flat_map", "TFRecordDataset", "TextLineDataset"),
    "FixedLengthRecordDataset",
)
_ENDS = ("batch", "repeat", "from_generator")
_IN_MEMORY = ("from_tensor_slices", "from_tensors", "range")

Stages = Sequence[TfStage]
Part = tuple[tuple[int, ...], float]
"""The numbers of its stages, and the time it needs for a batch [s]."""


def part_times(stages: Stages) -> tuple[Part, ...]:
    """Return the parts of a pipeline that run beside each other, the consumer's own thread last."""
    parts: list[Part] = []
    current: list[int] = []
    for number, stage in enumerate(stages):
        if stage.num_parallel is not None:
            parts += [_sum(stages, current), ((number,), stage.time_s)]
            current = []
        elif stage.name == "prefetch":
            parts.append(_sum(stages, [*current, number]))
            current = []
        else:
            current.append(number)
    return (*(part for part in parts if part[0]), _sum(stages, current))


def _sum(stages: Stages, numbers: Sequence[int]) -> Part:
    return tuple(numbers), sum(stages[i].time_s for i in numbers)


def least_step(stages: Stages, consumer_s: float) -> float:
    """Return the time below which a step cannot fall with these stages [s]."""
    *others, (_, own_s) = part_times(stages)
    return max([consumer_s + own_s, *(time_s for _, time_s in others)])


def advise(
    stages: Stages, *, step_s: float, consumer_s: float, num_cores: int
) -> tuple[TfAdvice, ...]:
    """Return the changes worth trying, the one with the largest bound first.

    Args:
        stages: in the order of the data.
        step_s: from batch to batch [s].
        consumer_s: of that, the step's own [s].
        num_cores: that the command may use.
    """
    if step_s - consumer_s < MIN_WAIT_FRACTION * step_s:
        return ()
    pipeline = PipelineTimes(stages, step_s, consumer_s, num_cores)
    found = [*_each_stage(pipeline), *_prefetch(pipeline), *_cache(pipeline)]
    return tuple(sorted(found, key=lambda one: -(one.bound or 0.0)))


class PipelineTimes(NamedTuple):
    """A pipeline, and what one may expect of it with other stages."""

    stages: Stages
    step_s: float
    consumer_s: float
    num_cores: int

    def bound(self, changed: Stages) -> float:
        """Return the speedup that the changed stages give at most."""
        least_s = max(self.consumer_s, least_step(changed, self.consumer_s))
        return self.step_s / least_s

    def is_faster(self, changed: Stages) -> bool:
        """Return whether less stands in the way of a step: for changes that only overlap work."""
        now_s, then_s = (least_step(one, self.consumer_s) for one in (self.stages, changed))
        return now_s >= MIN_BOUND * then_s and self.bound(changed) >= MIN_BOUND

    def is_less(self, removed_s: float) -> bool:
        """Return whether a change that takes work away takes enough: it frees cores, too."""
        return removed_s >= (MIN_BOUND - 1) * self.step_s


def _each_stage(pipeline: PipelineTimes) -> Iterator[TfAdvice]:
    for number, stage in enumerate(pipeline.stages):
        without = _changed(pipeline.stages, number, work_s=0.0, time_s=0.0)
        takes_long = pipeline.is_less(stage.work_s)
        if stage.runs_python or stage.name == "from_generator":
            if takes_long:
                yield _advice("python_function", stage, pipeline.bound(without))
        elif stage.name == "map":
            yield from _spread(pipeline, number)
            if takes_long and _is_call_bound(stage):
                yield _advice("vectorize", stage, pipeline.bound(without))
        elif stage.name in _READING and stage.num_parallel is None and pipeline.is_faster(without):
            yield _advice("parallel_reads", stage, pipeline.bound(without))


def _spread(pipeline: PipelineTimes, number: int) -> Iterator[TfAdvice]:
    """Let all cores work on a map that has one thread, or a fixed number of them."""
    stage, cores = pipeline.stages[number], pipeline.num_cores
    if stage.num_asked is not None and not 0 < stage.num_asked < cores:
        return
    changed = _changed(
        pipeline.stages, number, num_parallel=float(cores), time_s=stage.work_s / cores
    )
    if pipeline.is_faster(changed):
        change = "parallel_map" if stage.num_asked is None else "autotune"
        yield _advice(change, stage, pipeline.bound(changed))


def _is_call_bound(stage: TfStage) -> bool:
    num = stage.elements_per_batch
    return num >= MIN_BATCH and stage.work_s / num < VECTORIZE_BELOW_S


def _changed(stages: Stages, number: int, **changes: float) -> Stages:
    changed = replace(stages[number], **changes)  # type: ignore[arg-type]
    return [*stages[:number], changed, *stages[number + 1 :]]


def _prefetch(pipeline: PipelineTimes) -> Iterator[TfAdvice]:
    """Overlap what the consumer's own thread does with the step."""
    stages = pipeline.stages
    if not stages or "prefetch" in {stage.name for stage in stages}:
        return
    last = stages[-1]
    added = replace(last, name="prefetch", work_s=0.0, time_s=0.0, num_parallel=None)
    if pipeline.is_faster([*stages, added]):
        yield _advice("prefetch", last, pipeline.bound([*stages, added]))


def _cache(pipeline: PipelineTimes) -> Iterator[TfAdvice]:
    """Keep what is the same in each epoch: what comes before the first random number."""
    stages = pipeline.stages
    number, shuffle = _last_that_repeats(stages)
    if number is None or "cache" in {stage.name for stage in stages}:
        return
    if not pipeline.is_less(sum(one.work_s for one in stages[: number + 1])):
        return
    kept = [replace(one, work_s=0.0, time_s=0.0) for one in stages[: number + 1]]
    at = stages[number]
    is_behind = shuffle is not None and shuffle < number
    yield TfAdvice(
        change="cache_before_shuffle" if is_behind else "cache",
        file=at.file,
        line=at.line,
        bound=pipeline.bound([*kept, *stages[number + 1 :]]),
        cache_bytes=_cache_bytes(at),
    )


def _last_that_repeats(stages: Stages) -> tuple[int | None, int | None]:
    """Return the last stage that makes the same in each epoch, and the first shuffle, if any."""
    number, shuffle = None, None
    for i, stage in enumerate(stages):
        if stage.draws or stage.runs_python or stage.name in _ENDS:
            break
        if stage.name == "shuffle":
            shuffle = i if shuffle is None else shuffle
        elif stage.name not in (*_IN_MEMORY, "prefetch"):
            number = i
    return number, shuffle


def _cache_bytes(stage: TfStage) -> int | None:
    if stage.bytes_per_element is None or stage.num_elements is None:
        return None
    return round(stage.bytes_per_element * stage.num_elements)


def _advice(change: str, stage: TfStage, bound: float) -> TfAdvice:
    return TfAdvice(change=change, file=stage.file, line=stage.line, bound=bound)
