"""What tf.data's own statistics say of a training's input pipeline."""

from __future__ import annotations

from dataclasses import dataclass

AUTOTUNE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TfStage:
    """One transformation of a pipeline, the first in the order of the data.

    Attributes:
        name: of the method or class, such as `map`, `batch`, `TFRecordDataset`.
        file: the file with the script's call; None where tf.data added the stage itself.
        line: that line.
        work_s: time it works for one batch of the pipeline, added over its threads [s].
        time_s: time it needs for one batch with the threads it has [s].
        elements_per_batch: how many elements it makes for one batch of the pipeline.
        num_parallel: the parallel calls at the end of the window; None where it has one thread.
        num_asked: the parallel calls that the script asked for, -1 for AUTOTUNE; None for none.
        draws: whether its function draws random numbers in TensorFlow; None where it has none.
        runs_python: whether its function calls back into Python; None where it has none.
        bytes_per_element: of what it makes, as tf.data counts; None before its first element.
        num_elements: that it makes in an epoch; None where tf.data does not know, or without end.
    """

    name: str
    file: str | None
    line: int | None
    work_s: float
    time_s: float
    elements_per_batch: float
    num_parallel: float | None
    num_asked: int | None
    draws: bool | None
    runs_python: bool | None
    bytes_per_element: float | None
    num_elements: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TfAdvice:
    """One change to a pipeline.

    Attributes:
        change: `parallel_map`, `autotune`, `parallel_reads`, `vectorize`, `cache`,
            `cache_before_shuffle`, `prefetch` or `python_function`.
        file: the file with the call it is about; None where tf.data does not tell.
        line: that line.
        bound: the speedup of the step that it gives at most; None where that cannot be told.
        cache_bytes: what a cache there would hold [B]; None for the others, or where unknown.
    """

    change: str
    file: str | None
    line: int | None
    bound: float | None
    cache_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TfPipeline:
    """The pipeline that a training read its batches from.

    Attributes:
        num_batches: that were counted.
        step_s: from batch to batch [s], after the first ones.
        consumer_s: of that, the step's own: the median gap between two calls for a batch [s].
        wait_s: of that, the wait for the next batch [s].
        input_s: time the pipeline alone needs for a batch, by its slowest part [s].
        stages: in the order of the data.
        held_back_by: the number of the stage, from 0, that takes longest in the slowest part.
        bound: the speedup that no change of the pipeline can exceed.
        advice: the changes worth trying, the largest bound first; none where no step waits.
        num_others: further pipelines of the process, such as for validation.
    """

    num_batches: int
    step_s: float
    consumer_s: float
    wait_s: float
    input_s: float
    stages: tuple[TfStage, ...]
    held_back_by: int | None
    bound: float
    advice: tuple[TfAdvice, ...]
    num_others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TfData:
    """tf.data in a command; one of the two is None.

    Attributes:
        pipeline: what was found.
        missing: why there is none: `not_iterated` (no pipeline gave a batch outside of a graph),
            `autotune_off` (tf.data keeps no statistics then) or `too_short`.
    """

    pipeline: TfPipeline | None
    missing: str | None = None
