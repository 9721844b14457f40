"""What two sets of runs say: intervals from runs, never from steps; what stands in the way."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare_cases import (
    make_compared,
    make_measured,
    make_record,
    make_set,
    run_id_of,
    with_machine,
)
from steptime.compare.facts import take_run
from steptime.compare.judge import compare, judge
from steptime.compare.spread import (
    MIN_DEGREES_SINGLE,
    Gaps,
    Pool,
    combine,
    difference,
    paired_difference,
    pool,
    pool_neighbors,
    runs_for,
)
from steptime.compare.values import ComparedRun, CompareOutcome, Comparison, Estimate, GateOutcome
from steptime.core.codec import from_json, to_json
from steptime.core.process_end import ProcessEnd, RunState

STEADY_A = (0.100, 0.101, 0.099)
STEADY_B = (0.110, 0.111, 0.109)


def codes(found: Comparison) -> list[str]:
    return [obstacle.code for obstacle in found.obstacles]


def remarks(found: Comparison) -> list[str]:
    return [remark.code for remark in found.remarks]


def compare_times(a: tuple[float, ...], b: tuple[float, ...], **options: float) -> Comparison:
    return compare(make_set(a), make_set(b, first=1), **options)  # type: ignore[arg-type]


# -- the answer


def test_a_difference_above_the_spread_of_runs_is_slower() -> None:
    found = compare_times(STEADY_A, STEADY_B)

    assert found.outcome is CompareOutcome.SLOWER
    assert found.step is not None
    assert found.step.change is not None
    assert found.step.change.value == pytest.approx(0.1, abs=1e-3)
    assert found.step.change.low is not None
    assert found.step.change.low > 0.07
    assert found.step.difference_s.value == pytest.approx(0.01, abs=1e-4)


def test_the_other_way_round_it_is_faster() -> None:
    assert compare_times(STEADY_B, STEADY_A).outcome is CompareOutcome.FASTER


def test_runs_that_differ_as_much_among_themselves_show_no_difference() -> None:
    found = compare_times((0.09, 0.1, 0.11), (0.095, 0.105, 0.12))

    assert found.outcome is CompareOutcome.NO_DIFFERENCE


def test_sharp_steps_inside_a_run_do_not_make_the_interval_narrow() -> None:
    """Each run's own interval is 0.1 % wide here; the runs differ by ten."""
    found = compare_times((0.095, 0.105, 0.1), (0.1, 0.11, 0.105))

    assert found.step is not None
    assert found.step.change is not None
    assert found.step.change.low is not None
    assert found.step.change.low < -0.05


def test_runs_that_agree_by_chance_are_not_believed_to_the_last_digit() -> None:
    found = compare_times((0.1, 0.1, 0.1), (0.1005, 0.1005, 0.1005))

    assert found.outcome is CompareOutcome.NO_DIFFERENCE


def test_steps_too_few_for_their_own_time_widen_the_interval() -> None:
    sharp = compare_times(STEADY_A, STEADY_B).step
    blunt_a = [replace(run, error_fraction=0.1) for run in make_set(STEADY_A)]
    blunt = compare(blunt_a, make_set(STEADY_B, first=1)).step

    assert sharp is not None
    assert sharp.change is not None
    assert blunt is not None
    assert blunt.change is not None
    assert blunt.change.low < 0 < sharp.change.low  # type: ignore[operator]


def test_phases_add_up_to_the_step_and_say_where_it_went() -> None:
    slow = {"input_wait": 0.019, "forward": 0.03, "backward": 0.05, "optimizer": 0.01}
    shares = {name: value / 0.109 for name, value in slow.items()}
    found = compare(make_set(STEADY_A), make_set((0.109,) * 3, first=1, shares=shares))

    by_name = {effect.name: effect.difference_s for effect in found.phases}
    assert by_name["input_wait"].value == pytest.approx(0.009, abs=1e-4)
    assert by_name["backward"].value == pytest.approx(0.0, abs=1e-4)
    assert math.fsum(e.value for e in by_name.values()) == pytest.approx(0.009, abs=1e-4)
    assert by_name["input_wait"].low is not None
    assert by_name["input_wait"].low > 0.008


def test_what_is_kept_apart_from_the_steps_is_compared_too() -> None:
    a = make_set(STEADY_A, spans_s={"evaluation": 2.0})
    found = compare(a, make_set(STEADY_A, first=1, spans_s={"evaluation": 6.0}))

    (evaluation,) = found.spans
    assert (evaluation.a_s, evaluation.b_s) == (2.0, 6.0)
    assert found.outcome is CompareOutcome.NO_DIFFERENCE
    assert found.finish is not None
    assert found.finish.difference_s.value == pytest.approx(4.0, abs=0.1)


def test_a_shorter_run_is_brought_to_the_same_length() -> None:
    a = make_set(STEADY_A, num_steps=1000)
    found = compare(a, make_set(STEADY_A, first=1, num_steps=500))

    assert found.num_steps == 1000
    assert found.finish is not None
    assert found.finish.b_s == pytest.approx(found.finish.a_s, rel=0.01)
    assert "other_lengths" in remarks(found)


def test_a_run_without_an_end_has_no_finish_and_is_told() -> None:
    open_end = {"duration_s": None, "end": ProcessEnd(state=RunState.RUNNING)}
    found = compare(make_set(STEADY_A), make_set(STEADY_B, first=1, **open_end))

    assert found.finish is None
    assert found.outcome is CompareOutcome.SLOWER
    assert "unfinished" in remarks(found)


# -- one run a side


def stored(num: int, *, step_s: float = 0.1, spread: float = 0.01, **fields: object) -> list:
    noise = random.Random(1)
    return [
        make_compared(step_s * math.exp(noise.gauss(0, spread)), number=100 + i, **fields)  # type: ignore[arg-type]
        for i in range(num)
    ]


ONE_A, ONE_B = [make_compared(0.1)], [make_compared(0.13, number=1)]


def test_one_run_a_side_with_nothing_stored_is_too_noisy() -> None:
    found = compare(ONE_A, ONE_B, limit=0.05)

    assert (found.outcome, found.reason) == (CompareOutcome.TOO_NOISY, "single_runs")
    assert found.gate is not None
    assert found.gate.outcome is GateOutcome.UNDECIDED


def test_one_run_a_side_with_too_few_stored_is_too_noisy() -> None:
    found = compare(ONE_A, ONE_B, stored=stored(MIN_DEGREES_SINGLE))

    assert (found.outcome, found.reason) == (CompareOutcome.TOO_NOISY, "few_stored")


def test_one_run_a_side_is_held_against_the_spread_of_stored_runs() -> None:
    quiet, noisy = (stored(30, spread=spread) for spread in (0.01, 0.1))

    assert compare(ONE_A, ONE_B, stored=quiet).outcome is CompareOutcome.SLOWER
    assert compare(ONE_A, ONE_B, stored=noisy).outcome is CompareOutcome.NO_DIFFERENCE


def test_stored_runs_of_another_kind_say_nothing() -> None:
    other_script = stored(30, record={"argv": ("python", "other.py")})
    other_cpu = stored(30, record=with_machine(cpu="another"))
    failed = stored(30, end=ProcessEnd(state=RunState.FAILED, exit_code=1))

    for runs in (other_script, other_cpu, failed):
        assert compare(ONE_A, ONE_B, stored=runs).outcome is CompareOutcome.TOO_NOISY


def test_stored_runs_with_other_arguments_are_repeats_of_each_other() -> None:
    slow = {"argv": ("python", "train.py", "--size", "9")}
    runs = [
        *stored(15),
        *(replace(r, place=f"/t/{r.place}") for r in stored(15, record=slow, step_s=0.9)),
    ]

    found = compare(ONE_A, ONE_B, stored=runs)

    assert found.spread is not None
    assert found.spread.fraction < 0.02


def test_phases_of_stored_runs_with_longer_steps_are_brought_to_scale() -> None:
    slow = stored(30, step_s=10.0, record={"argv": ("python", "train.py", "--size", "9")})

    found = compare(ONE_A, [make_compared(0.2, number=1)], stored=slow)

    (backward,) = [phase for phase in found.phases if phase.name == "backward"]
    assert backward.difference_s.low is not None
    assert backward.difference_s.low > 0


def test_where_each_stored_run_has_other_code_a_jump_counts_once() -> None:
    jump = [
        make_compared(
            (0.1 if i < 12 else 0.2) * (1 + 0.005 * (i % 2)),
            number=100 + i,
            record={"script_hash": f"sha256:{i}", "git_revision": str(i)},
        )
        for i in range(24)
    ]

    found = compare(ONE_A, ONE_B, stored=jump)

    assert found.spread is not None
    assert found.spread.is_of_other_code
    assert 0.05 < found.spread.fraction < 0.15


def test_the_compared_runs_are_not_counted_among_the_stored_ones() -> None:
    assert compare(ONE_A, ONE_B, stored=[*ONE_A, *ONE_B] * 9).outcome is CompareOutcome.TOO_NOISY


def test_two_runs_a_side_with_nothing_stored_are_too_noisy_however_far_they_lie_apart() -> None:
    found = compare_times((0.1, 0.1), (0.2, 0.2), limit=0.05)

    assert (found.outcome, found.reason) == (CompareOutcome.TOO_NOISY, "two_runs")
    assert found.gate is not None
    assert found.gate.outcome is GateOutcome.UNDECIDED


def test_two_runs_a_side_are_held_against_stored_runs() -> None:
    a, b = make_set((0.1, 0.101)), make_set((0.2, 0.201), first=1)

    assert compare(a, b, stored=stored(4)).outcome is CompareOutcome.SLOWER


def test_five_runs_stand_on_their_own() -> None:
    assert compare_times((0.1, 0.1), (0.2, 0.2, 0.2)).outcome is CompareOutcome.SLOWER


def test_runs_of_two_speeds_seldom_look_like_a_change() -> None:
    """Far apart, each in half of the runs: what two runs a side cannot tell from a change."""
    noise, num_claims = random.Random(1), 0
    for _ in range(400):
        a, b = (tuple(noise.choice((0.1, 0.12)) for _ in range(3)) for _ in "ab")
        found = compare_times(a, b, limit=0.05)
        num_claims += found.gate is not None and found.gate.outcome is GateOutcome.FAILED

    assert num_claims <= 0.05 * 400


def test_phases_that_agree_by_chance_are_not_believed_to_the_last_digit() -> None:
    found = compare_times((0.1, 0.1, 0.1), (0.1001, 0.1001, 0.1001))

    low, high = found.phases[0].difference_s.low, found.phases[0].difference_s.high
    assert low is not None
    assert high is not None
    assert low < 0 < high


def test_three_runs_a_side_stand_on_their_own() -> None:
    wild = stored(30, spread=0.5)

    found = compare(make_set(STEADY_A), make_set(STEADY_B, first=1), stored=wild)

    assert found.outcome is CompareOutcome.SLOWER
    assert found.spread is not None
    assert found.spread.num_stored == 0


# -- the gate


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ((0.10, 0.04, 0.16), GateOutcome.FAILED),
        ((0.10, -0.01, 0.22), GateOutcome.UNDECIDED),
        ((0.04, 0.01, 0.07), GateOutcome.UNDECIDED),
        ((0.01, -0.02, 0.04), GateOutcome.PASSED),
        ((0.04, 0.03, 0.05), GateOutcome.PASSED),
        ((-0.2, -0.3, -0.1), GateOutcome.PASSED),
        ((math.nan, 0.0, 0.0), GateOutcome.UNDECIDED),
        ((-math.inf, -math.inf, -math.inf), GateOutcome.UNDECIDED),
        ((0.0, None, None), GateOutcome.UNDECIDED),
    ],
)
def test_the_gate(change: tuple[float, float, float], outcome: GateOutcome) -> None:
    value, low, high = change

    assert judge(Estimate(value=value, low=low, high=high), limit=0.05) is outcome


def test_no_estimate_is_no_pass() -> None:
    assert judge(None, limit=0.05) is GateOutcome.UNDECIDED


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.floats(0, 1))
def test_a_difference_inside_the_noise_never_fails(ends: list[float], limit: float) -> None:
    low, value, high = sorted(ends)

    outcome = judge(Estimate(value=value, low=low, high=high), limit=limit)

    assert not (low <= 0 and outcome is GateOutcome.FAILED)
    assert not (value > limit and outcome is GateOutcome.PASSED)


# -- what stands in the way


@pytest.mark.parametrize("step_s", [None, math.nan, math.inf, 0.0, -1.0])
def test_a_step_time_that_is_none_is_an_obstacle_and_no_pass(step_s: float | None) -> None:
    broken = make_compared(0.1, number=9)
    a, b = make_set(STEADY_A), make_set(STEADY_A, first=1)
    found = compare(a, [*b, replace(broken, step_s=take(step_s))], limit=0.05)

    assert (found.outcome, found.reason) == (CompareOutcome.NOT_COMPARABLE, "too_few_steps")
    assert found.gate is not None
    assert found.gate.outcome is GateOutcome.UNDECIDED


def take(step_s: float | None) -> float | None:
    """As a measurement with this mean is read."""
    return make_compared(step_s).step_s


def test_a_handful_of_steps_is_an_obstacle() -> None:
    assert codes(compare(ONE_A, [make_compared(0.1, number=1, num_steps=13)])) == ["too_few_steps"]


def test_a_run_named_twice_is_an_obstacle() -> None:
    a = make_set(STEADY_A)

    assert codes(compare(a, [a[0]])) == ["named_twice"]
    assert codes(compare([a[0], a[0]], [a[1]])) == ["named_twice"]


@pytest.mark.parametrize(
    ("end", "seen"),
    [
        (ProcessEnd(state=RunState.FAILED, exit_code=1), ["failed"]),
        (ProcessEnd(state=RunState.FAILED, exit_code=130), []),
        (ProcessEnd(state=RunState.KILLED, signal=9), ["failed"]),
        (ProcessEnd(state=RunState.KILLED, signal=15), []),
    ],
)
def test_a_run_that_failed_is_an_obstacle_one_that_somebody_ended_is_not(
    end: ProcessEnd, seen: list[str]
) -> None:
    found = compare(ONE_A, [make_compared(0.1, number=1, end=end)])

    assert codes(found) == seen


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"record": {"argv": ("python", "other.py")}}, "other_script"),
        ({"record": with_machine(cpu="another")}, "other_machine"),
        ({"record": with_machine(num_cores=64)}, "other_machine"),
        ({"num_ranks": 2}, "other_ranks"),
    ],
)
def test_what_must_be_the_same_is_an_obstacle(changes: dict, code: str) -> None:
    found = compare(make_set(STEADY_A), make_set(STEADY_B, first=1, **changes))

    assert codes(found) == [code]
    assert found.outcome is CompareOutcome.SLOWER


def test_another_batch_is_other_work() -> None:
    def fed_with(shape: str, first: int) -> list[ComparedRun]:
        rank = replace(make_measured().ranks[0], input_shapes=(shape,))
        return make_set(STEADY_A, first=first, ranks=(rank,))

    assert codes(compare(fed_with("8x3 float32", 0), fed_with("16x3 float32", 1))) == [
        "other_input"
    ]
    assert codes(compare(fed_with("8x3 float32", 0), make_set(STEADY_A, first=1))) == []


def test_another_folder_of_the_same_script_is_none() -> None:
    record = {"argv": ("/venv/bin/python", "/b/train.py", "--lr", "0.1"), "cwd": "/b"}

    found = compare(make_set(STEADY_A), make_set(STEADY_A, first=1, record=record))

    assert codes(found) == []


# -- machines


def test_two_machines_of_a_kind_cannot_be_told_from_their_code() -> None:
    found = compare(
        make_set(STEADY_A),
        make_set(STEADY_B, first=1, record=with_machine(hostname_hash="bbbb")),
    )

    assert (found.outcome, found.reason) == (CompareOutcome.TOO_NOISY, "hosts_differ")
    assert "other_hosts" in remarks(found)


def test_stored_repeats_that_span_machines_tell_how_much_those_differ() -> None:
    here_and_there = [
        replace(run, host=f"host {i % 3}") for i, run in enumerate(stored(24, spread=0.01))
    ]
    b = make_set(STEADY_B, first=1, record=with_machine(hostname_hash="bbbb"))

    assert compare(make_set(STEADY_A), b, stored=here_and_there).outcome is CompareOutcome.SLOWER
    same = [replace(run, host="aaaa") for run in here_and_there]
    assert compare(make_set(STEADY_A), b, stored=same).outcome is CompareOutcome.TOO_NOISY


def test_sets_that_span_machines_hold_how_much_those_differ() -> None:
    def spread_over(times_s: tuple[float, ...], first: int) -> list:
        return [
            make_compared(
                step_s, number=first + 2 * i, record=with_machine(hostname_hash=f"{first}{i}")
            )
            for i, step_s in enumerate(times_s)
        ]

    found = compare(spread_over(STEADY_A, 0), spread_over(STEADY_B, 1))

    assert found.outcome is CompareOutcome.SLOWER


# -- remarks


def test_sets_made_one_after_the_other_are_told() -> None:
    later = [make_compared(step_s, number=10 + i) for i, step_s in enumerate(STEADY_B)]

    assert "not_interleaved" in remarks(compare(make_set(STEADY_A), later))
    assert "not_interleaved" not in remarks(compare_times(STEADY_A, STEADY_B))


def test_others_on_the_machine_are_told() -> None:
    found = compare(make_set(STEADY_A), make_set(STEADY_B, first=1, others_cores=1.5))

    (remark,) = [r for r in found.remarks if r.code == "contended"]
    assert remark.facts == {"count": 3, "of": 6, "cores": 1.5}


def test_a_set_that_is_not_of_one_kind_is_told() -> None:
    odd = make_compared(0.1, number=8, record={"argv": ("python", "train.py", "--lr", "0.2")})
    found = compare([*make_set(STEADY_A), odd], make_set(STEADY_B, first=1))

    (remark,) = [r for r in found.remarks if r.code == "mixed"]
    assert remark.facts == {"side": "A", "names": "--lr"}


# -- pairs

DRIFT = (0.100, 0.182, 0.131, 0.250, 0.115, 0.160)
SLOWER = (1.08, 1.07, 1.09, 1.085, 1.075, 1.08)
EQUAL = (1.01, 0.99, 1.0, 1.01, 0.995, 0.99)


def compare_drifting(factors: tuple[float, ...], *, num: int = 6, in_pairs: bool) -> Comparison:
    b = tuple(a * factor for a, factor in zip(DRIFT, factors, strict=True))
    return compare_times(DRIFT[:num], b[:num], limit=0.04, in_pairs=in_pairs)


def answer_of(found: Comparison) -> GateOutcome | None:
    return None if found.gate is None else found.gate.outcome


def test_what_the_machine_did_to_both_of_a_pair_does_not_count() -> None:
    found = compare_drifting(SLOWER, in_pairs=True)

    assert answer_of(compare_drifting(SLOWER, in_pairs=False)) is GateOutcome.UNDECIDED
    assert answer_of(found) is GateOutcome.FAILED
    assert found.step is not None
    assert found.step.change is not None
    assert found.step.change.value == pytest.approx(0.08, abs=1e-3)
    assert found.spread is not None
    assert found.spread.is_paired
    assert found.spread.fraction < 0.01


def test_equal_runs_in_pairs_pass_where_the_machine_drifts() -> None:
    assert answer_of(compare_drifting(EQUAL, in_pairs=True)) is GateOutcome.PASSED
    assert compare_drifting(EQUAL, num=3, in_pairs=True).reason == "few_pairs"


def test_by_cpu_a_step_is_the_cpu_time_of_its_phases_and_nothing_lies_beside_it() -> None:
    measured = make_measured(0.1, spans_s={"checkpoint": 2.0})
    phases = tuple(
        replace(phase, cpu_mean_s=0.02 if phase.name in ("forward", "backward") else None)
        for phase in measured.phases
    )
    record = make_record()
    found = take_run(replace(measured, phases=phases), record, place="x", by_cpu=True)

    assert found.step_s == pytest.approx(0.04)
    assert found.phases_s == {"forward": 0.02, "backward": 0.02}
    assert (found.duration_s, found.spans_s) == (None, {})
    assert take_run(measured, record, place="x", by_cpu=True).step_s is None
    assert take_run(measured, record, place="x").step_s == pytest.approx(0.1)


def test_the_interval_of_pairs_is_students_of_their_differences() -> None:
    found = paired_difference((0.0, 10.0, 20.0, 30.0), (1.0, 12.0, 23.0, 32.0))

    assert found.value == 2.0
    assert found.high == pytest.approx(2 + 3.182 * math.sqrt(2 / 3) / 2)


# -- the arithmetic


def test_the_pool_is_about_the_means_of_the_groups() -> None:
    found = pool([(1.0, 3.0), (10.0, 12.0), (5.0,)])

    gaps = Gaps(groups=((1.0, 3.0), (10.0, 12.0), (5.0,)))
    assert found == Pool(squares=4.0, degrees=2, gaps=gaps)
    assert len(gaps) == 2
    assert pool([]) == Pool()


@given(
    st.lists(st.lists(st.floats(-1e9, 1e9), max_size=8), max_size=4),
    st.lists(st.floats(0.0, 1e9), max_size=6),
    st.floats(0.01, 1.0),
)
def test_a_gap_of_a_rank_is_the_one_that_sorting_all_gaps_finds(
    groups: list[list[float]], listed: list[float], fraction: float
) -> None:
    pairs = [abs(b - a) for group in groups for a, b in itertools.combinations(group, 2)]
    every = sorted([*listed, *pairs])
    gaps = Gaps(groups=tuple(map(tuple, groups)), listed=listed)

    assert len(gaps) == len(every)
    if every:
        rank = math.ceil(fraction * len(every))
        assert gaps.nth_smallest(rank) == every[rank - 1]


def test_with_one_run_a_side_what_repeats_seldom_exceed_is_the_interval() -> None:
    """Twenty repeats, one of which was hit: 19 of the 190 differences are of it."""
    hit = pool([[*(0.01 * (i % 2) for i in range(19)), 1.0]])
    quiet = pool([[0.01 * (i % 2) for i in range(20)]])

    assert difference((0.0,), (0.0,), noise=hit).high == pytest.approx(1.25)
    assert difference((0.0,), (0.0,), noise=quiet).high == pytest.approx(1.25 * 0.01)
    assert difference((0.0,), (0.0,), noise=quiet, least=0.1).high == pytest.approx(0.277, rel=0.01)


def test_neighbors_ignore_the_level() -> None:
    flat, jump = [0.0, 1.0] * 6, [0.0, 1.0] * 3 + [50.0, 51.0] * 3

    assert pool_neighbors(flat).variance == pytest.approx(0.5)
    assert pool_neighbors(jump).variance < pool([jump]).variance  # type: ignore[operator]
    assert pool_neighbors([1.0]) == Pool()


def test_stored_runs_that_are_far_quieter_are_of_another_day() -> None:
    own, stored_noise = Pool(squares=4.0, degrees=2), Pool(squares=1.0, degrees=20)

    assert combine(own, stored_noise) == own
    assert combine(own, Pool(squares=20.0, degrees=20)).degrees == 22
    assert combine(own, Pool(squares=500.0, degrees=500)).degrees == 32


def test_the_interval_is_students_for_two_and_three_runs() -> None:
    a, b = (0.0, 1.0, 2.0), (1.0, 3.0)
    found = difference(a, b, noise=pool([a, b]))

    assert found.value == 1.0
    assert found.high == pytest.approx(1 + 3.182 * math.sqrt(4 / 3) * math.sqrt(1 / 3 + 1 / 2))


def test_more_runs_are_needed_the_noisier_they_are() -> None:
    needed = [runs_for(spread, wanted=0.05) for spread in (0.005, 0.02, 0.05, 0.5)]

    assert needed[:3] == sorted(needed[:3])  # type: ignore[type-var]
    assert needed[0] == 3
    assert needed[3] is None


def test_a_comparison_survives_json() -> None:
    found = compare_times(STEADY_A, STEADY_B, limit=0.05)
    document = json.loads(json.dumps(to_json(found)))

    assert from_json(Comparison, document) == found
    assert found.a[0].run_id == run_id_of(0)
