"""What the search knows of the process in which states are compared live."""

from __future__ import annotations

from typing import cast

import pytest

from steptime.levers.base import Facts
from steptime.tune.search.bench import ArmResult, Bench, ComparisonResult, LiveRequest
from steptime.tune.search.budget import BLOCK_S, BudgetLedger
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.rounds.live_process import LiveProcess
from steptime.tune.values.study_values import WELL, Applied, Ending, State, TrialEnd

START_S = 5.0


def on(*names: str) -> State:
    return tuple(Applied(name=name, settings={}) for name in names)


class Clocked:
    """A bench that charges each request what it is told to."""

    def __init__(self) -> None:
        self.left_s, self.takes_s, self.compile_s = 600.0, 0.0, 0.0
        self.ending = WELL
        self.asked: list[LiveRequest] = []

    def compare_live(self, request: LiveRequest) -> ComparisonResult:
        self.asked.append(request)
        self.left_s -= self.takes_s
        ratios = (0.1,) * request.num_rounds
        arm = ArmResult(
            state=request.states[1],
            log_ratios=ratios,
            cpu_log_ratios=ratios,
            ending=WELL,
            compile_s=self.compile_s,
        )
        return ComparisonResult(ending=self.ending, arms=(arm,), reference_step_s=None)

    def time_left_s(self) -> float:
        return self.left_s


@pytest.fixture
def bench() -> Clocked:
    return Clocked()


@pytest.fixture
def ledger() -> BudgetLedger:
    ledger = BudgetLedger(600.0)
    ledger.observed(10.0, startup_s=START_S, step_s=None)
    return ledger


@pytest.fixture
def process(bench: Clocked, ledger: BudgetLedger) -> LiveProcess:
    return LiveProcess(cast(Bench, bench), ledger)


def cost_s(process: LiveProcess, fixed: State) -> float:
    return process.cost_s([ComparisonSeries(state=on("fast"), reference=())], fixed, 10)


def ask(process: LiveProcess, fixed: State = ()) -> ComparisonResult:
    return process.compare(fixed, ((), on("fast")), 10, most_s=60.0)


def test_only_the_first_question_with_the_same_fixed_levers_pays_a_start(
    process: LiveProcess, bench: Clocked
) -> None:
    bench.takes_s = START_S + 20 * BLOCK_S
    assert cost_s(process, ()) == pytest.approx(START_S + 20 * BLOCK_S)
    ask(process)
    assert cost_s(process, ()) == pytest.approx(20 * BLOCK_S)
    assert cost_s(process, on("workers")) == pytest.approx(START_S + 20 * BLOCK_S)


def test_a_process_that_was_ended_or_did_not_end_well_must_be_started_again(
    process: LiveProcess, bench: Clocked
) -> None:
    bench.takes_s = START_S + 20 * BLOCK_S
    ask(process)
    process.forget()
    assert cost_s(process, ()) > START_S
    ask(process)
    bench.ending = Ending(end=TrialEnd.FAILED)
    ask(process)
    assert cost_s(process, ()) > START_S


def test_what_compiling_took_is_learned_apart_from_the_blocks(
    process: LiveProcess, bench: Clocked, ledger: BudgetLedger
) -> None:
    bench.compile_s = 40.0
    bench.takes_s = START_S + 20 * BLOCK_S + bench.compile_s
    ask(process)
    assert ledger.compilation() == pytest.approx(40.0)
    assert cost_s(process, ()) == pytest.approx(20 * BLOCK_S)


def test_a_process_that_has_compiled_four_states_is_full(process: LiveProcess) -> None:
    facts = Facts(torch_version="2.13.0", uses_compile=True)
    assert not process.needs_another(facts, [(), on("a"), on("b")])
    assert not process.needs_another(facts, [(), on("c")])
    assert process.needs_another(facts, [(), on("d")])
    assert not process.needs_another(facts, [(), on("e"), on("f")]), "the new one has two so far"


def test_a_process_that_compiles_nothing_is_never_full(process: LiveProcess) -> None:
    facts = Facts(torch_version="2.13.0", uses_compile=False)
    assert not any(process.needs_another(facts, [(), on(name)]) for name in "abcdefgh")
