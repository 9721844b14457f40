"""Turns the lines of the passes over a loader into what it costs, and what a better one could gain.

In: the lines of `bench.jsonl` of each pass. Out: a `LoaderBench`. A step with a kept batch is what
is left if loading costs nothing: no loader can make the step shorter than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from steptime.core.codec import from_json
from steptime.measure.tried.bench_steps import NS, helps, with_steps
from steptime.measure.values.loader_bench import (
    CONSUMER,
    COPY,
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

CHUNK_MISMATCH = 4
"""Chunks that are so many times as large as what is asked of them cost most of the reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLines:
    """The lines of each pass; empty where a pass was not made or said nothing.

    A pass over the loop that was made again has its lines behind those of the first one.
    """

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
    bench = with_steps(bench, find_lines(lines.full), find_lines(lines.consumer))
    bench = _with_parts(bench, lines.parts)
    bench = replace(bench, parts=(*bench.parts, *_copies(loop)))
    return judge(replace(bench, curve=_curve(bench, lines.parts)))


def find_line(lines: Sequence[Line], kind: str, **fields: object) -> Line | None:
    """Return the first line of a kind that has these fields."""
    for line in lines:
        if kind_of(line) == kind and all(line.get(key) == value for key, value in fields.items()):
            return line
    return None


def find_lines(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of the windows over the loop, one for each time that it was run."""
    return [line for line in lines if kind_of(line) == kinds.BENCH_LOOP]


# -- the parts


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
    asked, decoded = shown.get("chunk_bytes", (0, 0))
    if decoded > CHUNK_MISMATCH * asked:
        notes.append("chunk_mismatch")
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
    if helps(bench.bound) is None and bench.bound is not None:
        bench = replace(bench, missing={**bench.missing, "bottleneck": "unclear"})
    bench = replace(bench, bottleneck=_bottleneck(bench))
    wall_s, cpu_s, alone = bench.loader_s, bench.loader_cpu_s, bench.consumer_s
    if not wall_s or cpu_s is None or alone is None or alone.estimate <= 0:
        return bench
    needed = max(1, math.ceil(round(wall_s / alone.estimate, 3)))
    return replace(bench, workers_needed=needed, cores_needed=cpu_s / alone.estimate)


def _bottleneck(bench: LoaderBench) -> str | None:
    """Return the part that a step waits for most, or the training itself."""
    has_gain = helps(bench.bound)
    if has_gain is None or bench.loader is None:
        return None
    if not has_gain:
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
