"""Findings on the peak, what reports say of it, and the command that follows a death."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from report_cases import dissected, make_anatomy, out_of_memory
from steptime.app.run.describe_run import describe_run
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.memory.memory_peaks import (
    find_fragmentation,
    find_kept_outputs,
    find_large_temporaries,
    find_longest_to_come,
    find_peak_by_length,
)
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Finding, Severity
from steptime.guest.memory.device_snapshot import leave_snapshot
from steptime.guest.memory.dissect import private_limit
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.anatomy import Allocator, Anatomy, Death, LastStep, RunPeak
from steptime.measure.values.model.longest import EpochBatch, LongestBatch, PeakForecast
from steptime.measure.values.model.sense_values import KeptOutputs, Sense
from steptime.measure.values.observations import LoaderUse, MemoryUse
from steptime.report.blocks.work.memory_blocks import memory_blocks
from steptime.report.words.run.advice import next_act, size_word
from told_blocks import told
from unit.builders import make_measurement, make_rank

MIB, GIB = 1 << 20, 1 << 30

COMING = LongestBatch(
    rank=0,
    dataset="Texts",
    epoch=0,
    order="known",
    num_batches=100,
    num_handed=20,
    told_by="texts",
    largest=EpochBatch(batch=77, sample=123, size=256, num_rows=4, elements=1024),
    seen=EpochBatch(batch=2, sample=379, size=32, num_rows=4, elements=128),
    last=EpochBatch(batch=19, sample=26, size=30, num_rows=4, elements=120),
    is_to_come=True,
    growth=8.0,
    seen_peak_bytes=2 * GIB,
    peak=PeakForecast(low=3 * GIB, estimate=4 * GIB, high=9 * GIB, how="between"),
)


def with_limit(limit: int | None, longest: LongestBatch = COMING) -> Measurement:
    use = MemoryUse(
        first_bytes=GIB, last_bytes=GIB, peak_bytes=3 * GIB, num_samples=4, limit_bytes=limit
    )
    rank = replace(make_rank(forward=0.1), host_memory=use)
    return make_measurement(ranks=(rank,), longest_batch=longest)


@pytest.mark.parametrize(("kept", "expected"), [(256 << 20, True), ((256 << 20) - 1, False)])
def test_kept_outputs_are_named_from_a_quarter_of_a_gibibyte_on(
    kept: int, *, expected: bool
) -> None:
    outputs = KeptOutputs(model="Net", num=64, bytes=kept, shape=(16, 8000))
    finding = find_kept_outputs(make_measurement(sense=Sense(kept_outputs=outputs)))

    assert (finding is not None) is expected
    assert finding is None or finding.names == {"model": "Net", "shape": "(16, 8000)"}


def numbers(finding: Finding | None) -> dict[str, float]:
    assert finding is not None
    return {one.name: one.value for one in finding.evidence}


@pytest.mark.parametrize(
    ("limit", "severity"),
    [
        (3 * GIB + GIB // 2, Severity.CRITICAL),  # not even the least fits into what is left
        (6 * GIB, Severity.WARNING),
        (64 * GIB, Severity.INFO),
        (None, Severity.WARNING),
    ],
)
def test_a_larger_batch_to_come_is_as_severe_as_what_is_left(
    limit: int | None, severity: Severity
) -> None:
    found = find_longest_to_come(with_limit(limit))

    assert found is not None
    assert found.severity is severity
    told = numbers(found)
    assert (told["batch"], told["sample"], told["sample_size"]) == (77, 123, 256)
    assert (told["forecast_low"], told["forecast_high"]) == (3 * GIB, 9 * GIB)


@pytest.mark.parametrize(
    "changes",
    [
        {"is_to_come": False},
        {"is_to_come": None},
        {"peak": None},
        {"seen_peak_bytes": None},
        {"seen_peak_bytes": 4 * GIB},
    ],
)
def test_a_peak_that_will_not_rise_is_no_finding(changes: dict[str, Any]) -> None:
    assert find_longest_to_come(with_limit(None, replace(COMING, **changes))) is None


def test_it_is_found_in_a_run_and_named_in_words() -> None:
    run = replace(with_limit(6 * GIB), memory=make_anatomy())

    assert "longest_to_come" in {one.cause for one in diagnose(run).findings}
    assert (
        "a larger batch is to come: batch 77 of the epoch's 100, with sample 123 (256 long by "
        "`texts`; at most 32 so far). Its step will hold about 4.00 GiB (3.00 GiB to 9.00 GiB)"
    ) in text_of(run)


def with_peak(memory: Anatomy) -> Measurement:
    return replace(dissected(), memory=memory)


@pytest.mark.parametrize(
    ("low", "high", "grows", "is_found"),
    [
        (100, 300, False, True),
        (100, 140, False, False),
        (10, 60, False, False),  # too little to matter
        (100, 300, True, False),  # by no size
    ],
)
def test_a_peak_that_goes_with_length_is_told(
    low: int, high: int, *, grows: bool, is_found: bool
) -> None:
    peak = RunPeak(
        rank=0,
        how="computed",
        bytes=high * MIB,
        low_bytes=low * MIB,
        step=87,
        num_steps=100,
        num_followed=5,
        grows=grows,
    )

    found = find_peak_by_length(with_peak(make_anatomy(run_peak=peak)))

    assert (found is not None) is is_found
    if found is not None:
        assert numbers(found)["step"] == 87


def test_large_temporaries_are_named_with_their_place() -> None:
    usual = make_anatomy()
    assert usual.timeline is not None
    held = {"weights": 100 * MIB, "activations": 200 * MIB, "temporaries": 300 * MIB}
    peak = replace(usual.timeline.peak, by_part=held)
    large = replace(usual, timeline=replace(usual.timeline, peak=peak))

    assert find_large_temporaries(with_peak(usual)) is None
    assert find_large_temporaries(with_peak(replace(usual, timeline=None))) is None
    found = find_large_temporaries(with_peak(large))
    assert numbers(found)["temporaries_share"] == pytest.approx(0.5)
    assert found is not None
    assert found.where_text == "in the backward of GPT.lm_head, in aten.mm.default"


FRAGMENTS = Allocator(reserved=10 * GIB, allocated=7 * GIB, largest_free_block=GIB)


def test_pieces_that_cannot_be_joined_are_fragmentation() -> None:
    found = find_fragmentation(with_peak(make_anatomy(allocator=FRAGMENTS)))

    assert numbers(found)["in_pieces"] == 2 * GIB
    assert found is not None
    assert found.severity is Severity.INFO
    died = make_anatomy(death=Death(by_part={}, allocator=FRAGMENTS))
    at_death = find_fragmentation(with_peak(died))
    assert at_death is not None
    assert at_death.severity is Severity.WARNING


@pytest.mark.parametrize(
    "allocator",
    [
        None,
        Allocator(),
        replace(FRAGMENTS, largest_free_block=3 * GIB),
        Allocator(reserved=300 * MIB, allocated=100 * MIB),
        replace(FRAGMENTS, reserved=8 * GIB),
    ],
)
def test_what_lies_in_one_piece_is_none(allocator: Allocator | None) -> None:
    assert find_fragmentation(with_peak(make_anatomy(allocator=allocator))) is None


# -- when it dies


def text_of(run: Measurement) -> str:
    return " ".join(told(memory_blocks(describe_run(run, None))).split())


def died(**facts: Any) -> Measurement:
    death = Death(by_part={"weights": 5 * MIB}, **facts)
    return replace(out_of_memory(), memory=make_anatomy(death=death))


def test_the_last_steps_and_the_snapshot_are_told() -> None:
    steps = tuple(
        LastStep(step=20 + n, rows=4, elements=90, peak_bytes=size and size * MIB)
        for n, size in enumerate((400, None, 600))
    )
    told = text_of(died(last_steps=steps, snapshot="memory-7.pickle"))

    assert "steps 20 to 22, the last before it, held 400 MiB to 600 MiB at their peaks" in told
    assert "torch's own snapshot is memory-7.pickle in the run's folder" in told


def test_the_batch_of_its_death_is_named() -> None:
    largest = COMING.largest
    in_largest = replace(COMING, last=largest, is_to_come=False)
    run = replace(died(), longest_batch=in_largest)

    assert (
        "it died in batch 77 of the epoch's 100, the largest of all, with sample 123 (256 long by "
        "`texts`)"
    ) in text_of(run)
    before = text_of(replace(died(), longest_batch=COMING))
    assert "it died in batch 19 of the epoch's 100; the largest one, batch 77" in before


def test_where_nothing_can_be_known_before_it_is_said_if_steps_differ() -> None:
    peak = RunPeak(
        rank=0, how="followed", bytes=9, low_bytes=5, step=1, num_steps=5, num_followed=2
    )
    unknown = replace(COMING, missing="iterable", largest=None, is_to_come=None, order="iterable")
    words = "a larger batch than all so far may come: the data set is iterable"
    run = replace(dissected(), longest_batch=unknown)

    differing = replace(run, memory=make_anatomy(run_peak=peak))
    assert words in text_of(differing)
    assert words not in text_of(run)
    whole = replace(unknown, num_handed=unknown.num_batches)  # and the run is over
    assert words not in text_of(replace(differing, longest_batch=whole))
    loader = LoaderUse(dataset="TensorDataset")  # its rows are of one size
    of_tensors = replace(run.ranks[0], loaders=(loader,))
    assert words not in text_of(replace(differing, ranks=(of_tensors,)))


def test_a_sample_without_a_known_batch_is_named() -> None:
    alone = EpochBatch(batch=None, sample=7, size=50)
    run = replace(
        dissected(), longest_batch=replace(COMING, largest=alone, is_to_come=None, seen=None)
    )

    assert "the largest sample is 7 (50 long by `texts`)" in text_of(run)


@pytest.mark.parametrize(
    ("facts", "device", "command"),
    [
        ({"limit_bytes": 813 * MIB + 5}, "cpu", "--memory-limit 813MiB -- python train.py"),
        ({}, "cuda", "--memory-limit 80GiB -- python train.py"),
        ({}, "cpu", "--memory-limit 4GiB -- python train.py"),
    ],
)
def test_the_last_line_after_a_death_is_the_command_that_makes_it_fit(
    facts: dict[str, Any], device: str, command: str
) -> None:
    use = MemoryUse(first_bytes=1, last_bytes=1, peak_bytes=1, num_samples=1, limit_bytes=4 * GIB)
    rank = replace(make_rank(device=device), host_memory=use, device_bytes=80 * GIB)
    run = replace(died(**facts), ranks=(rank,), end=ProcessEnd(state=RunState.FAILED, exit_code=1))

    act = next_act(run, diagnose(run))

    assert act.command == f"steptime fit {command}"


def test_without_a_known_limit_the_command_has_none() -> None:
    run = replace(died(), ranks=())

    assert next_act(run, diagnose(run)).command == "steptime fit -- python train.py"


@pytest.mark.parametrize(
    ("size", "word"), [(8 * GIB, "8GiB"), (8 * GIB + 1, "8192MiB"), (900, "900"), (MIB, "1MiB")]
)
def test_sizes_are_written_as_the_option_takes_them(size: int, word: str) -> None:
    assert size_word(size) == word


STATUS = "Name:\tpython\nVmPeak:\t 900 kB\nVmSize:\t    800 kB\nVmData:\t    300 kB\n"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"data": None, "as": None}, None),
        ({}, None),
        ({"data": 400 << 10, "as": None}, 400 << 10),
        ({"data": None, "as": 900 << 10}, 400 << 10),  # 500 KiB are mapped from files
        ({"data": 200 << 10, "as": 900 << 10}, 200 << 10),
        ({"data": None, "as": 100 << 10}, None),
    ],
)
def test_a_limit_of_address_space_is_one_of_private_memory_and_of_files(
    tmp_path: Path, limits: dict[str, int | None], expected: int | None
) -> None:
    status = tmp_path / "status"
    status.write_text(STATUS)

    assert private_limit(limits, str(status)) == expected


def fake_torch(written: list[str], *, is_on: bool) -> Any:
    def dump(path: str) -> None:
        written.append(path)
        Path(path).write_bytes(b"pickle")

    memory = SimpleNamespace(_dump_snapshot=dump)
    return SimpleNamespace(cuda=SimpleNamespace(memory=memory, is_initialized=lambda: is_on))


def test_a_device_leaves_a_snapshot_in_the_run(tmp_path: Path) -> None:
    written: list[str] = []

    name = leave_snapshot(fake_torch(written, is_on=True), str(tmp_path))

    assert name is not None
    assert (tmp_path / name).read_bytes() == b"pickle"
    assert leave_snapshot(fake_torch(written, is_on=False), str(tmp_path)) is None
    assert leave_snapshot(SimpleNamespace(cuda=SimpleNamespace()), str(tmp_path)) is None
    assert len(written) == 1
