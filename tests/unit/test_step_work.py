"""The work of the mean step, from what was counted in a run and the sizes of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptime.app.run.describe_run import describe_run
from steptime.app.run.observe import wants_count
from steptime.diagnose.utilization import model_utilization
from steptime.measure.fold.run_fold import measure
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.work import WorkBasis
from steptime.measure.work.size_groups import MAX_GROUPS, group_sizes
from steptime.record.buckets import SIZES
from steptime.report.blocks.work.work_blocks import REASONS, work_blocks
from told_blocks import told
from unit.builders import (
    BUCKETS,
    COUNTS,
    by_count,
    make_block,
    make_end,
    make_head,
    make_update,
    read,
)

HEAD = make_head(counts=[*COUNTS, *SIZES])
NUM = 40
DOCS = Path(__file__).parents[2] / "docs"


def sizes(rows: int = 8, *, nodes: int = 5, plain: int = 0, trained: int = 10) -> list[int]:
    return [rows, rows, rows, nodes, plain, trained, rows]


def count_line(n: int, work: int, of: Sequence[int], *, optimizer: int = 0, **more: Any) -> Any:
    """A third of the work is forward."""
    passes = {"forward": work // 3, "backward": work - work // 3, "recomputed": 0}
    classes = [{"name": "matmul", "num": 4, "flops": work, "by_dtype": {"fp32": work}}]
    counted = {"macs": work // 2, "by_dtype": {"fp32": work}, "classes": classes}
    head = {"k": "count", "n": n, "updates": 1, "optimizer": optimizer, "sizes": list(of)}
    return head | passes | counted | more


def measured(
    of: Callable[[int], Sequence[int]],
    *counted: Any,
    optimizers: Callable[[int], int] = lambda n: 0,
    num: int = NUM,
    ms: float = 5,
    others: Sequence[Any] = (),
) -> Measurement:
    rows = [
        make_update(
            n,
            {"forward": ms},
            o=optimizers(n),
            x=[*by_count(forwards=1, backwards=1), *of(n)],
        )
        for n in range(num)
    ]
    return measure(read({"rank-0.jsonl": [HEAD, *rows, *counted, *others, make_end(num)]}))


def basis_of(m: Measurement) -> WorkBasis:
    assert m.count is not None
    assert m.count.basis is not None
    return m.count.basis


def window_of(m: Measurement) -> range:
    assert m.steady is not None
    return range(m.steady.first_step, m.num_steps)


def text_of(m: Measurement) -> str:
    return " ".join(told(work_blocks(describe_run(m, None))).split())


def test_one_counted_update_stands_for_those_that_look_like_it() -> None:
    found = measured(lambda n: sizes(), count_line(13, 300, sizes()))

    assert found.count is not None
    assert (found.count.total, basis_of(found).how) == (300, "one")
    assert "300 FLOP per step (forward" in text_of(found)
    assert "1 update counted; the others look like it" in text_of(found)


def test_equal_counts_agree() -> None:
    found = measured(lambda n: sizes(), *(count_line(n, 300, sizes()) for n in (13, 50)))

    assert basis_of(found).how == "equal"
    assert "2 updates counted, all with the same work" in text_of(found)


def test_sizes_that_vary_give_the_mean_of_the_window_and_the_rate_of_its_sums() -> None:
    def rows_of(n: int) -> int:
        return 1 + n * 7 % 19

    counted = [count_line(n, 30 * rows_of(n), sizes(rows_of(n))) for n in (3, 5, 9)]
    found = measured(lambda n: sizes(rows_of(n)), *counted)

    true = [30 * rows_of(n) for n in window_of(found)]
    basis = basis_of(found)
    assert found.count is not None
    assert found.count.total == pytest.approx(sum(true) / len(true), abs=1)
    assert (basis.how, basis.scaled_by, basis.error_fraction) == ("scaled", ("elements",), 0.0)
    assert (basis.low_flops, basis.high_flops) == (min(true), max(true))
    assert model_utilization(found).flops_per_s == pytest.approx(
        sum(true) / (0.005 * len(true)), rel=0.01
    )
    assert found.count.by_class["matmul"] == pytest.approx(found.count.total, abs=1)
    text = text_of(found)
    assert "per step on average, 30 FLOP to 570 FLOP each" in text
    assert "computed from their size (error for one left out: 0.0 %)" in text


def test_a_change_in_the_middle_has_two_kinds_of_steps() -> None:
    found = measured(
        lambda n: sizes(trained=10 if n < 20 else 20),
        count_line(13, 300, sizes(trained=10)),
        count_line(23, 900, sizes(trained=20)),
    )

    kinds = {one.flops: one.num_steps for one in basis_of(found).kinds}
    num = len(window_of(found))
    assert kinds == {300: num - 20, 900: 20} if num > 20 else {900: num}
    assert "each kind of step among them" in text_of(found)


def test_an_optimizer_with_rare_turns_makes_another_kind_of_step() -> None:
    found = measured(
        lambda n: sizes(),
        count_line(13, 300, sizes(), optimizer=0),
        count_line(14, 600, sizes(), optimizer=1),
        optimizers=lambda n: int(n % 4 == 3),
    )

    kinds = {one.optimizers: one.flops for one in basis_of(found).kinds}
    assert kinds == {(0,): 300, (0, 1): 900}


def test_equal_sizes_with_other_work_leave_a_range_and_no_rate() -> None:
    found = measured(lambda n: sizes(), count_line(13, 300, sizes()), count_line(50, 900, sizes()))

    basis = basis_of(found)
    assert (basis.how, basis.low_flops, basis.high_flops) == ("range", 300, 900)
    assert model_utilization(found).missing == "work_differs"
    assert model_utilization(found).flops_per_s is None
    assert "300 FLOP to 900 FLOP per step, about 600 FLOP on average" in text_of(found)


def test_a_range_names_the_command_that_counts_more() -> None:
    found = measured(lambda n: sizes(), count_line(13, 300, sizes()), count_line(50, 900, sizes()))

    assert "count more of them in a contained extra run: steptime run --count -- python" in text_of(
        found
    )
    assert wants_count(found)


def test_where_only_a_range_is_known_an_extra_run_that_counted_more_counts() -> None:
    rows = [make_update(n, {"forward": 5}, x=[*by_count(forwards=1), *sizes()]) for n in range(NUM)]
    own = [count_line(n, work, sizes()) for n, work in ((13, 300), (23, 900))]
    child = [count_line(n, 300 + 60 * n, sizes(), is_whole=True) for n in range(20)]
    files = {
        "rank-0.jsonl": [HEAD, *rows, *own, make_end(NUM)],
        "count.jsonl": [{"k": "head", "schema": 1}, *child],
    }

    found = measure(read(files))

    basis = basis_of(found)
    assert (basis.how, basis.num_counted, basis.is_apart) == ("range", 20, True)
    assert (basis.low_flops, basis.high_flops) == (300, 300 + 60 * 19)
    assert "count more" not in text_of(found)


@pytest.mark.parametrize(
    ("own", "total", "missing"),
    [(((13, 300), (23, 900)), 600, None), ((), None, "child_subclass")],
)
def test_an_extra_run_in_which_something_was_not_seen_is_void(
    own: Sequence[tuple[int, int]], total: int | None, missing: str | None
) -> None:
    rows = [make_update(n, {"forward": 5}, x=[*by_count(forwards=1), *sizes()]) for n in range(NUM)]
    child = [count_line(n, 300 + 60 * n, sizes(), is_whole=True) for n in range(20)]
    files = {
        "rank-0.jsonl": [HEAD, *rows, *[count_line(*one, sizes()) for one in own], make_end(NUM)],
        "count.jsonl": [
            {"k": "head", "schema": 1},
            *child,
            {"k": "count", "missing": "child_subclass"},
        ],
    }

    found = measure(read(files))

    assert found.count_missing == missing
    assert (found.count and found.count.total) == total


def test_steps_are_told_by_the_size_of_their_inputs() -> None:
    counted = [count_line(n, 30 * rows, sizes(rows)) for n, rows in ((3, 8), (5, 16))]
    found = measured(lambda n: sizes(16 if n % 4 == 0 else 8), *counted)

    small, large = basis_of(found).sizes
    num = len(window_of(found))
    assert (small.num_steps, small.mean_flops) == (num - large.num_steps, 240)
    assert (large.low_rows, large.high_elements, large.mean_flops) == (16, 16, 480)


def test_sizes_of_many_kinds_are_grouped() -> None:
    groups = group_sizes({(n, 10 * n): (2, 200.0 * n) for n in range(1, 101)})

    assert len(groups) == MAX_GROUPS
    assert sum(one.num_steps for one in groups) == 200
    assert {24, 26} == {one.num_steps for one in groups}
    assert groups[0].low_elements == 10
    assert groups[-1].high_elements == 1_000
    assert groups[0].mean_flops == pytest.approx(700)


def test_a_few_steps_of_another_size_are_taken_in_proportion_and_named() -> None:
    found = measured(lambda n: sizes(4 if n == 35 else 8), count_line(13, 300, sizes()), num=200)

    basis = basis_of(found)
    assert basis.how == "scaled"
    assert 0 < basis.assumed_fraction < 0.01
    assert basis.low_flops == 150
    assert "taken in proportion to their size" in text_of(found)


def test_many_steps_of_a_size_that_was_not_counted_leave_a_range() -> None:
    found = measured(lambda n: sizes(8 if n < 12 else 64), count_line(13, 300, sizes()))

    assert basis_of(found).how == "range"


def test_blocks_of_long_runs_are_added_by_the_mean_of_their_sizes() -> None:
    block = make_block(NUM, 100, round_ms=5)
    at = 7 + len(BUCKETS) + len(COUNTS)
    block["row"][at:at] = [100 * one for one in sizes(16)]
    block["row"][5] = NUM * 10_000_000
    counted = [count_line(n, 30 * rows, sizes(rows)) for n, rows in ((3, 8), (5, 16), (9, 20))]

    found = measured(lambda n: sizes(), *counted, others=[block])

    assert basis_of(found).num_steps == len(window_of(found))
    assert found.count is not None
    assert 240 < found.count.total <= 480
    assert basis_of(found).high_flops == 480


def test_blocks_of_several_optimizers_are_taken_like_the_steps_before() -> None:
    block = make_block(NUM, 100, round_ms=5)
    at = 7 + len(BUCKETS) + len(COUNTS)
    block["row"][at:at] = [100 * one for one in sizes(16)]
    counted = [count_line(13 + n, 300 * (1 + n), sizes(), optimizer=n) for n in range(2)]

    found = measured(lambda n: sizes(), *counted, optimizers=lambda n: n % 2, others=[block])

    assert found.count is not None
    assert (found.count.total, basis_of(found).how) == (900, "range")


def test_a_model_without_products_has_no_work() -> None:
    found = measured(lambda n: sizes(), count_line(13, 0, sizes()))

    assert found.count is not None
    assert (found.count.total, basis_of(found).how) == (0, "one")


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"has_guests": True, "forward": 10}, "forward_elsewhere"),
        ({"has_guests": True, "forward": 10, "is_double": True}, None),
        ({"forward": 10}, None),
        ({"outside_flops": 50}, "outside_modules"),
        ({"before_flops": 50}, "forward_elsewhere"),
        ({"backward": 0}, "no_backward_seen"),
    ],
)
def test_a_forward_that_was_not_seen_has_a_reason(more: dict[str, Any], word: str | None) -> None:
    found = measured(lambda n: sizes(), count_line(13, 300, sizes(), **more))

    assert found.count_missing == word
    assert (found.count is None) == (word is not None)
    if word is not None:
        text = text_of(found)
        assert REASONS[word] in text
        assert "in a contained extra run: steptime run --count -- python train.py" in text


@pytest.mark.parametrize(
    ("of", "word"), [(lambda n: 1 + n * 7 % 5, "steps_differ"), (lambda n: 2, None)]
)
def test_an_older_run_whose_steps_differ_in_no_order_has_no_work(
    of: Callable[[int], int], word: str | None
) -> None:
    rows = [make_update(n, {"forward": 5}, x=by_count(backwards=of(n))) for n in range(NUM)]
    line = count_line(13, 300, [])
    del line["sizes"], line["optimizer"]

    found = measure(read({"rank-0.jsonl": [make_head(), *rows, line, make_end(NUM)]}))

    assert found.count_missing == word
    if word is None:
        assert (basis_of(found).how, basis_of(found).num_counted) == ("one", 1)


def test_a_line_with_too_few_sizes_is_skipped() -> None:
    found = measured(lambda n: sizes(), count_line(13, 300, [1, 2]))

    assert (found.count, found.count_missing) == (None, None)


def test_the_sizes_of_a_run_go_with_the_counts_of_its_extra_child() -> None:
    rows = [
        make_update(n, {"forward": 5}, x=[*by_count(forwards=1), *sizes(plain=9 * (n % 4 == 0))])
        for n in range(NUM)
    ]
    own = {"k": "count", "n": 13, "missing": "without_gradients"}
    child = [
        count_line(n, 900 if n % 4 == 0 else 300, sizes(plain=9 * (n % 4 == 0)), is_whole=True)
        for n in range(8)
    ]
    files = {
        "rank-0.jsonl": [HEAD, *rows, own, make_end(NUM)],
        "count.jsonl": [{"k": "head", "schema": 1}, *child],
    }

    found = measure(read(files))

    assert {one.flops for one in basis_of(found).kinds} == {300, 900}
    true = [900 if n % 4 == 0 else 300 for n in window_of(found)]
    assert found.count is not None
    assert found.count.total == pytest.approx(sum(true) / len(true), abs=1)


def test_where_no_extra_run_would_help_none_is_offered() -> None:
    found = measured(lambda n: sizes(), {"k": "count", "n": 13, "missing": "too_few_updates"})

    assert "--count" not in text_of(found)


def test_jagged_tensors_are_refused_in_the_report_and_in_the_docs() -> None:
    told = text_of(replace(measured(lambda n: sizes()), count=None, count_missing="child_subclass"))
    assert "of the jagged layout" in " ".join(told.split())
    assert "--count" not in told, "it refused them already"
    page = (DOCS / "how-to" / "count-the-work.md").read_text()
    assert "Nested tensors of the jagged layout are refused there, too" in page
