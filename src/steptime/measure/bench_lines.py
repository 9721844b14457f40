"""Turns the lines of the passes over a loader into what it costs, and what a better one could gain.

In: the lines of `bench.jsonl` of each pass. Out: a `LoaderBench`. A step with a kept batch is what
is left if loading costs nothing: no loader can make the step shorter than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from steptime.core.codec import from_json
from steptime.core.interval import Interval
from steptime.core.stats import bounded_mean, effective_size
from steptime.measure.values.loader_bench import (
    CONSUMER,
    COPY,
    HELPS,
    IN_LOADER,
    PIN,
    TRANSFORM,
    BenchedLoader,
    LoaderBench,
    LoaderPart,
    SampleSpan,
    TransformCost,
    WorkersPoint,
)
from steptime.record import kinds
from steptime.record.lines import Line, kind_of

NS = 1e-9

_Z = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLines:
    """The lines of each pass; empty where a pass was not made or said nothing."""

    full: Sequence[Line] = ()
    consumer: Sequence[Line] = ()
    parts: Sequence[Line] = ()


def make_loader_bench(command: tuple[str, ...], lines: PassLines, *, num_cores: int) -> LoaderBench:
    """Return what the passes say together.

    Args:
        command: of the user's.
        lines: of the passes.
        num_cores: cores that the command may use.
    """
    loop = find_line(lines.full, kinds.BENCH_LOOP)
    bench = LoaderBench(command=command, loader=None, num_cores=num_cores)
    if loop is None:
        return bench
    bench = replace(
        bench,
        loader=from_json(BenchedLoader, loop["loader"]),
        others=tuple(from_json(BenchedLoader, one) for one in loop["others"]),
    )
    bench = _with_steps(bench, loop, find_line(lines.consumer, kinds.BENCH_LOOP))
    bench = _with_parts(bench, lines.parts)
    bench = replace(bench, parts=(*bench.parts, *_copies(loop)))
    return judge(replace(bench, curve=_curve(bench, lines.parts)))


def find_line(lines: Sequence[Line], kind: str, **fields: object) -> Line | None:
    """Return the first line of a kind that has these fields."""
    for line in lines:
        if kind_of(line) == kind and all(line.get(key) == value for key, value in fields.items()):
            return line
    return None


# -- the loop


def _with_steps(bench: LoaderBench, full: Line, consumer: Line | None) -> LoaderBench:
    """Add the times of the loop with its loader, and with a kept batch."""
    missing, notes = dict(bench.missing), list(bench.notes)
    first_ns = full["first_batch_ns"]
    bench = replace(bench, first_batch_s=None if first_ns is None else first_ns * NS)
    if not full["steps"]:
        missing["step_s"] = "short_epochs"
        return replace(bench, missing=missing)
    waits_s = sorted(wait * NS for _, wait in full["steps"])
    steps_s = [(work + wait) * NS for work, wait in full["steps"]]
    if consumer is not None and consumer["steps"]:
        kept_s, tail_ns = [work * NS for work, _ in consumer["steps"]], consumer.get("tail_ns", 0)
        bench = replace(bench, num_kept=consumer["num_kept"])
        if bench.num_kept > 1:
            notes.append("shapes_differ")
    else:
        # A part of what the device does may lie in the waits, so this is the least it can be.
        kept_s, tail_ns = [work * NS for work, _ in full["steps"]], 0
        notes.append("consumer_beside_loader")
    step = mean_interval(steps_s, added_s=full.get("tail_ns", 0) * NS / len(steps_s))
    alone = mean_interval(kept_s, added_s=tail_ns * NS / len(kept_s))
    return replace(
        bench,
        step_s=step,
        consumer_s=alone,
        bound=ratio_interval(step, alone),
        wait_s=bounded_mean(waits_s),
        wait_p99_s=waits_s[min(len(waits_s) - 1, math.ceil(0.99 * len(waits_s)) - 1)],
        notes=tuple(notes),
        missing=missing,
    )


def mean_interval(values_s: Sequence[float], *, added_s: float = 0.0) -> Interval:
    """Return the mean with an interval of 95 % for as many values as are independent.

    The mean and not the median: with workers, one step in several waits for all of them.
    """
    mean, n = bounded_mean(values_s), effective_size(values_s)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values_s) / max(1, len(values_s) - 1))
    half = _Z * spread / math.sqrt(n)
    return Interval(
        estimate=mean + added_s,
        low=max(0.0, mean - half) + added_s,
        high=mean + half + added_s,
        n=len(values_s),
    )


def ratio_interval(above: Interval, below: Interval) -> Interval | None:
    """Return the ratio of two means, with the interval that follows from theirs."""
    if below.estimate <= 0 or above.estimate <= 0:
        return None
    ratio = above.estimate / below.estimate
    away = math.hypot(*((one.high - one.estimate) / one.estimate for one in (above, below)))
    return Interval(
        estimate=ratio,
        low=ratio * math.exp(-away),
        high=ratio * math.exp(away),
        n=min(above.n, below.n),
    )


def _copies(loop: Line) -> tuple[LoaderPart, ...]:
    """Return what it takes to pin a batch and to copy it to the device."""
    steps, has_device = len(loop["steps"]), loop["device"] is not None
    own_ns, copy_ns, pin_ns = loop["copies_ns"], loop.get("copy_ns"), loop.get("pin_ns")
    if own_ns is not None and steps and copy_ns is None:
        copy_ns = own_ns / steps
    why = "not_copied" if has_device else "no_device"
    return (
        LoaderPart(name=PIN, missing="not_pinned" if has_device else why)
        if pin_ns is None
        else LoaderPart(name=PIN, wall_s=pin_ns * NS),
        LoaderPart(name=COPY, missing=why)
        if copy_ns is None
        else LoaderPart(name=COPY, wall_s=copy_ns * NS),
    )


# -- the parts


def _with_parts(bench: LoaderBench, lines: Sequence[Line]) -> LoaderBench:
    """Add the parts of a batch, from the passes that read batches apart."""
    missing, details, notes = dict(bench.missing), dict(bench.details), list(bench.notes)
    warm, cached, cold = (
        find_line(lines, kinds.BENCH_PASS, **{"pass": name}) for name in ("warm", "cached", "cold")
    )
    shown = cached if _is_well(cached) else warm
    if shown is None or not _is_well(shown):
        missing["parts"] = "not_read"
        if shown is not None:
            details["parts"] = str(shown.get("error", "no batch"))
        return replace(bench, missing=missing, details=details)
    is_cold = _is_well(cold) and cold is not None and cold["read_bytes"] != 0
    if not is_cold:
        notes.append("cold_no_files" if cold is None else _why_not_cold(cold))
    elif cold is not None and cold["read_bytes"] is None:
        notes.append("cold_not_checked")
    num = shown["timed_batches"]
    parts = []
    for name in IN_LOADER:
        cold_s = None
        if is_cold and cold is not None:
            cold_s = _total(cold["wall_ns"], name) * NS / cold["timed_batches"]
        parts.append(
            LoaderPart(
                name=name,
                wall_s=_total(shown["wall_ns"], name) * NS / num,
                cpu_s=_total(shown["cpu_ns"], name) * NS / num,
                cold_wall_s=cold_s,
            )
        )
    cpu_s, samples = sum(part.cpu_s or 0.0 for part in parts), shown["samples"]
    return replace(
        bench,
        parts=tuple(parts),
        transforms=_transforms(shown),
        sample=_spans(shown),
        is_whole_batch=shown["is_whole_batch"],
        samples_per_batch=samples / num if samples else None,
        cpu_per_sample_s=cpu_s * num / samples if samples else None,
        num_files=None if warm is None else warm["num_files"],
        notes=tuple(notes),
        missing=missing,
        details=details,
    )


def _is_well(line: Line | None) -> bool:
    return line is not None and "error" not in line and line["batches"] > 0


def _why_not_cold(cold: Line) -> str:
    return "cold_failed" if "error" in cold else "cold_kept_in_memory"


def _total(times: Mapping[str, int], part: str) -> int:
    """Return the time of a part; those of a chain's transforms are one part."""
    return sum(value for name, value in times.items() if name.partition(":")[0] == part)


def _transforms(line: Line) -> tuple[TransformCost, ...]:
    num = line["timed_batches"]
    return tuple(
        TransformCost(
            name=one["name"],
            place=one["place"],
            wall_s=line["wall_ns"].get(f"{TRANSFORM}:{number}", 0) * NS / num,
            cpu_s=line["cpu_ns"].get(f"{TRANSFORM}:{number}", 0) * NS / num,
        )
        for number, one in enumerate(line["transforms"])
    )


def _spans(line: Line) -> tuple[SampleSpan, ...]:
    names = [one["name"] for one in line["transforms"]]
    found = []
    for part, start_ns, end_ns in line["sample"]:
        kind, _, number = part.partition(":")
        name = names[int(number)] if number else kind
        found.append(SampleSpan(part=name, start_s=start_ns * NS, end_s=end_ns * NS))
    return tuple(found)


# -- what follows


def judge(bench: LoaderBench) -> LoaderBench:
    """Add the bottleneck, and how many workers keep up with the step."""
    bench = replace(bench, bottleneck=_bottleneck(bench))
    wall_s, cpu_s, alone = bench.loader_s, bench.loader_cpu_s, bench.consumer_s
    if not wall_s or cpu_s is None or alone is None or alone.estimate <= 0:
        return bench
    needed = max(1, math.ceil(round(wall_s / alone.estimate, 3)))
    return replace(bench, workers_needed=needed, cores_needed=cpu_s / alone.estimate)


def _bottleneck(bench: LoaderBench) -> str | None:
    """Return the part that a step waits for most, or the training itself."""
    if bench.bound is None or bench.loader is None:
        return None
    if bench.bound.estimate < HELPS:
        return CONSUMER
    # Workers make batches beside each other; copies wait for each other.
    beside = max(1, min(bench.loader.num_workers, bench.num_cores))
    times = {
        part.name: part.wall_s / (beside if part.name in IN_LOADER else 1)
        for part in bench.parts
        if part.wall_s and part.name != PIN
    }
    return max(times, key=lambda name: times[name], default=None)


def _curve(bench: LoaderBench, lines: Sequence[Line]) -> tuple[WorkersPoint, ...]:
    """Return batches a second by workers: measured where that was asked for, else predicted."""
    measured = [
        WorkersPoint(
            num_workers=line["num_workers"],
            batches_per_s=line["batches"] / (line["took_ns"] * NS),
            is_measured=True,
        )
        for line in lines
        if kind_of(line) == kinds.BENCH_WORKERS and line.get("batches")
    ]
    return tuple(measured) or predicted_curve(bench)


def predicted_curve(bench: LoaderBench) -> tuple[WorkersPoint, ...]:
    """Return batches a second by workers, from the parts: until the cores are busy."""
    wall_s, cpu_s = bench.loader_s, bench.loader_cpu_s
    if not wall_s or cpu_s is None:
        return ()
    counts = sorted({0, bench.num_cores, *(1 << p for p in range(bench.num_cores.bit_length()))})
    most = bench.num_cores / cpu_s if cpu_s > 0 else math.inf
    return tuple(
        WorkersPoint(
            num_workers=count,
            batches_per_s=min(max(1, count) / wall_s, most),
            is_measured=False,
        )
        for count in counts
    )
