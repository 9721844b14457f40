"""The search for parameters: what is read, which run comes next, and what the runs say."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from steptime.app.search import run_metric
from steptime.app.search.sought_trial import newly_said
from steptime.errors import UsageError
from steptime.report.blocks.study.sweep_report import describe_beside
from steptime.seek.new_seeds import judge_new_seeds
from steptime.seek.next_run import NEW_SEED, NextRun, Stop, next_run
from steptime.seek.pace import StopRule, rule_for, why_stop, would_take_s
from steptime.seek.seek_answer import answer_of
from steptime.seek.sought_parameters import (
    check_command,
    filled,
    parse_default,
    parse_parameters,
)
from steptime.seek.standing import standings, times_of
from steptime.seek.values.seek_values import (
    Role,
    SeekEnd,
    SeekQuestion,
    SeekRun,
    SoughtParameter,
)

LR = SoughtParameter(name="lr", low=1e-4, high=1e-1, is_log=True)


needs_scipy = pytest.mark.skipif(
    find_spec("scipy") is None, reason="the extra steptime[verify] is not installed"
)


def a_question(**others) -> SeekQuestion:
    return SeekQuestion(**{"parameters": (LR,), "target": 1.0, "budget_s": 1000.0, **others})


def a_run(number, time_s=None, *, candidate=None, role=Role.EXPLORE, **others) -> SeekRun:
    """A run whose metric falls to 1.0 at its time; one without a time ends at 2.0."""
    last = 1.0 if time_s is not None else 2.0
    took = time_s or 20.0
    told = {
        "number": number,
        "candidate": number if candidate is None else candidate,
        "parameters": {"lr": f"{number if candidate is None else candidate}e-3"},
        "seed": number,
        "role": role,
        "end": SeekEnd.REACHED if time_s is not None else SeekEnd.FINISHED,
        "seconds": took,
        "at_s": (took / 2, took),
        "values": (2 + number / 1000, last + number / 1000 * (last > 1)),
        "time_to_target_s": time_s,
    }
    return SeekRun(**{**told, **others})


def new_seeds(candidate, times, first=100):
    return [
        a_run(first + i, t, candidate=candidate, role=Role.NEW_SEED, seed=NEW_SEED + i)
        for i, t in enumerate(times)
    ]


def test_parameters_are_ranges_or_values():
    lr, layers, bs = parse_parameters(["lr=1e-4..1e-2:log", "layers=2..8", "bs=16,32,64"])

    assert (lr.low, lr.high, lr.is_log, lr.is_whole) == (1e-4, 1e-2, True, False)
    assert (layers.low, layers.high, layers.is_log, layers.is_whole) == (2, 8, False, True)
    assert bs.choices == ("16", "32", "64")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "--param is missing"),
        (["lr"], "no name with values"),
        (["lr=1e-2..1e-4"], "is empty"),
        (["lr=1..1"], "is empty"),
        (["lr=0..1:log"], "logarithmic range cannot begin at 0"),
        (["lr=a..b"], "is no range"),
        (["lr=1..2:lin"], "is no range"),
        (["bs=16"], "two or more different values"),
        (["bs=16,16"], "two or more different values"),
        (["lr=1..2", "lr=2..3"], "was given twice"),
        (["seed=1..9"], "a seed is no parameter"),
    ],
)
def test_a_parameter_that_cannot_be_searched_is_refused(texts, said):
    with pytest.raises(UsageError, match=said):
        parse_parameters(texts)


def test_a_default_belongs_to_what_is_searched():
    parameters = parse_parameters(["lr=1e-4..1e-2:log", "bs=16,32"])

    assert parse_default("bs=16,lr=1e-3", parameters) == {"lr": "1e-3", "bs": "16"}
    with pytest.raises(UsageError, match="differs in bs"):
        parse_default("lr=1e-3", parameters)
    with pytest.raises(UsageError, match="bs=17 lies outside"):
        parse_default("lr=1e-3,bs=17", parameters)


def test_placeholders_are_replaced_and_braces_kept():
    command = ("train.py", "--lr={lr}", "{{x}}", "--seed", "{seed}")

    assert check_command(command, (LR,), seed_flag=None)
    assert filled(command, {"lr": "0.1"}, seed=3, seed_flag=None) == (
        *("train.py", "--lr=0.1", "{x}", "--seed", "3"),
    )
    assert filled(("t", "{lr}"), {"lr": "1"}, seed=3, seed_flag="--seed") == (
        "t",
        "1",
        "--seed",
        "3",
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("train.py", "--lr", "lr"), "has no place for lr"),
        (("train.py", "{lr}", "{bs}"), "placeholder {bs}, which is not searched"),
    ],
)
def test_a_command_whose_placeholders_do_not_fit_is_refused(command, said):
    with pytest.raises(UsageError, match=said):
        check_command(command, (LR,), seed_flag=None)


def rule(**others) -> StopRule:
    return StopRule(**{"target": 1.0, "is_better_down": True, "limit_s": 100.0, **others})


def test_a_run_ends_at_the_target_when_it_diverges_and_at_its_limit():
    assert why_stop(rule(), (1.0,), (0.9,), elapsed_s=1) is SeekEnd.REACHED
    assert why_stop(rule(), (1.0,), (math.nan,), elapsed_s=1) is SeekEnd.DIVERGED
    assert why_stop(rule(), (1.0,), (3.0,), elapsed_s=100) is SeekEnd.PRUNED
    assert why_stop(rule(is_limit_budget=True), (), (), elapsed_s=100) is SeekEnd.TIMED_OUT
    assert why_stop(rule(), (1.0,), (3.0,), elapsed_s=99) is None


def test_a_run_far_behind_the_best_is_stopped_but_not_early():
    best = rule(best_at_s=(2.0, 5.0, 20.0), best_values=(3.0, 2.0, 1.0))

    assert why_stop(best, (1.0, 4.5), (3.5, 3.0), elapsed_s=5) is None  # before a quarter
    assert why_stop(best, (3.0, 6.0), (3.5, 3.0), elapsed_s=6) is SeekEnd.PRUNED  # 3 x slower
    assert why_stop(best, (3.0, 6.0), (3.5, 2.0), elapsed_s=6) is None


def test_a_censored_run_is_expected_at_its_pace():
    runs = [a_run(1, 10.0)]
    best = rule_for(runs, {1: 10.0}, limit_s=100, target=1.0, down=True)
    slow = a_run(2, at_s=(10.0, 20.0), values=(2.5, 2.001), end=SeekEnd.PRUNED)

    assert would_take_s(slow, best) == pytest.approx(40.0)  # its 20 s are the 5 s of the best
    assert would_take_s(a_run(3, end=SeekEnd.FAILED), best) == pytest.approx(400.0)


def test_a_censored_time_is_never_averaged():
    runs = [a_run(1, 10.0), a_run(2, None, candidate=1, role=Role.REPEAT), a_run(3, 30.0)]

    assert times_of(standings(runs)) == pytest.approx({3: 30.0})
    found = answer_of(a_question(), runs)
    assert found.best == {"lr": "3e-3"}
    assert (found.num_censored, found.num_runs, found.num_trials) == (1, 3, 2)


def test_the_best_by_less_than_the_noise_are_run_again_then_over_new_seeds_in_turns():
    assert next_run(a_question(), [a_run(1, 9.0)]).role is Role.EXPLORE
    question = a_question(budget_s=200.0)
    spent = [a_run(1, 9.0, seconds=30), a_run(2, 10.0, seconds=30), a_run(3, 30.0, seconds=30)]
    assert next_run(question, spent) == NextRun(candidate=1, seed=2, role=Role.REPEAT)
    clear = [a_run(1, 5.0, seconds=60), a_run(4, 5.0, candidate=1, role=Role.REPEAT, seconds=60)]
    clear.append(a_run(3, 30.0, seconds=30))
    first = next_run(question, clear)
    assert first == NextRun(candidate=1, seed=NEW_SEED, role=Role.NEW_SEED)
    then = next_run(a_question(), [*clear, *new_seeds(1, [5.0])])
    assert then == NextRun(candidate=3, seed=NEW_SEED, role=Role.NEW_SEED)


def test_the_same_runs_give_the_same_next_run_and_what_is_pending_counts():
    question = a_question(budget_s=200.0)
    runs = [a_run(1, 9.0, seconds=30), a_run(2, 10.0, seconds=30), a_run(3, 30.0, seconds=30)]
    first = next_run(question, runs)

    assert next_run(question, runs) == first
    assert next_run(question, runs, (first,)).candidate == 2
    assert next_run(a_question(budget_s=50), runs, (first,)) is Stop.WAIT
    assert next_run(a_question(budget_s=50), runs) is Stop.BUDGET
    assert next_run(a_question(), [a_run(1)], is_exhausted=True) is Stop.NO_TARGET


@needs_scipy
@pytest.mark.parametrize(
    ("winner", "rival", "holds", "reason"),
    [
        ([9.0, 9.1, 9.2], [20.0, 21.0, 22.0], True, None),
        ([9.0, 9.1, 9.2], [9.3, 9.2, 9.1], True, None),  # as good within the margin
        ([9.0, 9.1, 9.2], [20.0, 21.0, None], True, None),
        ([6.0, 9.0, 14.0], [7.0, 9.0, 13.0], None, "too_close_to_tell"),
        ([9.0, 9.1, None], [10.0, 10.1, 10.2], None, "winner_missed_once"),
        ([9.0, None, None], [10.0, 10.1, None], False, "winner_missed_target"),
        ([9.0, 9.1], [9.0, 9.1], None, "too_few_new_seeds"),
    ],
)
def test_the_winner_holds_if_new_seeds_say_so(winner, rival, holds, reason):
    runs = [a_run(1, 8.0), a_run(2, 9.0), *new_seeds(1, winner), *new_seeds(2, rival, 200)]

    check, found, why = judge_new_seeds(a_question(), runs)

    assert (found, why) == (holds, reason)
    assert (check.candidate, check.rival) == (1, 2)


@needs_scipy
def test_a_winner_that_was_only_lucky_gives_its_place_to_the_rival():
    runs = [a_run(1, 8.0), a_run(2, 9.0)]
    runs += [*new_seeds(1, [18.0, 18.2, 18.1]), *new_seeds(2, [9.0, 9.1, 9.2], 200)]

    found = answer_of(a_question(), runs)

    assert (found.best, found.holds, found.new_seeds.are_replaced) == ({"lr": "2e-3"}, True, True)
    assert found.time_to_target_s == pytest.approx(9.1, rel=0.01)
    assert found.new_seeds.speedup == pytest.approx(1.99, rel=0.02)


@needs_scipy
def test_the_default_is_the_rival_where_there_is_one():
    question = a_question(default={"lr": "0e-3"})
    runs = [a_run(1, 30.0, candidate=0), a_run(2, 8.0), a_run(3, 9.0)]
    runs += [*new_seeds(2, [8.0, 8.1, 8.2]), *new_seeds(0, [30.0, 31.0, 32.0], 200)]

    check, holds, _ = judge_new_seeds(question, runs)

    assert (check.rival, check.is_rival_default, holds) == (0, True, True)


@needs_scipy
@pytest.mark.parametrize("cut", [[], [SeekEnd.TIMED_OUT]])
@pytest.mark.parametrize(("reached", "holds"), [(None, True), (30.0, None)])
def test_a_default_that_never_reaches_the_target_keeps_no_answer_back(cut, reached, holds):
    question = a_question(default={"lr": "0e-3"})
    late = new_seeds(0, [None] * (2 + len(cut)), 200)
    runs = [a_run(1, reached, candidate=0), a_run(2, 8.0), *new_seeds(2, [8.0, 8.1, 8.2])]
    runs += [*late[:2], *(replace(run, end=end) for run, end in zip(late[2:], cut, strict=True))]

    found = answer_of(question, runs)

    assert (found.holds, found.best) == (holds, {"lr": "2e-3"})
    assert found.new_seeds.num_runs == (3 if holds else 2)
    if holds:
        assert (
            describe_beside(found) == "the default (lr=0e-3): none of its runs reached the target"
        )


def test_seeds_that_change_nothing_tell_nothing():
    same = [a_run(n, 8.0, candidate=1, role=Role.NEW_SEED, values=(2.0, 1.0)) for n in range(3)]
    runs = [a_run(1, 8.0, values=(2.0, 1.0)), *same]

    _, holds, reason = judge_new_seeds(a_question(), runs)

    assert (holds, reason) == (None, "seeds_change_nothing")


def test_the_frontier_and_the_effects_come_from_all_runs():
    times = [(1, 40.0), (2, 30.0), (3, 20.0), (4, 10.0), (5, 11.0), (6, 21.0), (7, 31.0), (8, 41.0)]
    found = answer_of(a_question(), [a_run(n, t) for n, t in times])

    assert found.frontier[-1].value == 1.0
    values = [point.value for point in found.frontier]
    assert values == sorted(values, reverse=True)
    (effect,) = found.effects
    assert effect.share > 0.5
    assert sum(group.n for group in effect.groups) == 8
    best = min(effect.groups, key=lambda group: group.time_s)
    assert (best.low, best.n) == ("3e-3", 2) or best.low == "4e-3"


def test_no_run_that_reached_the_target_is_no_answer_and_no_average():
    found = answer_of(a_question(), [a_run(1), a_run(2)])

    assert (found.best, found.time_to_target_s, found.holds) == (None, None, None)
    assert found.reason == "target_not_reached"
    assert found.num_censored == 2


@pytest.mark.parametrize(
    ("known", "now", "new"),
    [
        ([], [3, 2], [3, 2]),
        ([3, 2], [3, 2, 1], [1]),
        ([3, 2, 1], [2, 1, 0], [0]),  # the first is gone: only the end of an output is kept
        ([3, 2], [3, 2], []),
        ([1, 1], [1, 1, 1], [1]),
        ([5], [7, 6], [7, 6]),
    ],
)
def test_only_new_values_of_a_run_that_goes_on_are_added(known, now, new):
    assert newly_said(known, now) == new


def test_what_a_run_wrote_is_matched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, children = run_metric.subprocess.run, []
    monkeypatch.setattr(
        run_metric.subprocess, "run", lambda *words, **how: children.append(1) or run(*words, **how)
    )
    (tmp_path / "stdout").write_text("held-out 0.5\n")
    pattern = "held-out ([0-9.]+)"

    assert run_metric.read_metric(pattern, tmp_path) == ((1.0,), (0.5,))
    assert run_metric.read_metric(pattern, tmp_path) == ((1.0,), (0.5,))
    assert len(children) == 1
    (tmp_path / "stdout").write_text("held-out 0.5\nheld-out 0.4\n")
    assert run_metric.read_metric(pattern, tmp_path) == ((1.0, 2.0), (0.5, 0.4))
