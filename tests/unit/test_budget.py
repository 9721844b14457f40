"""Costs that are learned, the reserve that is kept, and when a one-off cost is earned."""

from __future__ import annotations

import math

import pytest

from steptime.tune.search.budget import BudgetLedger, break_even_steps, length_of_run


def make_ledger(**observed) -> BudgetLedger:
    ledger = BudgetLedger(600.0)
    ledger.observed(ledger.spend(590.0), **({"startup_s": 4.0, "step_s": 0.5} | observed))
    return ledger


def test_a_third_of_the_budget_is_kept_for_the_proof():
    ledger = make_ledger()

    assert ledger.affords(390.0)
    assert not ledger.affords(391.0)


def test_once_the_reserve_is_lowered_the_proof_may_spend_it():
    ledger = make_ledger()
    ledger.reserve_s = 0.0

    assert ledger.affords(590.0)


def test_nothing_is_affordable_when_the_budget_is_spent():
    ledger = make_ledger()
    ledger.reserve_s = -1e9
    ledger.spend(-1.0)

    assert not ledger.affords(0.0)


def test_a_closed_budget_pays_for_nothing():
    ledger = make_ledger()
    ledger.is_closed = True

    assert not ledger.affords(0.0)


def test_a_share_may_be_left_to_others():
    ledger = make_ledger()

    assert ledger.affords(190.0, keep=0.5)
    assert not ledger.affords(191.0, keep=0.5)


def test_a_block_is_a_step_to_settle_and_a_step_that_counts():
    assert make_ledger().blocks(10, num_starts=1) == pytest.approx(4.0 + 10 * 1.0)


def test_short_steps_are_put_together_in_one_block():
    assert make_ledger(step_s=0.001).blocks(10, num_starts=0) == pytest.approx(10 * 0.076)


def test_without_a_step_time_blocks_have_a_usual_length():
    assert make_ledger(step_s=None).blocks(1, num_starts=0) == pytest.approx(0.075)


def test_what_blocks_cost_is_learned_without_the_start():
    ledger = make_ledger()
    ledger.learn_blocks(24.0, 10, num_starts=1)

    assert ledger.blocks(1, num_starts=0) == pytest.approx(2.0)


def test_a_quick_start_does_not_make_blocks_free():
    ledger = make_ledger()
    ledger.learn_blocks(1.0, 10, num_starts=1)

    assert ledger.blocks(1, num_starts=0) == pytest.approx(0.5)


def test_a_pair_of_processes_costs_two_runs_until_one_was_seen():
    ledger = make_ledger()
    before = ledger.pairs(3)
    ledger.learn_pairs(50.0, 2)

    assert (before, ledger.pairs(3)) == (60.0, 75.0)


def test_a_judgement_costs_some_runs_until_one_was_seen():
    ledger = make_ledger()
    before = ledger.judgement()
    ledger.learn_judgement(70.0)

    assert (before, ledger.judgement()) == (5 * (4.0 + 20 * 0.5), 70.0)


def test_where_whole_runs_are_dear_more_is_kept_for_them():
    # 20 steps of 2.4 s, five times and a fifth more, and a confirmation.
    ledger = make_ledger(step_s=2.4)
    ledger.keep_for_proof(20.0)

    assert ledger.reserve_s == pytest.approx(1.2 * 5 * 52.0 + 20.0)


def test_a_share_of_the_budget_is_left_to_try_something_however_dear_whole_runs_are():
    ledger = make_ledger(step_s=20.0)
    ledger.keep_for_proof(20.0)

    assert ledger.reserve_s == pytest.approx(360.0)


def test_where_whole_runs_are_quick_a_third_is_kept_nevertheless():
    ledger = make_ledger()
    ledger.keep_for_proof(20.0)

    assert ledger.reserve_s == pytest.approx(200.0)


def test_kept_processes_cost_their_starts_once_and_a_stretch_of_each_a_pair():
    ledger = BudgetLedger(600.0)
    ledger.observed(20.0, startup_s=3.0, step_s=0.5)

    assert ledger.kept_pairs(4, num_starts=2) == 6.0 + 4 * 2 * (0.5 + 1.5)
    ledger.learn_kept_pairs(26.0, 4, num_starts=2)
    assert ledger.kept_pairs(4, num_starts=0) == 20.0


def test_a_compilation_is_earned_by_the_time_it_saves():
    # 100 ms become 80 ms: 20 ms a step earn 30 s in 1,500 steps.
    assert break_even_steps(30.0, 0.1, math.log(1.25)) == pytest.approx(1500)


def test_what_saves_nothing_is_never_earned():
    assert break_even_steps(30.0, 0.1, 0.0) == math.inf


def test_the_length_of_the_run_is_the_user_s():
    assert length_of_run(5000, 600.0, 0.1) == 5000


def test_a_run_of_unknown_length_is_taken_to_last_three_budgets():
    assert length_of_run(None, 600.0, 0.1) == 18_000


def test_a_long_step_needs_none_to_settle():
    assert make_ledger(step_s=2.0).blocks(10, num_starts=1) == pytest.approx(4.0 + 10 * 2.0)
