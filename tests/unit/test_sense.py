"""What the sense checks conclude from the record, and where they abstain."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest

from steptime.diagnose.ailments.sense.senseless import (
    find_rate_of_zero,
    find_unmoved_schedule,
    find_updates_in_evaluation,
)
from steptime.diagnose.ailments.sense.taught import find_rows_without_label
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.sense.find_sense import (
    find_duplicated,
    find_repeated,
    find_reseeded,
    find_stale,
)
from steptime.measure.sense.loss_origin import find_loss_line
from steptime.measure.sense.sense_record import EpochNumbers, read_sense, read_worker
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.sense_values import (
    EvaluatedUpdates,
    LearningRate,
    RepeatedWorkers,
    Sense,
    TargetUse,
)
from steptime.report.words.run.advice import choose_headline
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement

# -- rules


def seen(num_updates: int = 400, **parts: Any) -> Measurement:
    measurement = make_measurement()
    return replace(measurement, num_optimizer_updates=num_updates, sense=Sense(**parts))


def rate(zero_since: int | None, **changes: Any) -> LearningRate:
    known: dict[str, Any] = {"kind": "AdamW", "first_update": 1, "highest": 1e-3}
    return LearningRate(zero_since=zero_since, **{**known, **changes})


def cause(finding: Finding | None) -> str | None:
    return None if finding is None else finding.cause


@pytest.mark.parametrize(
    ("zero_since", "expected"), [(None, None), (381, None), (362, None), (361, "rate_of_zero")]
)
def test_a_rate_of_zero_is_one_for_a_tenth_of_the_updates(
    zero_since: int | None, expected: str | None
) -> None:
    assert cause(find_rate_of_zero(seen(rates=(rate(zero_since),)))) == expected


def test_a_short_run_at_zero_is_the_end_of_its_schedule() -> None:
    assert find_rate_of_zero(seen(60, rates=(rate(42),))) is None
    assert find_rate_of_zero(seen(60, rates=(rate(41),))) is not None


def test_an_optimizer_may_rest_while_another_one_trains() -> None:
    assert find_rate_of_zero(seen(rates=(rate(10), rate(None)))) is None
    assert find_rate_of_zero(seen(rates=(rate(10), rate(20)))) is not None


@pytest.mark.parametrize("changes", [{"kind": "Rprop"}, {"kind": "Mine"}, {"highest": 0.0}])
def test_a_rate_that_says_nothing_of_the_step_is_not_judged(changes: dict[str, Any]) -> None:
    assert find_rate_of_zero(seen(rates=(rate(10, **changes),))) is None


def test_a_schedule_per_micro_batch_is_named_with_what_it_cost() -> None:
    finding = find_rate_of_zero(seen(rates=(rate(100, num_advances=1600),)))

    assert finding is not None
    assert finding.severity is Severity.CRITICAL
    assert describe_finding(finding, None) == (
        "the learning rate is 0 from update 100 of 400 on, because the scheduler advances 4 times "
        "per update: 301 updates (75.2 %) changed no weight."
    )


@pytest.mark.parametrize(
    ("num_updates", "num_epochs", "changes", "expected"),
    [
        (200, 3, {}, "unmoved_schedule"),
        (199, 3, {}, None),
        (200, 2, {}, None),
        (200, 41, {}, None),
        (200, 3, {"first_update": 2}, None),
        (200, 3, {"num_advances": 1}, None),
        (200, 3, {"num_advances": None, "scheduler": None}, None),
        (200, 3, {"has_moved": True}, None),
        (200, 3, {"scheduler": "SWALR"}, None),
    ],
)
def test_a_schedule_that_nothing_steps_needs_updates_and_epochs(
    num_updates: int, num_epochs: int, changes: dict[str, Any], expected: str | None
) -> None:
    known = {"scheduler": "StepLR", "num_advances": 0, "has_moved": False, **changes}
    measurement = seen(num_updates, rates=(rate(None, **known),), num_epochs=num_epochs)

    assert cause(find_unmoved_schedule(measurement)) == expected


@pytest.mark.parametrize(("num", "expected"), [(19, False), (20, True), (300, True)])
def test_updates_in_evaluation_mode_need_a_number(num: int, *, expected: bool) -> None:
    found = EvaluatedUpdates(model="Net", first_update=101, num_updates=num, what=("dropout",))

    assert (find_updates_in_evaluation(seen(evaluated=found)) is not None) is expected


def test_a_second_pass_in_evaluation_mode_is_meant() -> None:
    found = EvaluatedUpdates(model="Net", first_update=1, num_updates=30, what=("dropout",))

    assert find_updates_in_evaluation(seen(1000, evaluated=found)) is None


@pytest.mark.parametrize(
    ("rows", "rows_without", "expected"), [(100, 19, False), (100, 20, True), (31, 31, False)]
)
def test_rows_without_a_label_need_a_share_and_a_number(
    rows: int, rows_without: int, *, expected: bool
) -> None:
    counts: dict[str, int] = {"num_updates": 9, "targets": 900, "useful": 90, "ignored": -100}
    found = TargetUse(rows=rows, rows_without=rows_without, **counts)

    assert (find_rows_without_label(seen(targets=found)) is not None) is expected


def test_what_is_learned_comes_before_how_fast() -> None:
    diagnosis = diagnose(seen(rates=(rate(10),)))

    assert cause(choose_headline(diagnosis)) == "rate_of_zero"


def test_a_warning_that_the_wrong_thing_is_learned_comes_before_a_critical_bottleneck() -> None:
    repeats = RepeatedWorkers(data_set="Crops", num_workers=2, names=("Crops.rng",))
    slow = make_measurement(input_wait_s=2.0, compute_s=0.1)
    diagnosis = diagnose(replace(slow, sense=Sense(repeated=repeats)))

    first, *others = diagnosis.findings
    assert (first.cause, first.severity) == ("repeated_draws", Severity.WARNING)
    assert Severity.CRITICAL in {one.severity for one in others}
    assert cause(choose_headline(diagnosis)) == "repeated_draws"


# -- the record


def worker(number: int, *, epoch: int = 1, turn: int = 1, **changes: Any) -> Any:
    line = {"k": "ws", "pid": 100 * epoch + number, "worker": number, "data_set": 5}
    line |= {"epoch": epoch, "turn": turn, "class_name": "Crops", "names": ["Crops.rng"]}
    return read_worker({**line, "numbers": {}, "states": [], "batches": [], **changes})


def test_workers_that_draw_the_same_repeat_also_over_epochs() -> None:
    same = [worker(n, epoch=e, states=["a", "b", "c"]) for e in (1, 2) for n in (0, 1)]
    other = [worker(n, epoch=e, states=[f"{e}", "b", "c"]) for e in (1, 2) for n in (0, 1)]
    found, apart = find_repeated(same), find_repeated(other)

    assert found is not None
    assert (found.num_workers, found.num_epochs, found.names) == (2, 2, ("Crops.rng",))
    assert apart is not None
    assert apart.num_epochs == 1


def test_a_worker_that_seeds_alike_in_each_epoch_repeats_its_draws() -> None:
    states = {"numpy.random": ["a", "b", "c"]}
    same = [worker(n, epoch=e, shared=states) for e in (1, 2, 3) for n in (0, 1)]
    other = worker(1, epoch=3, shared={"numpy.random": ["d", "b", "c"]})

    found = find_reseeded(same)

    assert found is not None
    assert (found.num_epochs, found.names) == (3, ("numpy.random",))
    assert find_reseeded([*same[:-1], other]) is None
    assert find_reseeded(same[:4]) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["a", "b", "c"], ["a", "b", "d"]),
        (["a", "b", "b"], ["a", "b", "b"]),
        (["a", "b"], ["a", "b"]),
        (["", "", ""], ["", "", ""]),
        (["a", "b", ""], ["a", "b", ""]),
        (["a", "b", "c"], ["d", "e", "f"]),
    ],
)
def test_states_that_differ_or_stay_prove_no_repetition(
    first: list[str], second: list[str]
) -> None:
    assert find_repeated([worker(0, states=first), worker(1, states=second)]) is None
    assert find_duplicated([worker(0, batches=first), worker(1, batches=second)]) is None


def test_one_worker_repeats_nobody() -> None:
    assert find_repeated([worker(0, states=["a", "b", "c"])]) is None
    assert find_duplicated([worker(0, batches=["a", "b", "c"])]) is None


def test_an_iterable_that_begins_alike_in_each_worker_is_yielded_whole() -> None:
    found = find_duplicated([worker(n, batches=["a", "b", "c"]) for n in (0, 1, 2)])

    assert found is not None
    assert (found.data_set, found.num_workers) == ("Crops", 3)


@pytest.mark.parametrize(
    ("parent", "held", "expected"),
    [
        ((0, 1, 2), (0, 0), True),
        ((0, 1, 2), (1, 2), False),
        ((0, 0, 0), (0, 0), False),
        ((0,), (0,), False),
    ],
)
def test_a_number_that_stays_behind_is_stale(
    parent: tuple[int, ...], held: tuple[int, ...], *, expected: bool
) -> None:
    numbers = tuple({"Crops.epoch": one} for one in parent)
    stays = [worker(0, turn=2 + i, numbers={"Crops.epoch": one}) for i, one in enumerate(held)]
    found = find_stale(stays, [EpochNumbers(data_set=5, numbers=numbers)])

    assert (found is not None) is expected


def test_a_line_without_anything_is_read() -> None:
    line = {"k": "se", "n": 3, "uncleared": None, "rates": [], "epochs": []}

    assert read_sense(line).sense == Sense()


# -- the line of a loss

SOURCE = """
def step(model, x, y):
    loss = 0.0
    out = model(x)
    loss = criterion(out, y)
    if True:
        (loss / 4).backward()

def other(loss):
    loss.backward()
    total = fit(loss)
    fit(loss).backward()
"""


@pytest.mark.parametrize(("line", "expected"), [(7, 5), (10, None), (12, None), (4, None)])
def test_the_line_of_a_loss_is_where_its_name_was_set_last(line: int, expected: int | None) -> None:
    assert find_loss_line(ast.parse(SOURCE), line) == expected
