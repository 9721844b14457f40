"""What the guest writes in rows comes out under its names; another shape is refused as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.record import kinds, places, rows
from steptime.record.lines import Line
from steptime.record.places import DETAIL, NUM_LEADING, NUMBER, OPTIMIZER, THREAD
from steptime.record.rows import Layout, MisshapenError
from steptime.record.table import UpdateTable
from steptime.record.writing import block_line, device_line, markers_line, rows_line

LAYOUT = Layout(("other", "forward", "sync"), ("batches", "copies"))
ROW = [5, 1, 0, 100, 160, 0, 1, *(10, 20, 30), *(7, 8), *(11, 21, 31)]


def read(text: str) -> Line:
    line: Line = json.loads(text)
    return line


def test_an_update_has_its_numbers_under_their_names() -> None:
    (row,) = LAYOUT.updates(read(rows_line(kinds.UPDATES, [ROW])))

    assert (row.number, row.thread, row.optimizer, row.start_ns, row.end_ns) == (5, 1, 0, 100, 160)
    assert (row.skipped, row.detail) == (0, 1)
    assert (row.wall_ns, row.counts, row.cpu_ns) == ((10, 20, 30), (7, 8), (11, 21, 31))


def test_the_names_stand_at_the_places_that_the_guest_writes_to() -> None:
    (row,) = LAYOUT.updates(read(rows_line(kinds.UPDATES, [ROW])))

    assert row._fields[:NUM_LEADING] == places.LEADING
    assert [row[place] for place in (NUMBER, THREAD, OPTIMIZER, DETAIL)] == [5, 1, 0, 1]


def test_a_block_has_its_sums_and_the_times_of_its_rounds() -> None:
    leading = [20_000, 0, 2, 4, 1, 1000, 9000]
    text = block_line([*leading, 10, 20, 30, 7, 8, 1, 11, 21, 31], [500, 600], [400, 450])

    block = LAYOUT.block(read(text))

    assert (block.first_number, block.num_rounds, block.num_updates) == (20_000, 2, 4)
    assert (block.num_skipped, block.start_ns, block.end_ns) == (1, 1000, 9000)
    assert (block.wall_ns, block.counts, block.num_detailed) == ((10, 20, 30), (7, 8), 1)
    assert (block.cpu_ns, block.round_wall_us, block.round_cpu_us) == (
        (11, 21, 31),
        (500, 600),
        (400, 450),
    )


def test_a_block_names_the_rounds_that_do_not_count() -> None:
    row = [20_000, 0, 2, 4, 1, 1000, 9000, 10, 20, 30, 7, 8, 1, 11, 21, 31]

    assert LAYOUT.block(read(block_line(row, [500, 600], [400, 450], [1]))).disturbed == (1,)
    assert LAYOUT.block(read(block_line(row, [500, 600], [400, 450]))).disturbed == ()
    with pytest.raises(rows.MisshapenError):
        LAYOUT.block(read(block_line(row, [500, 600], [400, 450], [2])))


def test_device_times_and_markers_name_their_update() -> None:
    assert LAYOUT.device_times(read(device_line(3, [1, 2, 3]))) == (3, (1, 2, 3))
    assert rows.markers(read(markers_line(4, [0, 1, 50, 2]))) == (4, (0, 1, 50, 2))


@pytest.mark.parametrize(
    "row", [ROW[:-1], [*ROW, 0], [0.5, *ROW[1:]], ["5", *ROW[1:]], [True, *ROW[1:]], None, 7, []]
)
def test_one_wrong_row_is_refused_with_its_whole_line(row: Any) -> None:
    table = UpdateTable(LAYOUT)
    table.add({"k": "u", "rows": [ROW]})

    with pytest.raises(MisshapenError):
        table.add({"k": "u", "rows": [ROW, row]})
    assert len(table) == 1


@pytest.mark.parametrize("line", [{"k": "u"}, {"k": "u", "rows": 7}, {"k": "u", "rows": {"a": 1}}])
def test_a_line_without_rows_is_refused(line: Line) -> None:
    with pytest.raises(MisshapenError):
        list(LAYOUT.updates(line))


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    table = UpdateTable(LAYOUT)

    with pytest.raises(MisshapenError):
        table.add({"k": "u", "rows": [[2**70, *ROW[1:]]]})
    assert len(table) == 0


def test_a_site_may_have_no_time_and_an_event_no_place() -> None:
    site = ["sync", "train.py", 31, 31, 4, None]
    event, placed = ["a reason", None, 3, 2], ["another", "train.py", 3, 1]
    line = {"k": "c", "graphs": 2, "breaks": [event], "recompiles": [placed]}

    assert rows.sites({"k": "s", "sites": [site]})[0].total_ns is None
    num_graphs, (lost,), (found,) = rows.compile_events(line)
    assert (num_graphs, lost.line, lost.num) == (2, None, 2)
    assert (found.file, found.line) == ("train.py", 3)


@pytest.mark.parametrize("number", [True, 0.5, "3", None, [3]])
def test_a_number_that_is_not_whole_is_refused(number: Any) -> None:
    with pytest.raises(MisshapenError):
        rows.markers({"k": "tr", "n": number, "m": [0, 1]})
    with pytest.raises(MisshapenError):
        LAYOUT.device_times({"k": "d", "n": number, "d": [1, 2, 3]})
    with pytest.raises(MisshapenError):
        rows.whole_number({"k": "x", "num": number}, "num")


@pytest.mark.parametrize(
    "values", [["compile", float("nan"), 1.0, None, None, None], ["compile", 1.0], 7]
)
def test_what_was_compiled_at_no_time_is_refused(values: Any) -> None:
    with pytest.raises(MisshapenError):
        rows.compilings({"k": "ce", "rows": [values]})


numbers = st.integers(0, 2**40)
any_rows = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 1), *[numbers] * (LAYOUT.size - 2)), max_size=20
)


@given(any_rows)
def test_columns_hold_what_the_rows_hold(found: list[tuple[int, ...]]) -> None:
    table = UpdateTable(LAYOUT)
    for begin in range(0, len(found), 3):
        table.add({"k": "u", "rows": [list(row) for row in found[begin : begin + 3]]})
    table.close()

    assert len(table) == len(found)
    for place in range(LAYOUT.size):
        assert list(table.column(place)) == [row[place] for row in found]
        assert table.has(place) == any(row[place] for row in found)


@given(any_rows, st.integers(0, 1))
def test_a_threads_rows_stand_in_order_and_the_last_of_a_number_counts(
    found: list[tuple[int, ...]], thread: int
) -> None:
    table = UpdateTable(LAYOUT)
    table.add({"k": "u", "rows": [list(row) for row in found]})
    table.close()
    last = {row[NUMBER]: row for row in found if row[THREAD] == thread}

    own = table.of_thread(thread)

    assert len(own) == len(last)
    for place in range(LAYOUT.size):
        assert list(own.column(place)) == [last[number][place] for number in sorted(last)]
