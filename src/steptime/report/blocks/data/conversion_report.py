"""Says what a conversion of data would give, and what it gave.

In: the values of `data convert`. Out: blocks.
"""

from __future__ import annotations

import shlex

from steptime.core.interval import Interval
from steptime.core.printable import printable
from steptime.core.units import (
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
    format_speedup,
)
from steptime.data.values.conversion_values import (
    MIN_GAIN,
    ConversionAnswer,
    ConversionProgress,
    Prediction,
)
from steptime.report.blocks.phrasing import labeled
from steptime.report.blocks.values import Blank, Block, CommandLine, TableBlock


def prediction_blocks(predicted: Prediction) -> list[Block]:
    """Return the prediction as a small table."""
    what = f"{predicted.target_format}, {predicted.treatment or 'bytes kept as they are'}"
    rows = [
        ("from", f"{predicted.source_format}, {format_count(predicted.num_samples)} samples"),
        ("to", what),
        ("size now", _bytes(predicted.source_bytes)),
        ("size then", _size_then(predicted)),
    ]
    if predicted.gain is not None:
        rows += [
            ("a sample now", format_seconds(predicted.source_s)),
            ("a sample then", format_seconds(predicted.target_s)),
            ("gain", _gain(predicted.gain)),
        ]
    rows += [
        ("converting", f"about {format_seconds(predicted.convert_s)} in one thread"),
        ("disk", _disk(predicted)),
    ]
    head = f"from {format_count(predicted.num_sampled)} samples, read and converted"
    return [*labeled(("predicted", head)), TableBlock(("", ""), rows, left=2, label="")]


def _bytes(size: float | None) -> str:
    return "not known before all of it is read" if size is None else format_bytes(size)


def _size_then(predicted: Prediction) -> str:
    then = predicted.target_bytes
    told = format_bytes(then.estimate)
    if then.high > then.low:
        told += f" ({format_bytes(then.low)} to {format_bytes(then.high)})"
    if predicted.source_bytes:
        told += f", {format_speedup(then.estimate / predicted.source_bytes)} of now"
    return told


def _gain(gain: Interval) -> str:
    low, high = format_speedup(gain.low), format_speedup(gain.high)
    return f"{format_speedup(gain.estimate)} ({low} to {high}, {gain.n} pairs)"


def _disk(predicted: Prediction) -> str:
    rate = predicted.disk_bytes_per_s
    told = f"{format_bytes(predicted.free_bytes)} free"
    told += "" if rate is None else f", reads {format_rate(rate, 'bytes_per_s')}"
    return f"{told}; memory for its cache: {format_bytes(predicted.memory_bytes)}"


def refusal_of(predicted: Prediction) -> tuple[str, ...]:
    """Return why the conversion is not done, and what would help: a sentence or two each."""
    told = "" if predicted.gain is None else format_speedup(predicted.gain.estimate)
    lines = [f"Not converted: reading it would be {told} as fast, less than {MIN_GAIN}x."]
    if predicted.is_disk_bound:
        lines.append(
            "The converted data does not fit into memory, and the disk gives it more slowly than "
            "a training could take it. Store less: --resize 256, --jpeg 90; or use a faster disk."
        )
    elif not predicted.treatment:
        lines.append(
            "Decoding the pictures, or the format itself, is the cost, and that would stay. Store "
            "pixels with --decode, or smaller pictures with --resize 256."
        )
    return (*lines, "To convert it all the same: --force")


def conversion_blocks(answer: ConversionAnswer) -> list[Block]:
    """Return what was done, and what to do with it; else why not."""
    done = answer.conversion
    if done is None:
        is_refused = not answer.prediction.is_worth_it
        return labeled(*(("", text) for text in refusal_of(answer.prediction) if is_refused))
    resumed = f" ({done.num_resumed} of them from before)" if done.num_resumed else ""
    told = (
        f"{format_count(done.num_samples)} samples in {done.num_shards} shards{resumed}, "
        f"{format_bytes(done.num_bytes)}, in {format_seconds(done.wall_s)} "
        f"({format_seconds(done.cpu_s)} of CPU time)."
    )
    checked = "Each shard and each sample was read back from the disk, and is what the source gave."
    blocks = labeled(("wrote", told), ("checked", checked))
    target = printable(answer.target)
    blocks += [Blank(), *labeled(("read it", f'steptime.data.open_source("{target}")'))]
    blocks.append(CommandLine(f"steptime data bench {shlex.quote(target)}", "next"))
    return blocks


def progress_line(progress: ConversionProgress) -> str:
    """Return how far a conversion is, on one line."""
    verb = "converting" if progress.phase == "convert" else "checking"
    left = "" if progress.left_s is None else f", {format_seconds(progress.left_s)} left"
    done, total = format_count(progress.num_done), format_count(progress.num_samples)
    return f"{verb}: {done} of {total} samples{left}"
