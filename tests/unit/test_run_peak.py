"""The largest peak of all steps, from those that were followed and from counters that only rise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from steptime.app.run.describe_run import describe_run
from steptime.measure.fold.run_fold import measure
from steptime.measure.memory.run_peak import Peaks, count_rises, fit_largest
from steptime.measure.values.model.anatomy import Anatomy, HighWater, RunPeak
from steptime.measure.work.work_fit import Update
from steptime.record.buckets import SIZES
from steptime.report.blocks.work.memory_blocks import memory_blocks
from told_blocks import told
from unit.builders import (
    COUNTS,
    by_count,
    make_end,
    make_head,
    make_memory,
    make_update,
    read,
)

HEAD = make_head(counts=[*COUNTS, *SIZES])
NUM, MS = 40, 5
EVERY_MS = 10
BASE, ELEMENT, SQUARE = 10_000, 300, 12


def key(length: int, *, rows: int = 2, calls: int = 1, trained: int = 10) -> Update:
    """An update of so many equal calls."""
    elements, squares = rows * length, rows * length**2
    return (0, calls * rows, calls * elements, calls * squares, 5 * calls, 0, trained, elements)


def held(length: int) -> int:
    return BASE + ELEMENT * 2 * length + SQUARE * 2 * length**2


# -- from followed updates


def test_the_peak_of_longer_sequences_is_computed() -> None:
    peaks = Peaks({key(n): held(n) for n in (30, 280, 170, 500)})

    assert peaks.of_step([key(1024)]) == pytest.approx(held(1024))
    assert not peaks.is_short
    (fit,) = peaks.fits_used
    assert fit.terms == ("updates", "elements", "squares")


def test_small_updates_whose_peak_is_elsewhere_are_left_out_of_the_sum() -> None:
    peaks = Peaks({key(30): 3 * held(30)} | {key(n): held(n) for n in (280, 170, 500, 700)})

    assert peaks.of_step([key(1024)]) == pytest.approx(held(1024))


def test_an_update_that_is_nowhere_larger_holds_no_more() -> None:
    peaks = Peaks({key(100): 5_000})

    assert peaks.of_step([key(50)]) is None
    assert not peaks.is_short


def test_a_larger_update_than_the_only_followed_one_is_not_known() -> None:
    peaks = Peaks({key(100): 5_000})

    assert peaks.of_step([key(200)]) is None
    assert peaks.is_short


def test_more_batches_of_one_size_hold_no_more_but_the_second_one_does() -> None:
    known = {key(64): 50_000} | {key(64, calls=calls): 70_000 for calls in (2, 4, 5)}

    assert Peaks(known).of_step([key(64, calls=7)]) == 70_000
    lone = Peaks({key(64): 50_000})
    assert lone.of_step([key(64, calls=7)]) is None
    assert lone.is_short


def test_of_batches_of_several_sizes_the_largest_counts() -> None:
    known = []
    for largest, others in ((100, 30), (200, 250), (160, 20), (90, 80)):
        update = list(key(largest, calls=2))
        update[2] = 2 * (largest + others)
        known.append((tuple(update), BASE + ELEMENT * 2 * largest))

    fit = fit_largest(known)

    assert fit is not None
    assert fit.terms == ("updates", "largest")


def test_the_largest_update_of_a_step_counts() -> None:
    assert Peaks({key(10): 100, key(20): 300}).of_step([key(10), key(20)]) == 300


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(key(10), 100), (key(10), 120)], 1),
        ([(key(20), 100), (key(10), 120)], 1),
        ([(key(10), 120), (key(20), 100)], 0),
        ([(key(10), 100), (key(20), 120)], 0),
        ([(key(10), 1000), (key(10), 1005)], 0),
        ([(key(10), 100), (key(10), 120), (key(10), 120), (key(10), 120)], 1),  # DDP's buckets
        ([(key(10), 100), (key(10), 120), (key(10), 110), (key(10), 140)], 2),
    ],
)
def test_memory_that_grows_by_no_size_is_noticed(
    seen: Sequence[tuple[Update, int]],
    expected: int,
) -> None:
    assert count_rises(seen) == expected


# -- of a run


def measured(of: Callable[[int], Update], followed: Mapping[int, int], *others: Any) -> Anatomy:
    """The anatomy of a run with these updates, of which some were followed."""
    rows = [
        make_update(n, {"forward": MS}, x=[*by_count(forwards=1), *of(n)[1:]]) for n in range(NUM)
    ]
    work = {"forward": 1, "backward": 2, "recomputed": 0, "macs": 1, "by_dtype": {}}
    counts = [
        {"k": "count", "n": n + 1, "updates": 1, "optimizer": 0, "sizes": list(of(n)[1:])}
        | work
        | {"peak": {"bytes": peak, "phase": "backward"}}
        for n, peak in followed.items()
    ]
    held_line = {"k": "mem", "pid": 101, "t": 1.0, "moment": "update", "n": 13, "parts": {}}
    held_line |= {"num_parameters": 10, "num_trainable": 10}
    lines = [HEAD, *rows, *counts, *others, make_end(NUM)]
    found = measure(read({"rank-0.jsonl": lines, "processes.jsonl": [held_line]}))
    assert found.memory is not None
    return found.memory


def peak_of(found: Anatomy) -> RunPeak:
    assert found.run_peak is not None
    return found.run_peak


def text_of(found: Anatomy) -> str:
    from report_cases import make_anatomy, make_measurement

    anatomy = make_anatomy(
        run_peak=found.run_peak,
        device_peak=found.device_peak,
        resident_peak=found.resident_peak,
    )
    document = describe_run(make_measurement((), memory=anatomy), None)
    return " ".join(told(memory_blocks(document)).split())


def test_where_all_steps_are_alike_the_followed_one_is_the_peak() -> None:
    found = measured(lambda n: key(10), {12: 500, 30: 500})

    peak = peak_of(found)
    assert (peak.how, peak.bytes, peak.num_followed, peak.differs) == ("followed", 500, 2, False)
    assert "at the peak of a step (2 steps followed), in backward" in text_of(found)


def test_the_peak_of_the_run_is_that_of_its_largest_step() -> None:
    lengths = {8: 30, 12: 200, 20: 400, 28: 100}
    found = measured(
        lambda n: key(lengths.get(n, 900 if n == 33 else 50)),
        {n: held(length) for n, length in lengths.items()},
    )

    peak = peak_of(found)
    assert (peak.how, peak.step, peak.bytes) == ("computed", 33, held(900))
    assert peak.low_bytes <= held(50)
    assert peak.error_fraction == pytest.approx(0, abs=1e-9)
    assert "at the peak of the run, in step 33; steps reach" in text_of(found)
    assert "computed from their size (error for one left out: 0.0 %)" in text_of(found)


def test_a_peak_that_is_not_known_is_called_a_lower_bound() -> None:
    found = measured(lambda n: key(900 if n > 30 else 50), {12: 500})

    assert (peak_of(found).how, peak_of(found).bytes) == ("at_least", 500)
    assert "at least 500 B at the peak of the run" in text_of(found)


def test_memory_that_grows_from_step_to_step_is_named() -> None:
    found = measured(lambda n: key(10), {12: 500, 20: 550, 30: 600})

    assert (peak_of(found).how, peak_of(found).grows) == ("at_least", True)
    assert "3 steps followed, and what is held grows from step to step" in text_of(found)


def test_two_followed_steps_show_no_growth_from_step_to_step() -> None:
    found = measured(lambda n: key(10), {12: 500, 30: 600})

    assert (peak_of(found).how, peak_of(found).grows) == ("at_least", False)
    assert "2 steps followed, and what others reach is not known from their size" in text_of(found)


def test_counters_that_rise_say_between_which_steps_they_came_there() -> None:
    samples = [
        make_memory(EVERY_MS * at + 1, rss=100, rss_peak=high, peak=device)
        for at, high, device in ((2, 300, 10), (20, 300, 50), (30, 300, 90), (39, 300, 90))
    ]
    found = measured(lambda n: key(10), {12: 500}, *samples)

    assert found.resident_bytes == 300
    assert found.resident_peak is not None
    assert found.resident_peak.warmup_bytes in (None, 300)
    device = found.device_peak
    assert isinstance(device, HighWater)
    assert (device.bytes, device.first_step, device.last_step) == (90, 20, 30)
    assert "on the device at most 90 B (reached in steps 20 to 30)" in text_of(found)


def test_without_a_followed_step_there_is_no_peak_of_the_run() -> None:
    assert measured(lambda n: key(10), {}).run_peak is None
