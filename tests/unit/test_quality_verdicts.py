"""How a candidate is judged by its class: replay, one step, lockstep."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from steptime.verify.judge_quality import Reference, judge
from steptime.verify.lockstep import check_lockstep
from steptime.verify.protocol import SEED, gather, plan_runs
from steptime.verify.recordings import FirstTensor, RecordedUpdate, Recording
from steptime.verify.values import Outcome, Verdict
from unit.recordings import at, make_recording, make_tensors, noisy

BF16 = 2.0**-8


def rounded(size: float = 0.002, *, seed: int, error: float = 0.005) -> Recording:
    """A run that another rounding made different."""
    first = make_tensors(error=error, seed=seed)
    return make_recording(change=noisy(size, seed=seed), first=first)


def numeric_reference(**changes: object) -> Reference:
    values: dict[str, object] = {
        "baseline": make_recording(first=make_tensors(error=1e-7, seed=1)),
        "again": make_recording(),
        "double": make_recording(num_updates=4, first=make_tensors(), is_double=True),
        "perturbed": tuple(rounded(seed=seed) for seed in (2, 3, 4)),
        "roundoff": BF16,
        "num_repeats": 3,
    }
    return Reference(**(values | changes))  # type: ignore[arg-type]


def failed(verdict: Verdict) -> set[str]:
    return {check.name for check in verdict.checks if check.outcome is Outcome.FAIL}


def words_of(verdict: Verdict, name: str) -> str | None:
    return next(check.detail for check in verdict.checks if check.name == name)


# -- L0


def test_the_same_bits_pass_as_exact():
    reference = Reference(baseline=make_recording(), again=make_recording())

    verdict = judge(reference, make_recording(), preserves="EXACT")

    assert (verdict.outcome, verdict.level) == (Outcome.PASS, "L0")


def test_another_last_bit_of_a_loss_is_not_exact():
    other = math.nextafter(1.0, 2).hex()
    reference = Reference(baseline=make_recording(), again=make_recording())

    verdict = judge(reference, make_recording(change=at(7, losses=(other,))), preserves="EXACT")

    assert failed(verdict) == {"replay"}
    assert words_of(verdict, "replay") == "another loss in update 7"


def test_other_weights_are_not_exact_though_the_losses_are():
    reference = Reference(baseline=make_recording(), again=make_recording())

    verdict = judge(reference, make_recording(change=at(39, weights=0)), preserves="EXACT")

    assert words_of(verdict, "replay") == "other weights after update 39"


def test_before_the_second_baseline_run_exact_is_open():
    verdict = judge(Reference(baseline=make_recording()), make_recording(), preserves="EXACT")

    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_where_the_baseline_does_not_repeat_itself_its_noise_is_the_measure():
    baseline = make_recording(first=make_tensors(error=1e-6, seed=1))
    again = make_recording(first=make_tensors(error=1e-6, seed=2), change=noisy(1e-4, seed=2))
    reference = Reference(baseline=baseline, again=again)
    alike = make_recording(first=make_tensors(error=1e-6, seed=3), change=noisy(1e-4, seed=3))
    other = make_recording(first=make_tensors(error=0.5, seed=3), change=noisy(0.05, seed=3))

    assert judge(reference, alike, preserves="EXACT").outcome is Outcome.PASS
    assert "lockstep" in failed(judge(reference, other, preserves="EXACT"))


# -- L1 and L2


def test_another_rounding_passes_as_numeric():
    verdict = judge(numeric_reference(), rounded(seed=9), preserves="NUMERIC")

    assert (verdict.outcome, verdict.level) == (Outcome.PASS, "L2"), failed(verdict)


def test_a_tensor_that_is_wrong_is_named():
    first = make_tensors(error=0.005, seed=9)
    wrong = [
        replace(t, values=[0.6 * v for v in t.values]) if t.name == "2.weight" else t for t in first
    ]
    candidate = make_recording(change=noisy(0.002, seed=9), first=wrong)

    verdict = judge(numeric_reference(), candidate, preserves="NUMERIC")

    assert "one_step" in failed(verdict)
    assert "of 2.weight" in str(words_of(verdict, "one_step"))


def test_a_gradient_that_is_zero_fails():
    first = make_tensors(error=0.005, seed=9)
    lost = [replace(first[0], values=[0.0] * 64), *first[1:]]
    candidate = make_recording(change=noisy(0.002, seed=9), first=lost)

    verdict = judge(numeric_reference(), candidate, preserves="NUMERIC")

    assert words_of(verdict, "one_step") == "gradient of 0.weight is zero"


def test_a_tensor_without_a_gradient_fails():
    candidate = make_recording(first=make_tensors()[1:])

    verdict = judge(numeric_reference(), candidate, preserves="NUMERIC")

    assert words_of(verdict, "one_step") == "0.weight has no gradient"


def test_a_change_of_another_length_fails():
    reference = numeric_reference()
    first = [
        replace(one, values=list(one.values)[:-1]) if one.what == "change" else one
        for one in make_tensors(error=0.005, seed=5)
    ]

    verdict = judge(reference, make_recording(first=first), preserves="NUMERIC")

    assert "one_step" in failed(verdict)


def test_a_wrong_scale_of_all_gradients_fails():
    first = make_tensors(error=0.005, seed=9, scale=1.1)
    candidate = make_recording(change=noisy(0.002, seed=9), first=first)

    verdict = judge(numeric_reference(), candidate, preserves="NUMERIC")

    assert {"one_step_gradient", "one_step_change"} <= failed(verdict)


BIAS, MEAN = ("gradient", "0.bias"), ("buffer", "1.running_mean")


def with_nil(
    recording: Recording, *, size: float, seed: int, what: tuple[str, str] = BIAS
) -> Recording:
    """A recording with the gradient of a bias before a norm layer: rounding, and nothing else.

    Or with a mean of a norm layer behind another one and a product.
    """
    values = [size * v for v in make_tensors(error=1.0, seed=seed)[0].values]
    noise = [value * (-1) ** (i * seed) for i, value in enumerate(values)]
    tensor = FirstTensor(opt=0, what=what[0], name=what[1], values=noise)
    (rank,) = recording.ranks
    return Recording(ranks=(replace(rank, first=(*rank.first, tensor)),))


@pytest.mark.parametrize("has_twin", [True, False])
def test_a_gradient_that_is_rounding_alone_is_not_held_against_it(*, has_twin: bool):
    plain = numeric_reference()
    assert plain.double is not None
    double = with_nil(plain.double, size=1e-17, seed=1) if has_twin else Recording(ranks=())
    reference = replace(
        plain,
        baseline=with_nil(plain.baseline, size=1e-8, seed=2),
        double=double,
        perturbed=tuple(with_nil(one, size=1e-8, seed=3) for one in plain.perturbed),
    )
    candidate = with_nil(rounded(seed=9), size=1e-4, seed=4)

    verdict = judge(reference, candidate, preserves="NUMERIC")

    assert verdict.outcome is Outcome.PASS, failed(verdict)


@pytest.mark.parametrize(("size", "outcome"), [(1e-4, Outcome.PASS), (0.1, Outcome.FAIL)])
def test_a_mean_that_is_rounding_alone_is_compared_by_rounding(size: float, outcome: Outcome):
    plain = numeric_reference()
    assert plain.double is not None
    reference = replace(
        plain,
        baseline=with_nil(plain.baseline, size=1e-8, seed=2, what=MEAN),
        double=with_nil(plain.double, size=1e-17, seed=1, what=MEAN),
        perturbed=tuple(with_nil(it, size=1e-8, seed=3, what=MEAN) for it in plain.perturbed),
    )

    verdict = judge(
        reference, with_nil(rounded(seed=9), size=size, seed=4, what=MEAN), preserves="NUMERIC"
    )

    assert verdict.outcome is outcome, failed(verdict)


def signs(tensor: FirstTensor) -> FirstTensor:
    """The change that Adam makes of a gradient in its first update."""
    return replace(tensor, values=[math.copysign(0.001, v) for v in tensor.values])


def test_a_step_forward_or_back_by_chance_is_not_held_against_it():
    small = [1e-5 * (-1) ** i for i in range(8)] + [1.0] * 56
    flipped = [-v for v in small[:8]] + [1.001] * 56

    def recording(values: list[float]) -> Recording:
        gradient = FirstTensor(opt=0, what="gradient", name="0.weight", values=values)
        return make_recording(first=[gradient, replace(signs(gradient), what="change")])

    reference = numeric_reference(
        baseline=recording(small),
        double=recording(small),
        perturbed=tuple(recording([v * 1.0001 for v in small]) for _ in range(3)),
    )

    verdict = judge(reference, recording(flipped), preserves="NUMERIC")

    assert "one_step" not in failed(verdict)


def test_without_a_twin_in_float64_the_baseline_is_the_truth_and_that_is_said():
    reference = numeric_reference(double=Recording(ranks=()))

    verdict = judge(reference, rounded(seed=9), preserves="NUMERIC")

    assert verdict.outcome is Outcome.PASS
    assert "there is no twin in float64" in str(words_of(verdict, "one_step"))


def test_a_drift_fails_that_begins_at_nothing():
    candidate = make_recording(
        change=noisy(0.002, seed=9, bias=0.03), first=make_tensors(error=0.005, seed=9)
    )

    verdict = judge(numeric_reference(), candidate, preserves="NUMERIC")

    assert "lockstep_bias" in failed(verdict)


def test_a_loss_that_is_not_finite_fails():
    candidate = make_recording(change=at(12, losses=("nan",)), first=make_tensors())

    verdict = judge(numeric_reference(), candidate, preserves="NUMERIC")

    assert words_of(verdict, "finite") == "the loss of update 12 is not finite"


def test_too_few_updates_leave_it_open():
    short = [make_recording(num_updates=12, first=make_tensors()) for _ in range(5)]
    reference = Reference(
        baseline=short[0], again=short[1], double=short[2], perturbed=tuple(short[3:4])
    )

    verdict = judge(reference, short[4], preserves="NUMERIC")

    assert (verdict.outcome, verdict.level) == (Outcome.INCONCLUSIVE, "L1")
    assert "at least 20 are needed" in str(words_of(verdict, "lockstep"))


def ended_after(num_updates: int, recording: Recording) -> Recording:
    """The same run, of which more updates were asked than its training has."""
    (rank,) = recording.ranks
    end = None if rank.end is None else replace(rank.end, n=num_updates)
    updates = rank.updates[:num_updates]
    return Recording(ranks=(replace(rank, updates=updates, end=end),))


def test_a_whole_training_is_enough_however_few_updates_it_has():
    baseline = ended_after(15, make_recording())
    others = [ended_after(15, make_recording(change=noisy(0.01, seed=seed))) for seed in (1, 2, 3)]

    def judged(recording: Recording) -> Outcome:
        return check_lockstep(baseline, others, ended_after(15, recording))[0].outcome

    assert judged(make_recording(change=noisy(0.01, seed=4))) is Outcome.PASS
    assert judged(make_recording(change=noisy(0.5, seed=4))) is Outcome.FAIL


def test_a_training_that_was_cut_off_is_no_whole_one():
    runs = [ended_after(15, make_recording(is_over=False)) for _ in range(3)]

    assert check_lockstep(runs[0], runs[1:2], runs[2])[0].outcome is Outcome.INCONCLUSIVE


def test_chaos_leaves_it_open():
    baseline = make_recording()
    wild = [make_recording(change=noisy(1.0, seed=seed)) for seed in (1, 2, 3)]

    checks = check_lockstep(baseline, wild, make_recording(change=noisy(0.9, seed=4)))

    assert checks[0].outcome is Outcome.INCONCLUSIVE
    assert "chance alone moves the losses" in str(checks[0].detail)


def growing(*, seed: int, error: float = 0.0) -> Callable[[RecordedUpdate], RecordedUpdate]:
    """What rounding does in an unstable training: a fifth in the fourth loss, then chaos."""
    chance = random.Random(seed)

    def change(update: RecordedUpdate) -> RecordedUpdate:
        size = 0.002 * 5**update.n if update.n < 4 else 1.5
        factor = math.exp(chance.gauss(0.0, size) + (error if update.n else 0.0))
        return replace(update, losses=((float.fromhex(update.losses[0]) * factor).hex(),))

    return change


def test_a_training_that_forgets_where_it_began_is_compared_as_far_as_it_can_be_foreseen():
    others = [make_recording(change=growing(seed=seed)) for seed in (1, 2, 3)]

    near, beyond, *_ = check_lockstep(
        make_recording(), others, make_recording(change=growing(seed=4))
    )

    assert (near.name, near.outcome, near.n) == ("lockstep", Outcome.PASS, 3)
    assert "over 3 of" in str(near.detail)
    assert (beyond.name, beyond.outcome) == ("lockstep_beyond", Outcome.PASS)


def test_what_differs_while_it_can_be_foreseen_fails():
    others = [make_recording(change=growing(seed=seed)) for seed in (1, 2, 3)]

    checks = check_lockstep(
        make_recording(), others, make_recording(change=growing(seed=4, error=0.4))
    )

    assert [c.name for c in checks if c.outcome is Outcome.FAIL] == ["lockstep"]


def test_losses_of_another_size_fail_beyond_the_horizon():
    others = [make_recording(change=growing(seed=seed)) for seed in (1, 2, 3)]

    def far(update: RecordedUpdate) -> RecordedUpdate:
        return growing(seed=4, error=6.0 if update.n > 5 else 0.0)(update)

    checks = check_lockstep(make_recording(), others, make_recording(change=far))

    assert [c.name for c in checks if c.outcome is Outcome.FAIL] == ["lockstep_beyond"]


def test_losses_below_zero_are_compared_in_units_of_their_size():
    def below(update: RecordedUpdate) -> RecordedUpdate:
        return replace(update, losses=((-5.0 - 0.01 * update.n).hex(),))

    def shifted(update: RecordedUpdate) -> RecordedUpdate:
        return replace(update, losses=((-5.0 - 0.01 * update.n + 0.5).hex(),))

    others = [make_recording(change=lambda u: noisy(1e-3, seed=1)(below(u)))]
    checks = check_lockstep(make_recording(change=below), others, make_recording(change=shifted))

    assert checks[0].estimate == pytest.approx(0.5 / 5.195, rel=0.01)


def test_what_evaluation_gave_is_compared_too():
    baseline = make_recording(change=at(0, evaluated=((1.0).hex(),)))
    others = [make_recording(change=at(0, evaluated=((1.001).hex(),)))]
    candidate = make_recording(change=at(0, evaluated=((1.2).hex(),)))

    checks = check_lockstep(baseline, others, candidate)

    assert [c.name for c in checks if c.outcome is Outcome.FAIL] == ["lockstep_evaluation"]


@pytest.mark.parametrize(
    ("result", "outcome"),
    [("0x1p0", Outcome.PASS), ("0x1.3p0", Outcome.FAIL), ("nan", Outcome.FAIL)],
)
def test_an_evaluation_that_is_not_finite_as_written_is_not_compared(result, outcome):
    def evaluated(value: str) -> Recording:  # before training, then once the model has learned
        return make_recording(change=at(0, evaluated=("nan", value)))

    checks = check_lockstep(evaluated("0x1p0"), [evaluated("0x1p0")], evaluated(result))

    assert {c.name: c.outcome for c in checks}["lockstep_evaluation"] is outcome


# -- other classes, and early ends


def test_other_draws_pass_as_statistical_and_a_bias_does_not():
    redrawn = tuple(make_recording(change=noisy(0.05, seed=seed)) for seed in (1, 2, 3))
    reference = Reference(baseline=make_recording(), redrawn=redrawn, num_repeats=3)

    alike = judge(reference, make_recording(change=noisy(0.05, seed=4)), preserves="STATISTICAL")
    other = make_recording(change=noisy(0.05, seed=4, bias=0.5))

    assert (alike.outcome, alike.level) == (Outcome.PASS, "L2")
    assert judge(reference, other, preserves="STATISTICAL").outcome is Outcome.FAIL


def test_a_lever_that_changes_the_training_never_passes():
    reference = Reference(baseline=make_recording(), again=make_recording())

    assert judge(reference, make_recording(), preserves="NOTHING").outcome is Outcome.FAIL


def test_a_count_ends_it_before_other_runs_are_made():
    candidate = make_recording(change=at(3, samples=4))

    verdict = judge(Reference(baseline=make_recording()), candidate, preserves="NUMERIC")

    assert verdict.outcome is Outcome.FAIL


def test_while_repeats_are_missing_it_is_open_unless_it_is_far_out():
    reference = replace(numeric_reference(), perturbed=(rounded(seed=2),))
    far = make_recording(change=noisy(0.5, seed=9), first=make_tensors(error=0.005, seed=9))

    assert judge(reference, rounded(seed=9), preserves="NUMERIC").outcome is Outcome.INCONCLUSIVE
    assert "lockstep" in failed(judge(reference, far, preserves="NUMERIC"))


def started_elsewhere(recording: Recording, initial: int) -> Recording:
    (rank,) = recording.ranks
    return Recording(ranks=(replace(rank, head=replace(rank.head, initial=initial)),))


def test_a_script_that_seeds_itself_anew_is_left_open():
    reference = Reference(
        baseline=make_recording(), again=started_elsewhere(make_recording(), initial=8)
    )
    candidate = started_elsewhere(make_recording(), initial=9)

    verdict = judge(reference, candidate, preserves="EXACT")

    assert verdict.outcome is Outcome.INCONCLUSIVE
    words = "as written, run again: other initial weights on rank 0"
    assert words_of(verdict, "recording") == words


def test_a_count_that_the_baseline_does_not_repeat_is_left_open():
    reference = numeric_reference(again=make_recording(change=at(5, evals=3)))
    candidate = make_recording(change=at(9, evals=2), first=make_tensors())

    verdict = judge(reference, candidate, preserves="NUMERIC")

    assert "evaluations" not in failed(verdict)
    assert "run again" in str(words_of(verdict, "evaluations"))


# -- which runs


def test_the_runs_of_a_class_come_in_the_order_in_which_they_can_end_it():
    names = {
        preserves: [r.name for r in plan_runs(preserves, roundoff=BF16, num_updates=60)]
        for preserves in ("EXACT", "NUMERIC", "STATISTICAL", "NOTHING")
    }

    assert names == {
        "EXACT": ["baseline", "again", "candidate"],
        "NUMERIC": [
            *("baseline", "again", "candidate", "double"),
            *("perturbed-8-1", "perturbed-8-2", "perturbed-8-3"),
        ],
        "STATISTICAL": ["baseline", "again", "candidate", "redrawn-1", "redrawn-2", "redrawn-3"],
        "NOTHING": [],
    }


def test_a_run_is_asked_for_what_its_name_says():
    runs = {
        r.name: r
        for preserves in ("NUMERIC", "STATISTICAL")
        for r in plan_runs(preserves, roundoff=BF16, num_updates=60)
    }
    plain = {
        "num_updates": 60,
        "seed": SEED,
        "redraw": None,
        "reorder": None,
        "is_double": False,
        "perturb": None,
        "perturb_seed": 0,
        "first": True,
        "is_deterministic": True,
    }

    assert [runs[name].quality for name in ("baseline", "again", "candidate")] == [plain] * 3
    assert [name for name, run in runs.items() if run.is_candidate] == ["candidate"]
    assert runs["double"].quality == plain | {"num_updates": 4, "is_double": True}
    assert len({runs[f"perturbed-8-{i}"].quality["perturb_seed"] for i in (1, 2, 3)}) == 3
    assert len({runs[f"redrawn-{i}"].quality["redraw"] for i in (1, 2, 3)} - {SEED}) == 3


def test_a_lever_that_reorders_is_judged_beside_runs_in_other_orders():
    requests = plan_runs("STATISTICAL", roundoff=BF16, num_updates=60, reorders=True)
    runs = {request.name: request.quality for request in requests}
    recordings = {name: make_recording() for name in (*runs, "redrawn-1")}

    reference = gather(recordings, roundoff=BF16, reorders=True)

    assert list(runs)[3:] == ["reordered-1", "reordered-2", "reordered-3"]
    assert len({runs[f"reordered-{i}"]["reorder"] for i in (1, 2, 3)}) == 3
    assert runs["candidate"]["reorder"] is None
    assert reference is not None
    assert len(reference.redrawn) == 3


def test_the_baselines_runs_are_shared_by_candidates_of_one_precision():
    runs = {r.name: r for r in plan_runs("NUMERIC", roundoff=BF16, num_updates=60)}
    recordings = {name: make_recording() for name in runs} | {"perturbed-16-1": make_recording()}

    reference = gather(recordings, roundoff=BF16)

    assert runs["perturbed-8-2"].quality["perturb"] == BF16
    assert runs["double"].quality["num_updates"] == 4
    assert reference is not None
    assert len(reference.perturbed) == 3
    assert gather({}, roundoff=BF16) is None
