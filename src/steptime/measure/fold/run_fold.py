"""Makes the Measurement of a run, the second value of the chain.

In: `RunRecords`. Out: a `Measurement`. It folds the ranks and chooses their windows one by one,
then combines them; docs/explanation/how-we-measure.md says how. `diagnose` judges the result.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from steptime.core.process_end import ProcessEnd
from steptime.measure.fold.asked_steps import steps_asked
from steptime.measure.fold.bare_measurement import measure_bare, worker_bytes_of
from steptime.measure.fold.code_places import (
    find_attention,
    find_compilation,
    find_operators,
    find_sites,
    find_suspicions,
    name_loaders,
    places_of,
)
from steptime.measure.fold.rank_balance import find_balance
from steptime.measure.fold.rank_fold import Folded, fold_ranks
from steptime.measure.fold.run_records import RunRecords
from steptime.measure.health.find_health import find_health
from steptime.measure.memory.longest_batch import find_longest
from steptime.measure.memory.memory_anatomy import find_anatomy
from steptime.measure.memory.memory_use import device_memory, gc_pauses, host_memory, place_samples
from steptime.measure.memory.run_peak import add_peaks
from steptime.measure.said.find_said import find_said, find_search
from steptime.measure.sense.find_sense import find_sense
from steptime.measure.spent.spent_lines import find_repeats, find_spent
from steptime.measure.steps.phases import (
    find_missing,
    mean_counts,
    summarize_phases,
    summarize_spans,
)
from steptime.measure.steps.steady_window import (
    StepWindow,
    series_of,
    window_of,
)
from steptime.measure.steps.step_fold import RankSteps, fold_nothing
from steptime.measure.values.measurement import Measurement, Overhead, RankSummary
from steptime.measure.values.model.work import Count
from steptime.measure.wall.host_load import load_in_window
from steptime.measure.wall.stalled_steps import count_steps
from steptime.measure.wall.time_of_run import find_wall_time
from steptime.measure.wall.timed_loops import find_python_loops
from steptime.measure.wall.training_loops import find_loops
from steptime.measure.work.length_work import LengthWork, find_length_work
from steptime.measure.work.operator_share import within_phases
from steptime.measure.work.padding import find_padding, useful_fraction
from steptime.measure.work.step_work import find_count
from steptime.measure.work.tokens import size_per_step, tokens_per_step
from steptime.record.places import NS


def measure(records: RunRecords, *, end: ProcessEnd | None = None) -> Measurement:
    """Return the measurement of a run.

    Args:
        records: what the run's folder holds.
        end: how the command ended, where more is known than `command.json` says, such as that it
            is still running.
    """
    return measure_ranks(fold_ranks(records), end=end)


def measure_ranks(folded: Folded, *, end: ProcessEnd | None = None) -> Measurement:
    """Return the measurement of ranks that were folded already."""
    records = folded.records
    bare = measure_bare(records, end=end, ranks=folded.steps, windows=folded.windows)
    if not folded.ranks:
        return replace(bare, ranks=_ranks_without_steps(records))
    return _with_steps(bare, folded)


def _ranks_without_steps(records: RunRecords) -> tuple[RankSummary, ...]:
    """Return the memory of processes that ended before a step, for example because it ran out."""
    ranks = [fold_nothing(stream) for stream in records.streams if stream.signals.memory]
    return tuple(_summarize(rank, window_of(rank, series_of(rank)), records) for rank in ranks)


def _with_steps(bare: Measurement, folded: Folded) -> Measurement:
    """Return the measurement with the steps of at least one rank."""
    records, ranks, windows = folded.records, folded.steps, folded.windows
    busiest, window = folded.busiest.steps, folded.busiest.window
    missing = find_missing(ranks, has_workers=bool(records.workers))
    spans, places = summarize_spans(busiest), places_of(records)
    work = find_count(folded, records.counted)
    by_length = _length_work(folded, work.count)
    memory = find_anatomy(records.memory, ranks, worker_bytes=worker_bytes_of(records))
    memory = add_peaks(memory, folded.ranks)
    health = find_health(ranks, busiest, places)
    sites = find_sites(busiest, places)
    steady, phases = folded.steady_window(), summarize_phases(windows, missing)
    counts = mean_counts(windows)
    timed = partial(find_wall_time, folded.busiest, records, duration_s=bare.duration_s)
    return replace(
        bare,
        num_steps=max(rank.num_steps for rank in ranks),
        num_optimizer_updates=busiest.num_updates,
        num_backwards=busiest.num_backwards,
        num_skipped_updates=busiest.num_skipped,
        num_ranks=len(ranks),
        period=window.period,
        steady=steady,
        phases=phases,
        spans=spans,
        copies_per_step=None if counts is None else counts.get("copies", 0.0),
        syncs_per_step=None if counts is None else counts.get("syncs", 0.0),
        counts_per_step=counts,
        ranks=tuple(map(partial(_summarize, records=records), ranks, windows)),
        host=load_in_window(records, ranks[0], windows[0], left_out=folded.left_out)
        if windows[0].num_steps
        else bare.host,
        overhead=_overhead(busiest, window),
        prepare_fraction=_prepare_fraction(ranks, windows, missing),
        sites=sites,
        python_loops=find_python_loops(places, sites),
        spent=find_spent(busiest, places),
        repeats=find_repeats(busiest, places),
        operators=find_operators(busiest, places),
        count=within_phases(work.count, phases, steady),
        count_missing=work.missing,
        compilation=find_compilation(busiest, spans, places),
        suspicions=find_suspicions(busiest, places),
        attention=find_attention(busiest, places),
        stalls=count_steps(records.stalls, ranks),
        memory=memory,
        longest_batch=find_longest(folded.ranks, memory, records.memory),
        padding=find_padding(
            [rank.signals.batches for rank in ranks], by_length, places.padding_places()
        ),
        balance=find_balance(folded.ranks, by_length),
        health=health,
        sense=find_sense(busiest, ranks, records, places),
        wall_time=timed(health=health, places=places),
        asked=steps_asked(busiest),
        loops=find_loops(busiest, places),
        said=find_said(ranks, places, records.said),
        unused_search=find_search(ranks),
    )


def _length_work(folded: Folded, count: Count | None) -> LengthWork:
    """Return how work grows with the length of rows; only of tokens, elements are positions."""
    seen = folded.busiest.steps.signals
    if not seen.has_tokens:
        return LengthWork()
    return find_length_work(count, seen.counts or folded.records.counted)


def _summarize(rank: RankSteps, window: StepWindow, records: RunRecords) -> RankSummary:
    missing = find_missing([rank], has_workers=bool(records.workers))
    machine = records.command.machine
    placed = place_samples(rank, window)
    first = next(iter(rank.signals.optimizers), None)
    places = places_of(records)
    limits = [n for n in (machine.memory_bytes, machine.memory_limit_bytes) if n is not None]
    return RankSummary(
        rank=rank.head.rank,
        pid=rank.head.pid,
        world_size=rank.head.world_size,
        python_version=rank.head.python,
        torch_version=rank.head.torch,
        device=rank.head.device,
        versions=rank.head.versions,
        input_shapes=rank.signals.input_shapes,
        loaders=name_loaders(rank.signals.loaders, places),
        awaited=rank.signals.awaited,
        num_threads=rank.head.num_threads,
        num_steps=rank.num_steps,
        num_optimizer_updates=rank.num_updates,
        num_backwards=rank.num_backwards,
        step_time_s=window.steady.step_time_s,
        step_cpu_s=window.steady.step_cpu_s,
        phases=summarize_phases([window], missing),
        ended_cleanly=rank.end is not None,
        host_memory=host_memory(rank, placed, limit_bytes=min(limits, default=None)),
        device_memory=device_memory(rank, placed),
        gc=gc_pauses(rank, window),
        tokens_per_step=tokens_per_step(rank, window),
        rows_per_step=size_per_step(rank, window, "input_rows"),
        useful_fraction=useful_fraction(rank.signals.batches),
        device_name=rank.head.device_name,
        device_bytes=rank.head.device_bytes,
        num_multiprocessors=rank.head.num_multiprocessors,
        where=None if first is None else places.where(first.file, first.line),
        capabilities=records.command.capabilities if rank.head.device == "cpu" else None,
        optimizers=tuple(dict.fromkeys(one.kind for one in rank.signals.optimizers)),
        num_exchanges=None if rank.cost is None else rank.cost.exchanges,
    )


def _prepare_fraction(
    ranks: Sequence[RankSteps], windows: Sequence[StepWindow], missing: Mapping[str, str]
) -> float | None:
    """Return the share of the windows between a batch's arrival and the model's call.

    It is None where no loader or no call of a model was seen, or the guest did not count it.
    """
    reasons = {missing.get("input_wait"), missing.get("forward")}
    total_s = math.fsum(chain.from_iterable(window.times_s() for window in windows))
    is_counted = all("prepare_ns" in rank.head.counts for rank in ranks)
    if reasons & {"no_loader_seen", "no_module_seen"} or not is_counted or total_s <= 0:
        return None
    return sum(window.total("prepare_ns") for window in windows) * NS / total_s


def _overhead(rank: RankSteps, window: StepWindow) -> Overhead | None:
    """Return what the guest cost per step: its markers, its writing, and wrapped calls."""
    cost = rank.cost
    num_rows = 0 if cost is None else cost.updates if cost.rows is None else cost.rows
    if cost is None or num_rows == 0:
        return None
    nested_ns = cost.nested_calls * cost.nested_ns
    spent_s = (cost.self_ns + cost.flush_ns + nested_ns + cost.rest_ns) * NS
    num_seen = rank.num_seen_updates + rank.num_by_hand
    per_step_s = spent_s / num_rows * (num_seen / rank.num_steps)
    cpu_s = _mean_cpu_s(window)
    return Overhead(cpu_s_per_step=per_step_s, fraction=per_step_s / cpu_s if cpu_s else None)


def _mean_cpu_s(window: StepWindow) -> float | None:
    """Return the CPU time of a mean step; where phases are a sample's, it is known of all steps."""
    if window.is_sample:
        known = window.steady.step_cpu_s
        return None if known is None else known.estimate
    blocks = (block.cpu_times_s for block in window.blocks)
    times_s = array("d", chain(window.steps.cpu_times_s, *blocks))
    return math.fsum(times_s) / len(times_s) if times_s else None
