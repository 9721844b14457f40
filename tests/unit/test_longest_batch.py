"""The largest batch of an epoch, and the memory of its step, from what the guest read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from report_cases import make_anatomy
from steptime.measure.memory.epoch_lines import ColumnSeen, EpochSeen, Row, read_epoch
from steptime.measure.memory.longest_batch import last_lines, longest_of
from steptime.measure.memory.longest_peak import between, by_parts, enlarge, share_of_squares
from steptime.measure.values.model.longest import EpochBatch, LongestBatch
from steptime.measure.work.work_fit import Update

NUM_ROWS, WIDTH = 4, 3


def compared(sizes: Sequence[int], elements: Callable[[int], int]) -> tuple[Row, ...]:
    return tuple(
        (n, n + 1, NUM_ROWS, elements(size), NUM_ROWS, size, 2 * size)
        for n, size in enumerate(sizes)
    )


PADDED = ((0, 5, 4, 20, 50), (2, 9, 4, 30, 60), (7, 77, 4, 200, 260))


def line(*, seen: tuple[Row, ...] | None = None, handed: int = 4, **fields: Any) -> EpochSeen:
    """An epoch of ten batches, the eighth of which is the largest."""
    column = ColumnSeen(
        name="texts", largest=(77, 200), padded=PADDED, summed=PADDED, last=(3, 11, 4, 25, 70)
    )
    looks = compared([20, 30, 25], lambda n: NUM_ROWS * WIDTH * n) if seen is None else seen
    values = {"n": 5, "loader": 0, "epoch": 0, "dataset": "Texts", "order": "known"}
    values |= {"num_rows": 40, "num_batches": 10, "compared": looks, "columns": (column,)}
    return EpochSeen(**{**values, "handed": handed, **fields})


def found(*lines: EpochSeen) -> LongestBatch:
    longest = longest_of(lines)
    assert longest is not None
    return longest


def test_the_largest_batch_is_named_with_its_sample_before_it_comes() -> None:
    longest = found(line())

    elements = NUM_ROWS * WIDTH * 200
    assert longest.largest == EpochBatch(
        batch=7, sample=77, size=200, num_rows=4, elements=elements
    )
    assert longest.seen is not None
    assert (longest.seen.batch, longest.seen.size) == (2, 30)
    assert (longest.told_by, longest.is_to_come) == ("texts", True)
    assert longest.growth == pytest.approx(200 / 30)


@pytest.mark.parametrize("handed", [8, 10, 12])
def test_once_it_was_taken_nothing_is_to_come(handed: int) -> None:
    longest = found(line(handed=handed))

    assert longest.is_to_come is False
    assert longest.num_handed == min(handed, 10)


def test_after_a_whole_epoch_nothing_is_to_come_in_the_next() -> None:
    assert found(line(handed=10), line(epoch=1, handed=1)).is_to_come is False


def test_epochs_that_were_not_watched_may_have_had_it() -> None:
    assert found(line(begun=5)).is_to_come is False


def test_sizes_may_differ_from_elements_by_factor_and_shift() -> None:
    seen = compared([20, 30, 25], lambda n: NUM_ROWS * (2 * n + 7))

    longest = found(line(seen=seen))

    assert longest.largest is not None
    assert longest.largest.elements == NUM_ROWS * (2 * 200 + 7)


def test_batches_may_be_as_large_as_their_rows_together() -> None:
    seen = tuple(
        (n, n + 1, total, total, NUM_ROWS, most, total)
        for n, (most, total) in enumerate([(20, 50), (30, 60), (25, 70), (20, 35)])
    )

    longest = found(line(seen=seen))

    assert longest.largest is not None
    assert longest.largest.elements == 260


def test_texts_say_about_how_large_their_tokens_become() -> None:
    noise = {20: 5, 30: 8, 25: 7, 40: 9, 60: 16}
    seen = compared(list(noise), lambda n: NUM_ROWS * noise[n])

    assert found(line(seen=seen)).told_by == "texts"


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        (compared([20, 30, 25], lambda n: NUM_ROWS * 64), "same_size"),
        (compared([20, 30, 25, 40], lambda n: NUM_ROWS * (60 - n)), "sizes_say_nothing"),
        ((), "sizes_say_nothing"),
    ],
)
def test_sizes_that_do_not_go_with_batches_tell_nothing(
    seen: tuple[Row, ...], missing: str
) -> None:
    longest = found(line(seen=seen))

    assert (longest.missing, longest.largest, longest.is_to_come) == (missing, None, None)


def test_what_cannot_be_known_before_is_said() -> None:
    assert found(line(order="iterable", columns=())).missing == "iterable"
    assert found(line(columns=())).missing == "no_sizes"
    alike = compared([0, 0, 0], lambda _: NUM_ROWS * 64)  # batches of four images of one size
    assert found(line(columns=(), seen=alike)).missing == "same_size"
    assert found(line(columns=(), seen=alike[:1])).missing == "no_sizes"

    sampled = found(line(order="own_sampler", columns=(ColumnSeen(name="t", largest=(7, 50)),)))
    assert sampled.largest == EpochBatch(batch=None, sample=7, size=50)
    assert sampled.is_to_come is None


def test_the_last_line_counts_of_the_loader_that_gave_most() -> None:
    lines = [line(handed=1), line(handed=6), line(loader=1, handed=2), line(epoch=1, handed=3)]

    assert [(one.loader, one.epoch, one.handed) for one in last_lines(lines)] == [
        (0, 0, 6),
        (0, 1, 3),
    ]
    assert last_lines([]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"compared": [[1, 2]]},
        {"columns": [{"name": "t", "largest": [1]}]},
        {"columns": [{"name": "t", "largest": [1, 2], "padded": [[1, 2]]}]},
        {"columns": [{"name": "t", "largest": [1, 2], "last": [1, 2, -3, 4, 5]}]},
    ],
)
def test_a_misshapen_line_is_refused(wrong: dict[str, Any]) -> None:
    good = {"k": "lb", "n": 1, "loader": 0, "epoch": 0, "dataset": "T", "order": "known"}
    good |= {"handed": 2}

    assert read_epoch(good).handed == 2
    with pytest.raises(ValueError, match="must be"):
        read_epoch(good | wrong)


# -- the peak of its step

STATES, ELEMENT, SQUARE = 1_000_000, 300, 12


def key(length: int, *, rows: int = 2) -> Update:
    """An update of one call: rows, elements, squares, nodes, plain, trained, largest."""
    return (0, rows, rows * length, rows * length**2, 5, 0, 10, rows * length)


def held(length: int) -> int:
    return STATES + ELEMENT * 2 * length + SQUARE * 2 * length**2


def test_an_update_with_a_larger_batch_has_its_sizes() -> None:
    assert enlarge(key(30), elements=10, rows=1) == pytest.approx(key(300))
    assert enlarge(key(30), elements=5, rows=0.5) == pytest.approx(key(300, rows=1))


def test_the_peak_lies_between_what_elements_and_squares_alone_make() -> None:
    alike = [(key(20), held(20)), (key(30), held(30))]

    forecast = between(alike, key(300), staying=None)

    assert forecast is not None
    assert forecast.low < held(300) < forecast.high


def test_what_stays_tells_how_much_goes_with_squares() -> None:
    alike = [(key(20), held(20)), (key(30), held(30))]

    forecast = between(alike, key(300), staying=STATES)

    assert forecast is not None
    assert forecast.estimate == pytest.approx(held(300))


def test_two_peaks_that_are_alike_say_nothing() -> None:
    assert between([(key(20), 500), (key(30), 500)], key(300), staying=0) is None
    assert between([(key(30), 500)], key(300), staying=0) is None
    assert between([], key(300), staying=0) is None


def test_the_parts_of_one_step_bound_the_peak() -> None:
    timeline = make_anatomy().timeline
    assert timeline is not None

    forecast = by_parts(timeline, key(30), key(60))

    assert forecast is not None
    growing = sum(timeline.peak.by_part[name] for name in ("activations", "logits", "temporaries"))
    assert forecast.low == timeline.peak.total + growing
    assert forecast.high == timeline.peak.total + 3 * growing
    assert by_parts(None, key(30), key(60)) is None


def test_two_graphs_tell_how_much_goes_with_squares() -> None:
    def kept(length: int) -> int:
        return held(length) - STATES

    share = share_of_squares((key(20), kept(20)), (key(30), kept(30)))

    assert share == pytest.approx(SQUARE * 30 / (ELEMENT + SQUARE * 30))
    assert share_of_squares((key(30), 500), (key(30), 500)) is None
    timeline = make_anatomy().timeline
    forecast = by_parts(timeline, key(30), key(60), squares=0.25)
    assert timeline is not None
    assert forecast is not None
    growing = forecast.low - timeline.peak.total
    assert forecast.estimate == round(timeline.peak.total + growing * (0.75 * 1 + 0.25 * 3))
