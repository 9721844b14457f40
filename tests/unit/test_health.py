"""Since when numbers are not finite, from the rows and places in a rank's file."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.health.numerical_health import find_divergence, find_flat_loss
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Diagnosis, Severity
from steptime.measure.fold.run_fold import measure
from steptime.measure.health.find_health import MAX_SKIPPED, mark_bad, split_episodes
from steptime.measure.health.loss_series import merge_rows
from steptime.measure.values.model.health import Health, NonFinite
from steptime.record.rows import LossRow, MisshapenError, losses
from steptime.report.words.run.advice import choose_headline
from steptime.report.words.run.run_words import describe_finding
from unit.builders import (
    Line,
    make_head,
    make_measurement,
    make_update,
    measure_lines,
    read,
)

SCRIPT = "/home/me/project/train.py"


def line_of(*rows: list[Any]) -> Line:
    return {"k": "v", "rows": list(rows)}


def place_of(n: int, **fields: Any) -> Line:
    named = {"value": "loss", "is_nan": True, "skipped": 0, "file": SCRIPT, "line": 31}
    return {"k": "nf", "n": n, **named, **fields}


def weights(**fields: int) -> dict[str, int]:
    names = ("num", "num_bad", "num_broken", "num_states", "num_bad_states")
    return dict.fromkeys(names, 0) | {"num": 4, "num_states": 8} | fields


def found(*lines: Line, num_updates: int = 10) -> NonFinite | None:
    updates = [make_update(number) for number in range(num_updates)]
    health = measure_lines(*updates, *lines).health
    return None if health is None else health.non_finite


def numbers(*values: float | str | None, **fields: int) -> Line:
    """The losses of the first updates."""
    skipped = fields.get("skipped", 0)
    return line_of(*([n, 0, skipped, value, None] for n, value in enumerate(values, start=1)))


GOOD = [1.0] * 5


# -- the rows


def test_rows_hold_what_json_has_no_word_for() -> None:
    found = losses(line_of([1, 0, 0, 2, "nan"], [2, 1, 1, None, "-inf"]))

    assert found[0].loss == 2.0
    assert found[0].norm is not None
    assert math.isnan(found[0].norm)
    assert found[1] == LossRow(2, 1, 1, None, -math.inf)


@pytest.mark.parametrize(
    "row", [[1, 0, 0, 2], [1, 0, 0, "far", None], [1.5, 0, 0, 1, 1], [1, 0, 0, 1e100, 1], [], "x"]
)
def test_a_row_of_another_shape_is_refused(row: Any) -> None:
    with pytest.raises(MisshapenError):
        losses({"k": "v", "rows": [row]})


def test_numbers_that_come_late_join_their_update() -> None:
    late = [LossRow(1, 0, 0, None, 5.0), LossRow(2, 0, 0, 1.0, None), LossRow(1, 0, 0, 3.0, None)]

    assert merge_rows(late) == [LossRow(1, 0, 0, 3.0, 5.0), LossRow(2, 0, 0, 1.0, None)]


def test_backward_calls_before_the_first_step_belong_to_it() -> None:
    early = [
        LossRow(1, -1, 0, 1.0, None),
        LossRow(2, -1, 0, 3.0, None),
        LossRow(1, 0, 0, None, 2.0),
    ]

    assert merge_rows(early) == [LossRow(1, 0, 0, 2.0, 2.0)]
    assert merge_rows(early[:2]) == early[:2]


def test_the_first_update_may_be_known_from_its_backward_call_alone() -> None:
    rows = [LossRow(1, -1, 0, 1.0, None), LossRow(2, 3, 0, 5.0, None)]

    assert merge_rows(rows) == [LossRow(1, 3, 0, 1.0, None), LossRow(2, 3, 0, 5.0, None)]


def test_a_bad_backward_call_makes_the_first_update_bad() -> None:
    rows = merge_rows([LossRow(1, -1, 0, math.nan, None), LossRow(1, 0, 0, None, 2.0)])

    assert mark_bad(rows) == [True]


# -- since when


def test_finite_numbers_are_no_finding() -> None:
    assert found(numbers(*GOOD)) is None


def test_a_loss_that_stays_bad_is_lost_from_there_on() -> None:
    one = found(numbers(*GOOD, "nan", "nan", "inf", "nan", "nan"), place_of(6))

    assert one == NonFinite(
        value="loss",
        what="nan",
        rank=0,
        first_update=6,
        last_finite_update=5,
        num_wasted=5,
        num_updates=10,
        is_going_on=True,
        file="train.py",
        line=31,
    )


def test_bad_numbers_that_passed_are_counted_until_then() -> None:
    one = found(numbers(1.0, "inf", 1.0, "nan", "nan", 1.0))

    assert one is not None
    assert (one.first_update, one.num_wasted, one.is_going_on) == (2, 3, False)
    assert one.what == "infinity"


def test_what_goes_on_matters_more_than_what_passed() -> None:
    one = found(numbers(1.0, "inf", *GOOD, "nan", "nan", "nan"))

    assert one is not None
    assert (one.first_update, one.num_wasted) == (8, 4)


def test_a_bad_norm_is_the_gradients() -> None:
    one = found(line_of([1, 0, 0, 1.0, 2.0], [2, 0, 0, 1.0, "nan"]), place_of(2, line=40))

    assert one is not None
    assert (one.value, one.first_update, one.line) == ("gradient_norm", 2, 40)


def test_the_sparse_looks_of_a_device_give_the_last_good_one_too() -> None:
    rows = ([n, 0, 0, "nan" if n > 40 else 1.0, None] for n in range(1, 90, 16))
    one = found(line_of(*rows), num_updates=100)

    assert one is not None
    assert (one.last_finite_update, one.first_update, one.num_wasted) == (33, 49, 52)


# -- the scaler


def test_updates_that_a_scaler_skips_are_usual() -> None:
    rows = [[n, 0, int(n % 5 == 0), 1.0, "inf" if n % 5 == 0 else 1.0] for n in range(1, 100)]

    assert found(line_of(*rows), num_updates=100) is None


def test_a_scaler_that_skips_for_ever_is_not() -> None:
    rows = [[n, 0, int(n > 10), 1.0, None] for n in range(1, 12 + MAX_SKIPPED)]
    one = found(line_of(*rows), num_updates=len(rows))

    assert one is not None
    assert (one.value, one.first_update, one.is_skipped) == ("skipped_updates", 11, True)
    assert one.num_wasted == len(rows) - 10


def test_a_bad_loss_does_not_get_better_by_scaling() -> None:
    rows = [[n, 0, int(n > 10), "nan" if n > 10 else 1.0, None] for n in range(1, 21)]
    one = found(line_of(*rows), num_updates=20)

    assert one is not None
    assert (one.value, one.first_update, one.num_wasted) == ("loss", 11, 10)


def test_episodes_end_where_numbers_are_good_again() -> None:
    assert [(one.begin, one.end) for one in split_episodes([True, False, True, True])] == [
        (0, 1),
        (2, 4),
    ]


# -- the weights


@pytest.mark.parametrize(
    ("seen", "first_update"),
    [
        (weights(), 6),
        (weights(num_bad=4, num_bad_states=8), 5),
        (weights(num_bad=1), 6),  # the states are sound: the script wrote it
        (weights(num_bad=3, num_states=0), 5),
        (weights(num_bad=1, num_broken=1, num_states=0), 5),
        (weights(num_bad=1, num_states=0), 6),
        (weights(num_bad=1, num=1, num_states=0), 5),
    ],
)
def test_weights_that_were_bad_date_it_to_the_update_before(
    seen: dict[str, int], first_update: int
) -> None:
    one = found(numbers(*GOOD, *["nan"] * 5), place_of(6, weights=seen))

    assert one is not None
    assert one.value == ("weights" if seen["num_bad"] else "loss")
    assert one.first_update == first_update
    assert one.num_wasted == 11 - first_update
    assert one.last_finite_update == first_update - 1


def test_before_the_first_update_there_is_no_other() -> None:
    one = found(numbers("nan", "nan"), place_of(1, weights=weights(num_bad=4)))

    assert one is not None
    assert (one.first_update, one.last_finite_update) == (1, None)


# -- the end


def test_a_script_that_stops_at_a_bad_loss_has_a_finding() -> None:
    one = found(numbers(*[1.0] * 10), place_of(11, is_open=True))

    assert one is not None
    assert (one.first_update, one.num_wasted, one.is_going_on) == (11, 0, True)


def test_a_line_of_another_shape_is_passed_over() -> None:
    assert found(numbers(*GOOD), {"k": "nf", "n": "six"}, {"k": "v", "rows": 3}) is None


# -- the diagnosis


def bad(**fields: Any) -> NonFinite:
    known = NonFinite(
        value="loss",
        what="nan",
        rank=0,
        first_update=60,
        last_finite_update=59,
        num_wasted=241,
        num_updates=300,
        is_going_on=True,
        file="train.py",
        line=31,
    )
    return replace(known, **fields)


def diagnosis_of(one: NonFinite, **fields: Any) -> Diagnosis:
    return diagnose(make_measurement(health=Health(num_seen=300, non_finite=one), **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"input_wait_s": 5.0},
        {"others_cores": 2.0},
        {"steady": None, "num_steps": 3},
        {"end": ProcessEnd(state=RunState.FAILED, exit_code=1)},
    ],
    ids=str,
)
def test_every_report_opens_with_numbers_that_are_lost(fields: dict[str, Any]) -> None:
    diagnosis = diagnosis_of(bad(), **fields)

    first = choose_headline(diagnosis)
    assert first is not None
    assert first is diagnosis.findings[0]
    assert (first.cause, first.severity) == ("non_finite", Severity.CRITICAL)
    assert {item.name: item.value for item in first.evidence} == {
        "first_update": 60,
        "updates_wasted": 241,
        "num_updates": 300,
        "last_finite_update": 59,
    }
    assert first.site is not None
    assert (first.where, first.site.file, first.site.line) == ("train.py:31", "train.py", 31)


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (
            bad(),
            "NaN in the loss from update 60 on, to the end of the run: 241 of 300 updates were "
            "wasted.",
        ),
        (
            bad(value="gradient_norm", what="infinity", is_going_on=False, num_wasted=2),
            "infinity in the norm of the gradients from update 60 on, for a while: 2 of 300 "
            "updates were wasted.",
        ),
    ],
)
def test_the_sentence_says_what_since_when_and_how_much(one: NonFinite, sentence: str) -> None:
    finding = diagnosis_of(one).findings[0]

    assert describe_finding(finding, 0.5).startswith(sentence)


def test_what_passed_is_a_warning() -> None:
    findings = diagnosis_of(bad(is_going_on=False)).findings

    assert next(f for f in findings if f.cause == "non_finite").severity is Severity.WARNING


def test_the_rank_is_told_where_there_are_several() -> None:
    finding = diagnosis_of(bad(rank=1), num_ranks=2).findings[0]

    assert {item.name: item.value for item in finding.evidence}["bad_rank"] == 1


def test_curves_say_nothing_more_of_a_training_that_is_lost() -> None:
    lost = make_measurement(health=Health(num_seen=9, non_finite=bad()))

    assert find_divergence(lost) is None
    assert find_flat_loss(lost) is None


def test_without_losses_there_is_no_health() -> None:
    assert measure_lines(make_update(0)).health is None


def test_of_ranks_that_share_gradients_the_one_with_the_bad_loss_counts() -> None:
    updates = [make_update(number) for number in range(10)]
    spoiled = weights(num_bad=4, num_bad_states=8)
    ranks = {
        "rank-0.jsonl": [
            make_head(world_size=2),
            *updates,
            numbers(*GOOD, 1.0, *["nan"] * 4),
            place_of(7, weights=spoiled),
        ],
        "rank-1.jsonl": [
            make_head(rank=1, pid=102, world_size=2),
            *updates,
            numbers(*GOOD, *["nan"] * 5),
            place_of(6, weights=weights()),
        ],
    }

    health = measure(read(ranks)).health

    assert health is not None
    assert health.non_finite is not None
    assert (health.non_finite.rank, health.non_finite.first_update) == (1, 6)
