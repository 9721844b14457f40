"""Rules on the loader's workers: what they copy, how many they are, when the first batch comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steptime.diagnose.ailments.input.loader_workers import (
    find_late_first_batch,
    find_too_many_workers,
    find_worker_copies,
)
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.fold.run_records import WorkerHead, WorkerSums
from steptime.measure.fold.worker_summary import memory_of_workers
from steptime.measure.values.machine_load import HostLoad, WorkerSummary
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import HeldObjects, LoaderUse
from steptime.measure.values.wall_time import WallPart, WallTime
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement, make_rank

MIB = 1 << 20
HELD = HeldObjects(
    attribute="rows",
    holder="Records",
    container="list",
    element="dict",
    length=100_000,
    num_objects=300_000,
    bytes=30 * MIB,
    where="train.py:15",
    text="self.rows = []",
)
WORKERS = WorkerSummary(
    num_workers=4, num_batches=100, fetch_s_per_batch=0.01, collate_s_per_batch=0.001
)


def make(
    *, workers: WorkerSummary = WORKERS, available: int | None = 1 << 40, **fields: Any
) -> Measurement:
    use = {"num_workers": 4, "start_method": "fork", "num_cores": 4, "objects": (HELD,)}
    loader = LoaderUse(dataset="Records", **(use | fields.pop("loader", {})))
    rank = replace(make_rank(forward=0.1), loaders=(loader,))
    host = {"num_cores": 4, "job_cores": 4.0, "others_cores": 0.0, "num_samples": 9}
    host |= {"min_available_bytes": available} | fields.pop("host", {})
    return make_measurement(
        compute_s=0.1, ranks=(rank,), workers=workers, host=HostLoad(**host), **fields
    )


def copied(mib: float) -> WorkerSummary:
    return replace(WORKERS, copied_bytes=round(mib * MIB), private_bytes=round(2 * mib * MIB))


def numbers(found: Finding | None) -> dict[str, float]:
    return {} if found is None else {one.name: one.value for one in found.evidence}


# -- copies


def test_copied_objects_are_named_with_bytes_and_line() -> None:
    found = find_worker_copies(make(workers=copied(100)))

    assert found is not None
    assert found.names == {
        "attribute": "Records.rows",
        "container": "list",
        "element": "dict",
    }
    assert found.where == "train.py:15"
    assert numbers(found)["copied"] == 100 * MIB
    assert numbers(found)["at_most"] == 120 * MIB


@pytest.mark.parametrize(
    ("available", "severity"),
    [
        (1 << 40, Severity.INFO),
        (500 * MIB, Severity.WARNING),
        (10 * MIB, Severity.CRITICAL),
        (None, Severity.WARNING),
    ],
)
def test_copies_matter_by_the_memory_that_is_left(available: int | None, severity: object) -> None:
    found = find_worker_copies(make(workers=copied(100), available=available))

    assert found is not None
    assert found.severity is severity


@pytest.mark.parametrize(
    "measurement",
    [
        make(),
        make(workers=copied(10)),
        make(workers=copied(23)),
        make(workers=copied(100), loader={"objects": ()}),
        make(workers=copied(100), loader={"start_method": "spawn"}),
    ],
    ids=["not observed", "little", "not these objects", "no objects", "spawned"],
)
def test_without_copies_of_objects_there_is_no_finding(measurement: Measurement) -> None:
    assert find_worker_copies(measurement) is None


def row(worker: int, shared: int, private: int, at_last: tuple[int, int] | None) -> Any:
    head = WorkerHead(
        pid=10 + worker, ppid=1, worker=worker, shared_dirty=shared, private_dirty=private
    )
    sums = WorkerSums(pid=10 + worker, batches=1, fetch_ns=1, collate_ns=1)
    if at_last is not None:
        sums = replace(sums, shared_dirty=at_last[0], private_dirty=at_last[1])
    return head, sums


def test_shared_memory_that_became_a_workers_own_was_copied() -> None:
    rows = [row(0, 100, 10, (70, 40)), row(1, 100, 10, (90, 60)), row(1, 100, 10, (95, 20))]

    assert memory_of_workers(rows) == {
        "copied_bytes": 40,
        "private_bytes": 100,
        "private_growth_bytes": 80,
    }


def test_memory_that_the_kernel_did_not_tell_is_not_known() -> None:
    assert memory_of_workers([row(0, 100, 10, None)]) == {}


# -- more than cores


@pytest.mark.parametrize(
    ("num_workers", "host", "severity"),
    [
        (4, {}, None),
        (5, {}, Severity.INFO),
        (9, {}, Severity.WARNING),
        (9, {"job_cores": 3.0}, None),
        (4, {"quota_cores": 1.5}, Severity.INFO),
    ],
)
def test_workers_are_held_against_the_cores_that_may_be_used(
    num_workers: int, host: dict[str, float], severity: Severity | None
) -> None:
    found = find_too_many_workers(make(loader={"num_workers": num_workers}, host=host))

    assert (found and found.severity) == severity


@pytest.mark.parametrize(
    ("num_workers", "threads", "host", "cause"),
    [
        (2, 4, {}, "too_many_threads"),
        (2, 3, {}, None),
        (2, 4, {"job_cores": 3.0}, None),
        (9, 1, {}, "too_many_workers"),
        (9, None, {}, "too_many_workers"),
    ],
)
def test_threads_of_workers_are_held_against_the_cores(
    num_workers: int, threads: int | None, host: dict[str, float], cause: str | None
) -> None:
    workers = replace(WORKERS, num_threads=threads)
    found = find_too_many_workers(
        make(loader={"num_workers": num_workers}, workers=workers, host=host)
    )

    assert (found and found.cause) == cause
    if cause == "too_many_threads":
        assert found is not None
        assert "2 loader workers × 4 threads + 1 of the training = 9 threads on 4 cores" in (
            describe_finding(found, None)
        )


def test_without_loaders_there_are_no_workers() -> None:
    assert find_too_many_workers(make_measurement()) is None


# -- the first batch


def late(first_s: float, *, total_s: float = 100.0, **workers: float) -> Measurement:
    parts = (WallPart(name="first_batch", total_s=first_s),)
    wall = WallTime(total_s=total_s, parts=parts)
    return make(wall_time=wall, workers=replace(WORKERS, **workers))


@pytest.mark.parametrize(
    ("workers", "cause"),
    [
        ({"first_start_s": 9.0, "first_fetch_s": 0.5}, "slow_worker_start"),
        ({"first_start_s": 0.5, "first_fetch_s": 9.0}, "slow_first_fetch"),
        ({"first_start_s": 0.5, "first_fetch_s": 0.5}, "late_first_batch"),
        ({}, "late_first_batch"),
    ],
)
def test_a_late_first_batch_says_what_it_waited_for(workers: dict[str, float], cause: str) -> None:
    found = find_late_first_batch(late(10.0, **workers))

    assert found is not None
    assert found.cause == cause
    assert numbers(found)["steps_meanwhile"] == pytest.approx(100)


def test_a_late_first_batch_of_the_process_itself() -> None:
    found = find_late_first_batch(replace(late(10.0), workers=None))

    assert found is not None
    assert found.cause == "slow_first_read"


@pytest.mark.parametrize("workers", [WORKERS, None])
def test_batches_that_were_read_and_dropped_to_resume_are_no_slow_read(workers: Any) -> None:
    parts = (WallPart(name="first_batch", total_s=10.0, num=301),)
    run = replace(late(10.0), workers=workers, wall_time=WallTime(total_s=100.0, parts=parts))
    found = find_late_first_batch(replace(run, counts_per_step={"batches": 4.0}))

    assert found is not None
    assert (found.cause, numbers(found)["num_batches"]) == ("dropped_batches", 301)
    usual = find_late_first_batch(replace(run, counts_per_step={"batches": 64.0}))
    assert usual is not None
    assert usual.cause != "dropped_batches"


@pytest.mark.parametrize("measurement", [late(1.9), make(), replace(late(1.99), workers=None)])
def test_a_first_batch_that_comes_soon_is_no_finding(measurement: Measurement) -> None:
    assert find_late_first_batch(measurement) is None


def test_batches_that_are_dropped_for_a_tenth_of_a_short_run_are_named_too() -> None:
    parts = (WallPart(name="first_batch", total_s=0.8, num=241),)
    run = replace(make_measurement(compute_s=0.004), workers=None)
    short = find_late_first_batch(replace(run, wall_time=WallTime(total_s=5.0, parts=parts)))
    long = find_late_first_batch(replace(run, wall_time=WallTime(total_s=50.0, parts=parts)))

    assert short is not None
    assert (short.cause, short.severity) == ("dropped_batches", Severity.WARNING)
    assert long is None


def test_a_late_first_batch_of_a_long_run_is_a_remark() -> None:
    found = find_late_first_batch(late(10.0, total_s=10_000.0))

    assert found is not None
    assert found.severity is Severity.INFO
