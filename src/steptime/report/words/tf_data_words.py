"""Says what tf.data's own statistics tell of an input pipeline, and what is worth changing."""

from __future__ import annotations

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_percent, format_seconds
from steptime.data.values.tf_data_values import AUTOTUNE, TfAdvice, TfData, TfPipeline, TfStage

_MISSING = {
    "not_iterated": "a tf.data pipeline was made, but none gave a batch outside of a graph: "
    "a loop over a data set inside of tf.function keeps no statistics that can be read",
    "autotune_off": "tf.data keeps no statistics where its autotuning is switched off "
    "(options.autotune.enabled = False)",
    "too_short": "the pipeline ended before enough of its batches were counted; "
    "more epochs or batches would do",
}
_CHANGES = {
    "parallel_map": "map(..., num_parallel_calls=tf.data.AUTOTUNE)",
    "autotune": "num_parallel_calls=tf.data.AUTOTUNE instead of a fixed number below the cores",
    "parallel_reads": "read several files at once: "
    "interleave(..., num_parallel_calls=tf.data.AUTOTUNE), or num_parallel_reads of the reader",
    "vectorize": "batch() before this map, with a function that takes the whole batch: "
    "a call costs more than its work",
    "cache": "cache() behind this line: what comes before is the same in each epoch",
    "cache_before_shuffle": "cache() behind this line, with shuffle() moved behind the cache: "
    "what comes before is the same in each epoch",
    "prefetch": "prefetch(tf.data.AUTOTUNE) at the end: the step waits while a batch is made",
    "python_function": "this runs in Python, one call at a time whatever num_parallel_calls says: "
    "write it with TensorFlow's operators",
}


def describe_tf_data(found: TfData, *, cwd: str) -> list[str]:
    """Return the lines of the report on tf.data; files below `cwd` are named from there."""
    if found.pipeline is None:
        return [f"tf.data: not measured: {_MISSING.get(found.missing or '', found.missing)}."]
    p = found.pipeline
    lines = [_step(p), "", *_stages(p, cwd), "", _verdict(p, cwd)]
    lines += [f"  {_advice(one, cwd)}" for one in p.advice]
    if p.num_others:
        lines.append(f"{p.num_others} further pipelines of the process are not shown.")
    return lines


def _step(p: TfPipeline) -> str:
    return (
        f"step {format_seconds(p.step_s)}: {format_seconds(p.wait_s)} wait for the next batch "
        f"({format_percent(p.wait_s / p.step_s)}), {format_seconds(p.consumer_s)} its own work "
        f"(tf.data's statistics, {p.num_batches:,} batches)"
    )


def _stages(p: TfPipeline, cwd: str) -> list[str]:
    rows = [("stage", "line", "per batch", "threads", "elements")]
    rows += [_row(stage, cwd) for stage in p.stages]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    aligned = [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  "
        + "  ".join(f"{row[i]:>{widths[i]}}" for i in (2, 3, 4))
        for row in rows
    ]
    if p.held_back_by is not None and p.wait_s > 0:
        aligned[p.held_back_by + 1] += "  <- slowest"
    return aligned


def _row(stage: TfStage, cwd: str) -> tuple[str, str, str, str, str]:
    if stage.num_parallel is None:
        threads = "1"
    else:
        threads = f"{stage.num_parallel:.0f}" + (" (tuned)" if stage.num_asked == AUTOTUNE else "")
    elements = f"{stage.elements_per_batch:.1f}" if stage.elements_per_batch else "-"
    return (
        stage.name,
        _place(stage.file, stage.line, cwd) or "added by tf.data",
        format_seconds(stage.time_s),
        threads,
        elements,
    )


def _verdict(p: TfPipeline, cwd: str) -> str:
    bound = f"{p.bound:.2f}x"
    if not p.advice and p.bound < 1.05:
        return f"The step does not wait for its data: no change of the pipeline gains over {bound}."
    if p.held_back_by is None:
        return f"No change of the pipeline can gain more than {bound}."
    stage = p.stages[p.held_back_by]
    place = _place(stage.file, stage.line, cwd)
    where = f" in {place}" if place else ""
    said = f"{stage.name}{where} is its slowest part; no change of the pipeline gains over {bound}."
    return said + (" Worth trying:" if p.advice else "")


def _advice(advice: TfAdvice, cwd: str) -> str:
    place = _place(advice.file, advice.line, cwd) or "at its end"
    said = f"{place}: {_CHANGES[advice.change]}"
    if advice.change.startswith("cache"):
        size = "of unknown size"
        if advice.cache_bytes is not None:
            size = f"{format_bytes(advice.cache_bytes)}; cache(FILE) where memory is short"
        said += f" ({size}; from the second epoch on)"
    return said + ("" if advice.bound is None else f"; at most {advice.bound:.2f}x")


def _place(file: str | None, line: int | None, cwd: str) -> str | None:
    if file is None:
        return None
    return f"{printable(file.removeprefix(cwd.rstrip('/') + '/'))}:{line}"
