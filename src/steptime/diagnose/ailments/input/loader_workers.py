"""Ailments of the loader's workers: memory they copy, more of them than cores, a late first batch.

Each rule takes a Measurement and gives a Finding, or None where it does not apply; the rows below
have the words. docs/explanation/diagnosis.md explains them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts, by_same_load
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import (
    count,
    make_finding,
    median_step_s,
    seconds,
    share,
    size,
)
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.machine_load import WorkerSummary
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import HeldObjects, LoaderUse

MIN_COPIED_BYTES = Threshold(
    name="MIN_COPIED_BYTES",
    value=16 << 20,
    why="by all workers together: the interpreter's own objects are copied too, a few MiB in each",
)
MIN_COPIED_PART = Threshold(
    name="MIN_COPIED_PART",
    value=0.2,
    why="of the named objects, in each worker: less was copied for something else",
)
MUCH_COPIED = Threshold(
    name="MUCH_COPIED",
    value=0.1,
    why="of the memory that was left: then it is worth an edit",
)
BUSY_CORES = Threshold(
    name="BUSY_CORES",
    value=0.8,
    why="of the cores: where they are not busy, workers wait for a disk or a network, and more of "
    "them than cores help",
)
FAR_TOO_MANY = Threshold(
    name="FAR_TOO_MANY", value=2.0, why="times the cores: each worker gets half of one at most"
)
MIN_FIRST_S = Threshold(
    name="MIN_FIRST_S", value=2.0, why="seconds: starting two processes takes some tenths"
)
MIN_FIRST_STEPS = Threshold(
    name="MIN_FIRST_STEPS",
    value=20,
    why="steps that would have fitted in: with fewer, a batch is as slow later on",
)
MUCH_OF_RUN = Threshold(
    name="MUCH_OF_RUN", value=0.1, why="of the run: then a shorter start is worth an edit"
)

Parts = tuple[Evidence, ...]
MANY_BATCHES = Threshold(
    name="MANY_BATCHES",
    value=10,
    why="times those of a usual step: a script that sizes or checks its data reads a few",
)


def find_worker_copies(measurement: Measurement) -> Finding | None:
    """No bottleneck yet: workers copy the Python objects of a data set by reading them."""
    workers = measurement.workers
    if workers is None or workers.copied_bytes is None:
        return None
    held = next(_held(measurement), None)
    if held is None or workers.copied_bytes < MIN_COPIED_BYTES.value:
        return None
    if workers.copied_bytes < MIN_COPIED_PART.value * held.bytes * workers.num_workers:
        return None
    most = max(held.bytes * workers.num_workers, workers.copied_bytes)
    found = make_finding(
        WORKER_COPIES,
        severity=_severity_of(most, workers.copied_bytes, measurement),
        evidence=(
            *size("copied", workers.copied_bytes),
            *size("object_bytes", held.bytes),
            *size("at_most", most),
            *size("worker_private", workers.private_bytes),
            count("num_workers", workers.num_workers),
            count("length", held.length),
            count("num_objects", held.num_objects),
        ),
    )
    names = {"attribute": f"{held.holder}.{held.attribute}", "container": held.container}
    names["element"] = held.element
    return replace(found, where=held.where, where_text=held.text, names=names)


def _held(measurement: Measurement) -> Iterator[HeldObjects]:
    """Yield what workers hold, the largest first; only forked ones copy by reading."""
    uses = [use for use in _loaders(measurement) if use.start_method == "fork"]
    yield from sorted((one for use in uses for one in use.objects), key=lambda one: -one.bytes)


def _loaders(measurement: Measurement) -> list[LoaderUse]:
    return [use for rank in measurement.ranks for use in rank.loaders if use.num_workers]


def _severity_of(most: int, copied: int, measurement: Measurement) -> Severity:
    """Return how much it matters, by what is left of the memory."""
    left = None if measurement.host is None else measurement.host.min_available_bytes
    if left is None:
        return Severity.WARNING
    if most - copied > left:
        return Severity.CRITICAL
    return Severity.WARNING if most >= MUCH_COPIED.value * (left + copied) else Severity.INFO


def find_too_many_workers(measurement: Measurement) -> Finding | None:
    """No bottleneck of its own: more workers than cores, while the cores are busy."""
    host = measurement.host
    by_rank = [
        (max(use.num_workers for use in rank.loaders if use.num_workers), rank.loaders[0].num_cores)
        for rank in measurement.ranks
        if any(use.num_workers for use in rank.loaders)
    ]
    allowed = [cores for _, cores in by_rank if cores is not None]
    if host is None or not allowed:
        return None
    num_workers, cores = sum(num for num, _ in by_rank), max(allowed)
    if host.quota_cores is not None:
        cores = min(cores, max(1, math.ceil(host.quota_cores)))
    if host.job_cores < BUSY_CORES.value * cores:
        return None
    evidence: Parts = (
        count("num_workers", num_workers),
        count("usable_cores", cores),
        count("busy_cores", host.job_cores),
    )
    each = (measurement.workers.num_threads if measurement.workers else None) or 1
    own = sum(rank.num_threads or 1 for rank in measurement.ranks)
    num_threads = num_workers * each + own
    if each > 1 and num_threads > FAR_TOO_MANY.value * cores:
        parts = (("worker_threads", each), ("main_threads", own), ("num_threads", num_threads))
        evidence += tuple(count(name, value) for name, value in parts)
        return make_finding(TOO_MANY_THREADS, severity=Severity.WARNING, evidence=evidence)
    if num_workers <= cores:
        return None
    is_far = num_workers > FAR_TOO_MANY.value * cores
    severity = Severity.WARNING if is_far else Severity.INFO
    return make_finding(TOO_MANY_WORKERS, severity=severity, evidence=evidence)


def find_late_first_batch(measurement: Measurement) -> Finding | None:
    """No bottleneck of the step: the first batch comes late, by what it waits for."""
    wall, step_s = measurement.wall_time, median_step_s(measurement)
    waited_s = 0.0 if wall is None else wall.of("first_batch")
    if wall is None or not step_s or wall.total_s <= 0:
        return None
    fraction = waited_s / wall.total_s
    num = max((part.num or 0 for part in wall.parts if part.name == "first_batch"), default=0)
    per_step = max(1.0, (measurement.counts_per_step or {}).get("batches", 1.0))
    is_dropped = num >= MANY_BATCHES.value * per_step
    is_much = waited_s >= MIN_FIRST_S.value or (is_dropped and fraction >= MUCH_OF_RUN.value)
    if not is_much or waited_s < MIN_FIRST_STEPS.value * step_s:
        return None
    row, parts = _what_it_waits_for(measurement.workers, waited_s)
    if is_dropped:
        row, parts = (
            DROPPED_BATCHES,
            (count("num_batches", num), count("num_dropped", num - per_step)),
        )
    found = make_finding(
        row,
        severity=Severity.WARNING if fraction >= MUCH_OF_RUN.value else Severity.INFO,
        evidence=(
            seconds("first_batch_time", waited_s),
            count("steps_meanwhile", round(waited_s / step_s)),
            share("first_batch_share", fraction),
            *parts,
        ),
    )
    uses = [use.start_method for use in _loaders(measurement) if use.start_method]
    return replace(found, names={"start_method": uses[0]}) if uses else found


def _what_it_waits_for(workers: WorkerSummary | None, waited_s: float) -> tuple[Ailment, Parts]:
    """Return the row of the largest part of the wait, and the parts as evidence."""
    if workers is None:
        return SLOW_FIRST_READ, ()
    start_s, fetch_s = workers.first_start_s, workers.first_fetch_s
    if start_s is None or fetch_s is None:
        return LATE_FIRST_BATCH, ()
    parts = (seconds("first_start", start_s), seconds("first_fetch", fetch_s))
    if max(start_s, fetch_s) < waited_s / 2:
        return LATE_FIRST_BATCH, parts
    return (SLOW_WORKER_START if start_s >= fetch_s else SLOW_FIRST_FETCH), parts


WORKER_COPIES = Ailment(
    cause="worker_copies",
    what="forked workers copy a data set's Python objects by reading them",
    needs="workers' memory (Linux), objects of the data set",
    rule=find_worker_copies,
    asked=Asked.ALWAYS,
    thresholds=(MIN_COPIED_BYTES, MIN_COPIED_PART, MUCH_COPIED),
    title="copies in workers",
    sentence="{num_workers} workers copied {copied} that they shared with the training process at "
    "first. {attribute} is a {container} of {length} {element} objects, about {object_bytes}; with "
    "a copy in each worker that is {at_most}.",
    explanation="Reading a Python object writes its reference count, so its page is copied.",
    remedy="Keep these values in one NumPy array, an Arrow table or a tensor (strings as bytes in "
    "one array, with offsets): their elements have no reference counts, and workers share them.",
    when_contended=by_facts("It goes by bytes, and not by time."),
)
TOO_MANY_WORKERS = Ailment(
    cause="too_many_workers",
    what="the loader has more workers than the process has cores, and the cores are busy",
    needs="`num_workers`, the cores by affinity and quota, `host_load`",
    rule=find_too_many_workers,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(BUSY_CORES, FAR_TOO_MANY),
    title="more workers than cores",
    sentence="{num_workers} loader workers share {usable_cores} cores with the training, which "
    "keeps {busy_cores} of them busy.",
    explanation="Workers that wait for a core make no batches, hold memory and start slowly.",
    remedy="Use as many workers as there are cores at most (DataLoader: num_workers).",
    levers=("dataloader",),
    when_contended=by_facts("It goes by the number of workers and by the cores of this run alone."),
)
TOO_MANY_THREADS = replace(
    TOO_MANY_WORKERS,
    cause="too_many_threads",
    what="the loader's workers compute with several threads each, and the cores are busy",
    needs="`num_workers`, threads of a worker, the cores by affinity and quota, `host_load`",
    title="more threads than cores",
    sentence="{num_workers} loader workers × {worker_threads} threads + {main_threads} of the "
    "training = {num_threads} threads on {usable_cores} cores, of which {busy_cores} are busy.",
    explanation="Torch gives each worker one thread; the script has set more, which wait for "
    "one another.",
    remedy="Leave a worker its one thread (no torch.set_num_threads in worker_init_fn or in the "
    "data set), and use as many workers as there are cores at most.",
)


def _first_row(cause: str, *, what: str, explanation: str | None = None, remedy: str) -> Ailment:
    """Return the row of a late first batch, by what it waits for."""
    return Ailment(
        cause=cause,
        what=what,
        needs="`wall_time`, the step time; of workers the first lines",
        rule=find_late_first_batch,
        asked=Asked.ENOUGH_STEPS,
        thresholds=(MIN_FIRST_S, MIN_FIRST_STEPS, MUCH_OF_RUN, MANY_BATCHES),
        title="late first batch",
        sentence="the first batch came after {first_batch_time}, {first_batch_share} of the run; "
        "{steps_meanwhile} steps would have fitted in.",
        explanation=explanation,
        remedy=remedy,
        when_contended=by_same_load(
            "Starting and reading compute, as steps do; beside a neighbor both take longer."
        ),
    )


SLOW_WORKER_START = _first_row(
    "slow_worker_start",
    what="the first batch comes late, because workers start slowly",
    explanation="Until the first worker was ready, {first_start} passed (start method "
    "{start_method}): a worker that is not forked imports the script and unpickles the data set.",
    remedy="Import less at the top of the script, keep the data set small (paths and offsets in "
    "arrays), and keep workers over epochs (DataLoader: persistent_workers=True).",
)
SLOW_FIRST_FETCH = _first_row(
    "slow_first_fetch",
    what="the first batch comes late, because the first read in a worker is slow",
    explanation="A worker took {first_fetch} to read its first batch: it lists, opens or fills "
    "something first.",
    remedy="Do once what each worker does at its first read (listing folders, building an index, "
    "filling a shuffle buffer), and keep the result in a file.",
)
SLOW_FIRST_READ = _first_row(
    "slow_first_read",
    what="the first batch comes late, because the first read in the training process is slow",
    explanation="The training process reads its batches itself, and the first read does more than "
    "those that follow: it lists, opens or fills something.",
    remedy="Do once what the first read does (listing folders, building an index, filling a "
    "shuffle buffer), and keep the result in a file.",
)
DROPPED_BATCHES = replace(
    _first_row(
        "dropped_batches",
        what="many batches are read before the first update, as a script does that resumes by "
        "reading",
        remedy="Skip what was trained on in the sampler, by index, instead of reading and dropping "
        "it (torchdata's StatefulDataLoader does so).",
    ),
    title="dropped batches",
    sentence="until the first update {num_batches} batches were read, and {num_dropped} of them "
    "trained nothing, as where a script resumes by reading. That took {first_batch_time}, "
    "{first_batch_share} of the run.",
)
LATE_FIRST_BATCH = _first_row(
    "late_first_batch",
    what="the first batch comes late, and nothing says why",
    remedy="See what the workers do until then: steptime attach shows them while the run waits.",
)
AILMENTS = (
    *(WORKER_COPIES, TOO_MANY_WORKERS, TOO_MANY_THREADS),
    *(SLOW_WORKER_START, SLOW_FIRST_FETCH, SLOW_FIRST_READ, LATE_FIRST_BATCH, DROPPED_BATCHES),
)
