"""Makes the report of what tf.data's own statistics tell, and of what is worth changing."""

from __future__ import annotations

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_percent, format_seconds
from steptime.data.values.tf_data_values import AUTOTUNE, TfAdvice, TfData, TfPipeline, TfStage
from steptime.report.blocks.phrasing import labeled
from steptime.report.blocks.values import Blank, Block, Items, TableBlock

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


def tf_data_blocks(found: TfData, *, cwd: str) -> list[Block]:
    """Return the report on tf.data; files below `cwd` are named from there."""
    if found.pipeline is None:
        why = _MISSING.get(found.missing or "", found.missing)
        return labeled(("tf.data", f"not measured: {why}."))
    p = found.pipeline
    more = f"{p.num_others} further pipelines of the process are not shown."
    return [
        *labeled(("tf.data", _step(p))),
        Blank(),
        _stages(p, cwd),
        Blank(),
        *labeled(("result", _verdict(p, cwd))),
        *([Items([_advice(one, cwd) for one in p.advice])] if p.advice else []),
        *labeled(("note", more if p.num_others else None)),
    ]


def _step(p: TfPipeline) -> str:
    return (
        f"step {format_seconds(p.step_s)}: {format_seconds(p.wait_s)} wait for the next batch "
        f"({format_percent(p.wait_s / p.step_s)}), {format_seconds(p.consumer_s)} its own work "
        f"(tf.data's statistics, {p.num_batches:,} batches)"
    )


def _stages(p: TfPipeline, cwd: str) -> TableBlock:
    slowest = p.held_back_by if p.wait_s > 0 else None
    rows = [
        (*_row(stage, cwd), "<- slowest" if number == slowest else "")
        for number, stage in enumerate(p.stages)
    ]
    heading = ("stage", "line", "per batch", "threads", "elements", "")
    return TableBlock(heading, rows, left=2, name="The stages of tf.data")


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
