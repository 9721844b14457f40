"""Reads what the guest wrote of tf.data's pipelines, and says which stage holds the step back.

A pipeline is a row of parts that run beside each other: a `prefetch` and each stage with parallel
calls begins a new one. Its stages without threads of their own add up within a part, and the
slowest part is what the pipeline can deliver; the part nearest to the consumer runs in the
consumer's own thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steptime.core.stats import median
from steptime.data.tf_advice import advise, part_times
from steptime.data.tf_stages import Work, find_work, latest_nodes, method_of
from steptime.data.values.tf_data_values import TfData, TfPipeline, TfStage
from steptime.record import kinds
from steptime.record.files import TF_DATA
from steptime.record.lines import kind_of, read_lines

MIN_INTERVALS = 3
_FAR = 3.0  # an interval this many medians long holds something else: a validation, a checkpoint

Lines = list[dict[str, Any]]


def read_tf_data(folder: Path, *, num_cores: int) -> TfData | None:
    """Return what tf.data said in the processes of a run; None where none of them imported it.

    Args:
        folder: the run's.
        num_cores: that the command may use.

    Raises:
        OSError: a file of the run cannot be read.
    """
    files = [list(read_lines(path)) for path in sorted(folder.glob(TF_DATA))]
    found = [pipeline for lines in files for pipeline in _pipelines(lines)]
    if not files:
        return None
    read = [one for one in found if _readings(one)]
    if not read:
        is_off = any(kind_of(line) == kinds.UNREAD for lines in files for line in lines)
        return TfData(pipeline=None, missing="autotune_off" if is_off else "not_iterated")
    main = max(read, key=lambda lines: sum(one["batches"] for one in _readings(lines)))
    pipeline = judge(main, num_cores=num_cores, num_others=len(found) - 1)
    return TfData(pipeline=pipeline, missing=None if pipeline else "too_short")


def _pipelines(lines: Lines) -> Iterator[Lines]:
    """Yield the lines of each pipeline of a process."""
    for first in (line for line in lines if kind_of(line) == kinds.PIPELINE):
        yield [line for line in lines if line.get("id") == first["id"]]


def _readings(lines: Lines) -> Lines:
    return [line for line in lines if kind_of(line) == kinds.PIPELINE_MODEL]


def judge(lines: Lines, *, num_cores: int, num_others: int = 0) -> TfPipeline | None:
    """Return what the lines of one pipeline say; None where they are too few."""
    readings = _readings(lines)
    timed = [(one["seconds"], one["batches"]) for one in readings if one["seconds"] is not None]
    gaps = [gap for one in readings for gap in one["gaps_us"]]
    if len(timed) < MIN_INTERVALS or not gaps:
        return None
    step_s = _usual(timed)
    own_s = _usual([(gap / 1e6, 1) for gap in gaps])
    stages = find_stages(lines[0]["chain"], readings, step_s=step_s)
    # No step waits longer than the pipeline works: the rest is a neighbor's, or the machine's.
    wait_s = min(max(step_s - own_s, 0.0), sum(stage.time_s for stage in stages))
    consumer_s = step_s - wait_s
    times = part_times(stages)
    slowest, input_s = max(times, key=lambda part: part[1], default=((), 0.0))
    return TfPipeline(
        num_batches=sum(one["batches"] for one in readings),
        step_s=step_s,
        consumer_s=consumer_s,
        wait_s=wait_s,
        input_s=input_s,
        stages=stages,
        held_back_by=max(slowest, key=lambda i: stages[i].time_s, default=None),
        bound=step_s / consumer_s,
        advice=advise(stages, step_s=step_s, consumer_s=consumer_s, num_cores=num_cores),
        num_others=num_others,
    )


def _usual(timed: Sequence[tuple[float, int]]) -> float:
    """Return the mean time of a batch [s], without the intervals that hold something else."""
    usual = median([seconds / batches for seconds, batches in timed])
    kept = [(s, n) for s, n in timed if s / n <= _FAR * usual]
    return sum(s for s, _ in kept) / sum(n for _, n in kept)


def find_stages(
    chain: list[dict[str, Any]], readings: Lines, *, step_s: float
) -> tuple[TfStage, ...]:
    """Return the stages of a pipeline over all its iterators, in the order of the data."""
    sums: dict[tuple[int | None, str], Work] = {}
    num_batches = 0
    for name in dict.fromkeys(one["iterator"] for one in readings):
        own = [one for one in readings if one["iterator"] == name]
        nodes = latest_nodes(own)
        num_batches += nodes[own[-1]["output"]].elements
        for work in find_work(nodes, own[-1]["output"], chain):
            _merge(sums, work)
    works = sorted(sums.values(), key=lambda one: _order(one, len(chain)))
    return tuple(_stage(one, chain, num_batches, step_s) for one in reversed(works))


def _order(work: Work, num_calls: int) -> int:
    """Sort by the chain; what tf.data adds itself stands at the pipeline's end."""
    return -1 if work.call is None else min(work.call, num_calls)


def _merge(sums: dict[tuple[int | None, str], Work], work: Work) -> None:
    known = sums.setdefault((work.call, work.kind), Work(work.call, work.kind))
    known.elements += work.elements
    known.work_ns += work.work_ns
    known.num_bytes += work.num_bytes
    known.num_parallel = work.num_parallel or known.num_parallel


def _stage(work: Work, chain: Sequence[dict[str, Any]], num_batches: int, step_s: float) -> TfStage:
    row = {} if work.call is None else chain[work.call]
    num_parallel = work.num_parallel or _positive(row.get("reads"))
    work_s = work.work_ns / 1e9 / num_batches
    return TfStage(
        name=method_of(work.kind),
        file=row.get("file"),
        line=row.get("line"),
        work_s=work_s,
        # tf.data changes the number of threads as it goes; none takes longer than the step.
        time_s=min(work_s / (num_parallel or 1.0), step_s),
        elements_per_batch=work.elements / num_batches,
        num_parallel=num_parallel,
        num_asked=row.get("parallel"),
        draws=row.get("draws"),
        runs_python=row.get("python"),
        bytes_per_element=work.num_bytes / work.elements if work.elements else None,
        num_elements=row.get("count"),
    )


def _positive(number: int | None) -> float | None:
    return float(number) if number is not None and number > 0 else None
