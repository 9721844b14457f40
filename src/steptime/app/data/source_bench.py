"""Measures what batches of a source cost, without a training.

In: where the data are. Out: a `LoaderBench`; with the time of a training's own step, the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from steptime.core.interval import Interval
from steptime.data import open_source
from steptime.data.source import SampleSource
from steptime.data.timed_reads import PART_NAMES, ReadTimes, files_of, time_reads
from steptime.measure.tried.bench_lines import judge, predicted_curve
from steptime.measure.tried.bench_steps import mean_interval, ratio_interval
from steptime.measure.values.loader_bench import BenchedLoader, LoaderBench, LoaderPart
from steptime.tune.trials.facts.resources import count_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, and how; `step_s` is a training's own step [s].

    None as `source_format` tells it by the contents; `seconds` is how long the first pass reads.
    """

    where: str
    source_format: str | None = None
    batch_size: int = 64
    seconds: float = 2.0
    step_s: float | None = None


def bench_source(options: SourceOptions) -> LoaderBench:
    """Measure a source.

    Raises:
        SteptimeError: it cannot be opened or read.
    """
    source = open_source(options.where, format=options.source_format)
    try:
        files = [] if "://" in options.where else files_of(options.where)
        times = time_reads(
            source, files=files, batch_size=options.batch_size, seconds=options.seconds
        )
        return make_source_bench(source, times, options)
    finally:
        source.close()


def make_source_bench(
    source: SampleSource, times: ReadTimes, options: SourceOptions
) -> LoaderBench:
    """Return what the times say."""
    num = times.num_batches
    parts = tuple(
        LoaderPart(
            name=name,
            wall_s=sum(batch[name] for batch in times.wall_s) / num,
            cpu_s=times.cpu_s[name] / num,
            cold_wall_s=None if times.cold_s is None else times.cold_s[name] / num,
        )
        for name in PART_NAMES
    )
    bench = LoaderBench(
        command=(options.where,),
        loader=BenchedLoader(
            dataset=source.name,
            batch_size=options.batch_size,
            num_workers=0,
            is_iterable=False,
            num_samples=len(source),
            num_bytes=source.num_bytes,
        ),
        is_source=True,
        num_cores=count_cores(),
        parts=parts,
        first_batch_s=times.first_s,
        samples_per_batch=times.num_samples / num,
        cpu_per_sample_s=sum(times.cpu_s.values()) / times.num_samples,
        notes=() if times.cold_missing is None else (times.cold_missing,),
    )
    bench = replace(bench, curve=predicted_curve(bench))
    made_s = [sum(batch.values()) for batch in times.wall_s]
    if options.step_s is None:
        largest = max(parts, key=lambda part: part.wall_s or 0.0)
        return replace(bench, bottleneck=largest.name)
    own = Interval(estimate=options.step_s, low=options.step_s, high=options.step_s, n=1)
    step = mean_interval(made_s, added_s=options.step_s)
    bench = replace(bench, step_s=step, consumer_s=own, bound=ratio_interval(step, own))
    return judge(bench)
