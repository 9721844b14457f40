"""Useful work: what the batches that were looked at say of the run, and what is concluded."""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from report_cases import GPT_PHASES, make_measurement, make_phases
from steptime.app.run.describe_run import describe_run
from steptime.core.codec import from_json, to_json
from steptime.diagnose.ailments.waste import wasted_work
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Severity
from steptime.measure.fold.seen_lines import CountSeen
from steptime.measure.source.pad_calls import TO_LENGTH, TO_LONGEST, find_padding_lines
from steptime.measure.values.model.useful_work import Padding, RankBalance, RankShare
from steptime.measure.values.model.work import ClassCount, Count
from steptime.measure.values.observations import Site
from steptime.measure.work.length_work import LengthWork, find_length_work
from steptime.measure.work.padding import find_padding, useful_fraction
from steptime.record.loaders.batch_rows import SEEN_BY, BatchRow, batches
from steptime.record.rows import MisshapenError
from steptime.report.blocks.work.padding_blocks import padding_blocks
from steptime.report.words.run.run_words import describe_finding
from told_blocks import told

BOUNDS, MASK, PIXELS, LABELS, RUNS = range(len(SEEN_BY))
LINEAR = LengthWork()


def batch(
    lengths: Sequence[int], width: int, *, number: int = 0, seen_by: int = MASK, token: int = -1
) -> BatchRow:
    return BatchRow(
        number=number,
        seen_by=seen_by,
        num_rows=len(lengths),
        width=width,
        num_seen=len(lengths) * width,
        num_needed=len(lengths) * max(lengths),
        num_trained=-1,
        token=token,
        lengths=tuple(lengths),
    )


def found(rows: Sequence[BatchRow], work: LengthWork = LINEAR) -> Padding:
    padding = find_padding([rows], work)
    assert padding is not None
    assert from_json(Padding, to_json(padding)) == padding
    return padding


# -- the batches


def test_positions_are_added_up_exactly() -> None:
    padding = found([batch((2, 4), 10), batch((6, 8), 10, number=1)])

    assert padding.useful_fraction == 20 / 40
    assert padding.trimmed_fraction == (8 + 16) / 40
    assert padding.trimmed_work == pytest.approx(24 / 40)
    assert padding.grouped_work == pytest.approx((2 * 8 + 2 * 4) / 40)
    assert padding.useful_work == pytest.approx(20 / 40)
    assert padding.attention_fraction is None
    assert (padding.lengths.shortest, padding.lengths.median, padding.lengths.longest) == (2, 5, 8)
    assert sum(one.num_rows for one in padding.lengths.bins) == padding.lengths.num_rows == 4


def test_attention_grows_with_the_square() -> None:
    padding = found([batch((2, 4), 10)], LengthWork(square=0.5, is_known=True))

    before = 2 * (10 + 50)
    assert padding.attention_fraction == pytest.approx(100 / before)
    assert padding.trimmed_work == pytest.approx(2 * (4 + 8) / before)
    assert padding.useful_work == pytest.approx((2 + 2 + 4 + 8) / before)


def test_rows_of_similar_length_are_predicted_within_groups() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(1, 100) for _ in range(800)]
    rows = [batch(lengths[n : n + 8], 100, number=n // 8) for n in range(0, 800, 8)]
    padding = found(rows)

    expected = 0
    for begin in (0, 400):
        group = sorted(lengths[begin : begin + 400], reverse=True)
        expected += sum(8 * group[n] for n in range(0, 400, 8))
    assert padding.grouped_work == pytest.approx(expected / 80_000)
    assert padding.grouped_work is not None
    assert padding.trimmed_work is not None
    assert padding.useful_work < padding.grouped_work < padding.trimmed_work < 1


def test_packed_sequences_waste_only_their_tail() -> None:
    row = batch((2, 4), 8, seen_by=BOUNDS)._replace(num_rows=1, num_seen=8, num_needed=6)
    padding = found([row])

    assert padding.useful_fraction == 6 / 8
    assert (padding.trimmed_work, padding.grouped_work) == (None, None)
    assert padding.useful_work == 6 / 8


def test_the_loss_takes_a_part_of_the_used_positions() -> None:
    assert found([batch((4, 4), 8)._replace(num_trained=2)]).trained_fraction == 2 / 8
    assert found([batch((4, 4), 8)]).trained_fraction is None


def test_a_token_pads_only_if_it_is_always_the_same() -> None:
    same = [batch((4, 8), 8, number=n, seen_by=RUNS, token=0) for n in range(10)]
    assert found(same).useful_fraction == 12 / 16
    assert found(same).token == 0
    odd = [batch((6, 8), 8, number=n, seen_by=RUNS, token=n) for n in range(10)]
    assert found(odd).useful_fraction == 1
    assert found(odd).token is None
    assert useful_fraction(odd) == 1


def test_the_source_that_most_batches_have_counts() -> None:
    rows = [batch((4, 8), 8, seen_by=RUNS), *[batch((2, 2), 8, number=n) for n in (1, 2)]]
    assert found(rows).seen_by == "attention_mask"
    assert found(rows).num_batches == 2


def test_nothing_is_said_where_nothing_was_seen() -> None:
    assert find_padding([[], []], LINEAR) is None
    assert useful_fraction([]) is None


def test_a_misshapen_row_is_refused() -> None:
    good = [*batch((2, 4), 8)[:-1], [2, 4]]
    assert batches({"k": "l", "rows": [good]}) == [batch((2, 4), 8)]
    for bad in (good[:-1], [*good[:-1], 3], [*good[:-1], [-1]], [0, 9, *good[2:]], ["", *good[1:]]):
        with pytest.raises(MisshapenError):
            batches({"k": "l", "rows": [bad]})


# -- work by length


def seen(rows: int, width: int, *, linear: int, square: int) -> CountSeen:
    total = rows * (linear * width + square * width * width)
    count = Count(
        forward=total, backward=2 * total, recomputed=0, macs=0, by_dtype={"fp32": 3 * total}
    )
    sizes = (rows, rows * width, rows * width * width, 0, 0, 0, rows * width)
    return CountSeen(count=count, optimizer=0, sizes=sizes)


def test_updates_of_several_lengths_tell_linear_and_square_work_apart() -> None:
    counted = [seen(4, width, linear=1000, square=20) for width in (8, 12, 16, 31)]
    work = find_length_work(None, counted)
    assert work.is_known
    assert work.square == pytest.approx(0.02)


def test_of_one_length_the_operators_of_attention_do() -> None:
    one = ClassCount(name="attention", num=1, flops=200, moved_bytes=0)
    count = Count(forward=500, backward=500, recomputed=0, macs=0, by_dtype={}, classes=(one,))
    work = find_length_work(count, [seen(4, 10, linear=1, square=0)])
    assert work.attention_fraction([10.0]) == pytest.approx(0.2)
    assert find_length_work(None, []) == LengthWork()
    assert LengthWork().attention_fraction([10.0]) is None


# -- findings


def padded(lengths: Sequence[int] = (5, 20), width: int = 100, *, num: int = 16) -> Padding:
    return found([batch(lengths, width, number=n) for n in range(num)])


def test_padding_is_the_diagnosis_where_it_costs_most() -> None:
    site = Site(what="input_wait", file="train.py", line=7, end_line=7, calls_per_step=1.0)
    padding = replace(padded(), places=("train.py:3",))
    m = make_measurement(GPT_PHASES, padding=padding, sites=(site,))
    diagnosis = diagnose(m)

    finding = diagnosis.findings[0]
    assert diagnosis.kind is finding.kind is BottleneckKind.PADDING
    assert (finding.cause, finding.severity) == ("padding", Severity.CRITICAL)
    evidence = {one.name: one.value for one in finding.evidence}
    assert evidence["useful"] == 0.125
    assert evidence["mean_width"] == 100
    model = 0.0412 + 0.0031 + 0.0668
    assert evidence["trimmed_gain"] == pytest.approx(0.8 * model / 0.1181, rel=0.01)
    assert finding.site == site
    assert finding.names == {"seen_by": "attention_mask", "lines": "train.py:3"}
    text = describe_finding(finding, 0.1)
    assert "only 12 % of the positions" in text or "only 12.5 %" in text
    assert "longest row would save" in text


@pytest.mark.parametrize(
    "padding",
    [
        None,
        padded((100, 100)),
        padded((92, 96)),
        padded(num=7),
        found([batch((6, 8), 8, number=n, seen_by=RUNS, token=n) for n in range(20)]),
    ],
    ids=("unknown", "fixed length", "little", "few batches", "other tokens"),
)
def test_runs_without_much_padding_are_left_alone(padding: Padding | None) -> None:
    assert wasted_work.find_padding(make_measurement(GPT_PHASES, padding=padding)) is None


def test_padding_beside_a_longer_wait_for_input_is_not_worth_a_finding() -> None:
    phases = make_phases({"input_wait": 0.2, "forward": 0.005, "backward": 0.01, "other": 0.001})
    assert wasted_work.find_padding(make_measurement(phases, padding=padded())) is None


def balance(excess: float) -> RankBalance:
    ranks = [
        RankShare(
            rank=n, elements_per_step=1000.0, work_fraction=1.0, longest_fraction=0.5, forward_s=0.1
        )
        for n in range(2)
    ]
    return RankBalance(num_steps=100, excess_fraction=excess, ranks=tuple(ranks))


WAITING = make_phases({"forward": 0.03, "backward": 0.03, "communication": 0.03, "other": 0.001})


def test_uneven_ranks_are_the_diagnosis_and_not_the_exchange() -> None:
    m = make_measurement(WAITING, balance=balance(0.45), num_ranks=2)
    m = replace(m, ranks=tuple(replace(m.ranks[0], rank=n, world_size=2) for n in range(2)))
    diagnosis = diagnose(m)

    finding = diagnosis.findings[0]
    assert diagnosis.kind is finding.kind is BottleneckKind.IMBALANCE
    assert finding.cause == "imbalance"
    evidence = {one.name: one.value for one in finding.evidence}
    assert evidence["wait"] == pytest.approx(0.45 * 60 / 91, rel=1e-3)
    assert (evidence["rank_0_work"], evidence["rank_1_longest"]) == (1.0, 0.5)
    (exchange,) = [f for f in diagnosis.findings if f.kind is BottleneckKind.COMMUNICATION_BOUND]
    assert exchange.severity is Severity.INFO


def test_even_ranks_are_left_alone() -> None:
    assert wasted_work.find_imbalance(make_measurement(WAITING, balance=balance(0.05))) is None
    assert wasted_work.find_imbalance(make_measurement(WAITING)) is None


# -- what is shown


def test_rates_are_given_with_and_without_padding() -> None:
    m = make_measurement(GPT_PHASES, padding=padded())
    steady = m.steady
    assert steady is not None
    ranks = tuple(replace(rank, tokens_per_step=800.0) for rank in m.ranks)
    m = replace(m, ranks=ranks, steady=replace(steady, mean_s=0.1))
    document = describe_run(m, None)

    assert document.work is not None
    assert document.work.total is None
    assert document.work.useful_fraction == 0.125
    assert document.work.tokens_per_s == pytest.approx(8000)
    assert document.work.useful_tokens_per_s == pytest.approx(1000)
    line = told(padding_blocks(document))
    assert "1,000 useful of 8,000 tokens per second" in line
    assert "16 batches" in line


def test_rows_of_one_length_need_no_line() -> None:
    m = make_measurement(GPT_PHASES, padding=padded((100, 100)))
    assert padding_blocks(describe_run(m, None)) == []


# -- the source


def test_lines_that_pad_are_found_in_the_source() -> None:
    tree = ast.parse(
        "a = tok(x, padding=True)\n"
        "b = pad_sequence(rows)\n"
        "c = tok(x, padding='max_length', max_length=512)\n"
        "d = tok(x, padding=False)\n"
        "e = transformers.DataCollatorWithPadding(tok)\n"
        "f = nn.Conv2d(3, 3, 3, padding=1)\n"
        "g = nn.Conv2d(3, 3, 3, padding='same')\n"
    )
    lines = find_padding_lines(tree)
    assert lines == [(TO_LENGTH, 3), (TO_LONGEST, 1), (TO_LONGEST, 2), (TO_LONGEST, 5)]
