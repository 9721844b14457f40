"""The work of updates that were not counted, from that of those that were."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steptime.measure.work.work_fit import CountedUpdate, Knowledge, Update, WorkModel, find_fit


def update(
    rows: int = 8,
    *,
    length: int = 1,
    nodes: int = 5,
    plain: int = 0,
    trained: int = 10,
    optimizer: int = 0,
) -> Update:
    elements = rows * length
    return (optimizer, rows, elements, elements * length, nodes, plain, trained)


def counted(key: Update, total: int) -> CountedUpdate:
    return CountedUpdate(key=key, passes=(total, 2 * total, 0))


def total_of(model: WorkModel, key: Update) -> tuple[float, Knowledge]:
    passes, how, _ = model.work_of(key)
    return sum(passes), how


def test_an_update_like_a_counted_one_has_its_work() -> None:
    model = WorkModel([counted(update(8), 100), counted(update(16), 500)])

    assert total_of(model, update(16)) == (1500, Knowledge.COUNTED)


def test_equal_sizes_with_other_work_are_noticed() -> None:
    model = WorkModel([counted(update(8), 100), counted(update(8), 300)])

    assert total_of(model, update(8)) == (600, Knowledge.COUNTED)
    assert model.spread_fraction == pytest.approx(1.0)


def test_layers_are_linear_in_the_rows() -> None:
    model = WorkModel([counted(update(rows), 7 * rows) for rows in (8, 20, 31)])

    passes, how, fit = model.work_of(update(1000))

    assert (passes, how) == ((7_000, 14_000, 0), Knowledge.COMPUTED)
    assert fit is not None
    assert (fit.terms, fit.error_fraction) == (("elements",), 0.0)


def test_attention_grows_with_the_square_of_a_sequence() -> None:
    known = [
        counted(update(4, length=length), 5 * 4 * length + 3 * 4 * length**2)
        for length in (8, 16, 50)
    ]

    model = WorkModel(known)

    assert total_of(model, update(4, length=100))[0] == 3 * (5 * 400 + 3 * 40_000)


def test_dropped_layers_are_missing_in_the_graph() -> None:
    known = [counted(update(nodes=nodes), 1000 + 10 * nodes) for nodes in (10, 20, 40, 50)]

    model = WorkModel(known)

    assert total_of(model, update(nodes=30)) == (3 * 1300, Knowledge.COMPUTED)


def test_two_counted_updates_do_not_prove_a_sum_of_two_terms() -> None:
    model = WorkModel([counted(update(8), 100), counted(update(16), 150)])

    assert total_of(model, update(32))[1] is Knowledge.ASSUMED


def test_work_that_sizes_do_not_explain_is_not_computed() -> None:
    known = [
        counted(update(rows), work)
        for rows, work in ((8, 100), (16, 900), (24, 50), (32, 700), (40, 30), (48, 800))
    ]

    assert total_of(WorkModel(known), update(20))[1] is Knowledge.ASSUMED


def test_other_optimizers_and_other_trained_weights_have_a_fit_of_their_own() -> None:
    known = [counted(update(rows), 7 * rows) for rows in (8, 20, 31)]

    model = WorkModel(known)

    assert total_of(model, update(10, trained=99))[1] is Knowledge.ASSUMED
    assert total_of(model, update(10, optimizer=1))[1] is Knowledge.ASSUMED


def test_what_is_assumed_goes_by_size_from_the_nearest_of_the_same_optimizer() -> None:
    near, far = counted(update(8), 100), counted(update(64), 100_000)
    other = counted(update(9, optimizer=1), 7)

    assert total_of(WorkModel([near, far, other]), update(10)) == (375, Knowledge.ASSUMED)


def test_inputs_that_were_not_seen_leave_the_work_as_it_is() -> None:
    model = WorkModel([counted(update(0, nodes=3), 100)])

    assert total_of(model, update(0, nodes=4)) == (300, Knowledge.ASSUMED)


def test_means_of_blocks_are_computed_too() -> None:
    model = WorkModel([counted(update(rows), 7 * rows) for rows in (8, 20, 31)])
    mean = (0, 12.5, 12.5, 12.5, 5, 0, 10)

    assert total_of(model, mean) == (21 * 12.5, Knowledge.COMPUTED)


@settings(max_examples=50)
@example(factors=(1072078, 64), lengths={3, 4, 5, 21}, asked=1)
@given(
    factors=st.tuples(st.integers(1, 10**9), st.integers(0, 10**6)),
    lengths=st.sets(st.integers(1, 4096), min_size=4, max_size=8),
    asked=st.integers(1, 4096),
)
def test_a_sum_that_is_there_is_found_exactly(
    factors: tuple[int, int], lengths: set[int], asked: int
) -> None:
    linear, square = factors

    def work(length: int) -> int:
        return linear * 4 * length + square * 4 * length**2

    model = WorkModel([counted(update(4, length=one), work(one)) for one in sorted(lengths)])

    total, how = total_of(model, update(4, length=asked))
    assert how in (Knowledge.COUNTED, Knowledge.COMPUTED)
    assert float(total) == pytest.approx(3 * work(asked), rel=0.002)


def test_no_fit_is_found_from_one_update() -> None:
    assert find_fit([(update(8), (1, 2, 0))]) is None
