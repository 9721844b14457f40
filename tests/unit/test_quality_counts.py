"""What must be equal between the baseline's run and the candidate's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steptime.verify.counts import check_counts
from steptime.verify.recordings import RecordedUpdate, Recording
from steptime.verify.values import Outcome, QualityCheck
from unit.recordings import at, make_recording, make_update


def failed(
    candidate: Recording, baseline: Recording | None = None, *, preserves: str = "NUMERIC"
) -> dict[str, str | None]:
    checks = check_counts(baseline or make_recording(), candidate, preserves=preserves)
    return {check.name: check.detail for check in checks if check.outcome is Outcome.FAIL}


def undecided(checks: tuple[QualityCheck, ...]) -> dict[str, str | None]:
    return {check.name: check.detail for check in checks if check.outcome is Outcome.INCONCLUSIVE}


def test_a_run_that_is_the_same_passes_all_counts():
    checks = check_counts(make_recording(), make_recording(), preserves="EXACT")

    assert {check.outcome for check in checks} == {Outcome.PASS}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("samples", {"samples": 4}, "4 samples instead of 8 (update 3)"),
        ("backwards", {"backwards": 2}, "2 backward calls instead of 1 (update 3)"),
        ("learning_rates", {"lrs": (0.05,)}, "[0.05] instead of [0.1] (update 3)"),
        ("evaluations", {"evals": 9}, "9 calls instead of 0 (update 3)"),
        ("gradients", {"grads": 1, "mask": 2}, "1 tensors with a gradient instead of 2 (update 3)"),
        ("statistics", {"stats": 0}, "buffers stood still that moved (update 3)"),
        ("moves", {"moved": 0}, "the update changed no weight (update 3)"),
        ("optimizers", {"hyper": 2}, "other settings of the optimizer (update 3)"),
        ("inputs", {"contents": (1,)}, "other inputs of the model (update 3)"),
        ("batches", {"inputs": ()}, "0 calls of models instead of 1 (update 3)"),
        ("batches", {"fed": ()}, "0 batches from loaders instead of 1 (update 3)"),
    ],
)
def test_a_count_that_differs_fails_with_the_update(name: str, changes: dict[str, Any], words: str):
    assert failed(make_recording(change=at(3, **changes))) == {name: words}


def test_an_update_that_the_backward_made_is_told_by_the_bits_of_the_weights():
    early = {"grads": 0, "mask": 0, "moved": 0}

    assert failed(make_recording(change=at(3, **early))) == {}
    assert set(failed(make_recording(change=at(3, **early, weights=77)))) == {"gradients", "moves"}


def test_weights_in_another_dtype_are_named():
    tensors = (("0.weight", "(8, 8)", "torch.bfloat16", "True"),)
    candidate = make_recording(change=at(0, kinds=2), tensors=tensors)

    words = "0.weight: torch.bfloat16 instead of torch.float32 (update 0)"
    assert failed(candidate) == {"tensors": words}


def test_a_layer_in_another_mode_is_named():
    modes = (("0.", "Linear", "train", "None"), ("1.", "Dropout", "eval", "0.1"))
    candidate = make_recording(change=at(0, modes=2), modes=modes)

    assert failed(candidate) == {"modes": "1.: eval instead of train (update 0)"}


def test_another_optimizer_is_named():
    candidate = make_recording(change=at(0, hyper=2), optimizer="AdamW")

    assert failed(candidate) == {"optimizers": "AdamW instead of SGD (update 0)"}


def test_a_candidate_that_ends_early_fails():
    assert failed(make_recording(num_updates=30)) == {"updates": "30 updates instead of 40"}


def test_a_candidate_that_was_killed_early_is_not_judged_by_its_length():
    checks = check_counts(
        make_recording(), make_recording(num_updates=30, is_over=False), preserves="NUMERIC"
    )

    assert undecided(checks) == {"updates": "30 updates instead of 40"}


def test_other_initial_weights_fail():
    candidate = make_recording()
    rank = candidate.ranks[0]
    other = Recording(ranks=(replace(rank, head=replace(rank.head, initial=8)),))

    assert failed(other) == {"recording": "other initial weights on rank 0"}


def test_a_failure_of_the_recorder_leaves_it_open():
    checks = check_counts(
        make_recording(), make_recording(failures=("quality: oops",)), preserves="NUMERIC"
    )

    assert undecided(checks) == {"recording": "candidate: quality: oops"}


def test_a_script_without_an_optimizer_is_not_judged():
    empty = Recording(ranks=())

    checks = check_counts(empty, empty, preserves="NUMERIC")

    assert undecided(checks) == {"recording": "baseline: no optimizer update was seen"}


# -- ranks


def disagreeing(recording: Recording) -> Recording:
    first, second = recording.ranks
    updates = tuple(replace(update, weights=update.weights + 1) for update in second.updates)
    return Recording(ranks=(first, replace(second, updates=updates)))


def test_ranks_that_no_longer_agree_fail():
    baseline = make_recording(num_ranks=2)

    found = failed(disagreeing(baseline), baseline)

    assert found == {"ranks_agree": "other weights on ranks after update 0"}


def test_ranks_that_never_agreed_need_not():
    baseline = disagreeing(make_recording(num_ranks=2))

    assert failed(baseline, baseline) == {}


def test_a_rank_less_fails():
    found = failed(make_recording(), make_recording(num_ranks=2))

    assert found == {"updates": "1 ranks instead of 2"}


# -- compile


def test_a_model_that_was_not_compiled_has_had_no_effect():
    candidate = make_recording(change=at(0, compiles=1, graphs=0))

    assert failed(candidate) == {"graphs": "nothing was compiled: the lever has no effect"}


def test_blocks_that_are_compiled_one_by_one_share_the_graphs_of_all_at_once():
    at_once = make_recording(change=at(0, compiles=1, graphs=2))

    assert failed(make_recording(change=at(0, compiles=3, graphs=2)), at_once) == {}
    eager = make_recording(change=at(0, compiles=3, graphs=0))
    for baseline in (at_once, make_recording(change=at(0, compiles=1, graphs=0))):
        assert "graphs" in failed(eager, baseline)


def test_a_compiled_model_that_fell_back_fails():
    candidate = make_recording(change=at(0, compiles=1, graphs=8, fallbacks=1))

    assert failed(candidate) == {"graphs": "torch gave up compiling at its recompile limit"}


def test_a_compiled_model_with_graphs_passes():
    assert failed(make_recording(change=at(0, compiles=1, graphs=2))) == {}


# -- samples whose order is free


def epoch(samples: int, indices: int, size: int = 320) -> tuple[tuple[int, ...], ...]:
    return ((0, 40, samples, indices, size),)


def shuffled(update: RecordedUpdate, **changes: Any) -> RecordedUpdate:
    fed = ((0, 1, 2, 3, 4, 8, 6),)
    return replace(
        update, inputs=(1,), contents=(1,), fed=fed, **(changes if update.n == 39 else {})
    )


def test_an_epoch_of_the_same_samples_in_another_order_passes():
    baseline = make_recording(change=lambda u: replace(u, epochs=epoch(5, 6) * (u.n == 39)))
    candidate = make_recording(change=lambda u: shuffled(u, epochs=epoch(9, 6)))

    assert failed(candidate, baseline, preserves="STATISTICAL") == {}
    assert "batches" in failed(candidate, baseline, preserves="NUMERIC")


def test_an_epoch_of_other_samples_fails():
    baseline = make_recording(change=lambda u: replace(u, epochs=epoch(5, 6) * (u.n == 39)))
    candidate = make_recording(change=lambda u: shuffled(u, epochs=epoch(5, 7)))

    found = failed(candidate, baseline, preserves="STATISTICAL")

    assert found == {"batches": "other samples in epoch 0"}


def test_without_numbers_the_samples_themselves_are_compared():
    baseline = make_recording(change=lambda u: replace(u, epochs=epoch(5, -1) * (u.n == 39)))
    candidate = make_recording(change=lambda u: shuffled(u, epochs=epoch(6, -1)))

    found = failed(candidate, baseline, preserves="STATISTICAL")

    assert found == {"batches": "other samples in epoch 0"}


def test_the_same_numbers_in_turn_will_do_before_an_epoch_ends():
    def augmented(update: RecordedUpdate) -> RecordedUpdate:
        row = update.fed[0]
        return replace(update, inputs=(1,), fed=((*row[:1], 9, 9, *row[3:]),))

    assert failed(make_recording(change=augmented), preserves="STATISTICAL") == {}


def test_another_order_within_an_epoch_is_left_open():
    checks = check_counts(
        make_recording(), make_recording(change=shuffled), preserves="STATISTICAL"
    )

    words = "no epoch was complete, and the samples came in another order"
    assert undecided(checks) == {"batches": words}


def test_without_a_loader_models_are_called_with_the_same_samples():
    def alone(update: RecordedUpdate, *inputs: int) -> RecordedUpdate:
        return replace(update, fed=(), epochs=(), inputs=inputs, contents=inputs)

    baseline = make_recording(change=lambda u: alone(u, 5, 7))
    candidate = make_recording(change=lambda u: alone(u, 5, 7 + (u.n == 20)))
    nothing = make_recording(change=lambda u: alone(u, 0))

    assert failed(baseline, baseline, preserves="STATISTICAL") == {}
    assert "batches" in undecided(check_counts(baseline, candidate, preserves="STATISTICAL"))
    assert "batches" in undecided(check_counts(nothing, nothing, preserves="STATISTICAL"))


def calls(update: RecordedUpdate, *inputs: int) -> RecordedUpdate:
    return replace(update, inputs=inputs, contents=inputs)


def test_inputs_that_a_model_made_may_differ_where_a_perturbed_run_differs_too():
    def gan(fake: int) -> Recording:
        return make_recording(change=lambda u: calls(u, 1000 + u.n, fake))

    shifted = make_recording(change=lambda u: calls(u, 1, 9))

    def outcomes(candidate: Recording, perturbed: list[Recording] | None) -> dict[str, Outcome]:
        checks = check_counts(gan(7), candidate, preserves="NUMERIC", perturbed=perturbed)
        return {check.name: check.outcome for check in checks}

    assert outcomes(gan(8), [gan(9)])["inputs"] is Outcome.PASS
    assert outcomes(gan(8), None)["inputs"] is Outcome.INCONCLUSIVE
    assert outcomes(gan(8), [gan(7)])["inputs"] is Outcome.FAIL
    assert outcomes(shifted, [gan(9)])["inputs"] is Outcome.FAIL


# -- padding


def padded(width: int) -> Recording:
    """A run whose batches and calls differ in their padding from those of another width."""

    def change(update: RecordedUpdate) -> RecordedUpdate:
        row = update.fed[0]
        return replace(update, inputs=(width,), fed=((row[0], width, *row[2:]),))

    return make_recording(change=change)


def test_padding_may_be_missing_where_the_bits_need_not_be_the_same():
    assert failed(padded(20), padded(64), preserves="NUMERIC") == {}
    assert set(failed(padded(20), padded(64), preserves="EXACT")) == {"batches", "inputs"}


def test_a_batch_that_lacks_more_than_padding_fails():
    candidate = make_recording(
        change=lambda u: replace(u, fed=((*u.fed[0][:-1], 1),)) if u.n == 5 else u
    )

    assert failed(candidate) == {"batches": "another batch from a loader (update 5)"}


# -- windows


def windows(size: int, *, num_updates: int = 40, skipped_from: int = 1000) -> Recording:
    """A run in which the batches of a window come in the opposite order."""

    def change(update: RecordedUpdate) -> RecordedUpdate:
        begin = update.n // size * size
        n = 2 * begin + size - 1 - update.n
        number = 5000 + n if n < skipped_from else 1
        return replace(update, fed=((0, n, n, n, number, 8, n),))

    return make_recording(change=change, num_updates=num_updates)


def test_samples_that_are_mixed_within_windows_are_the_same_before_an_epoch_ends():
    assert failed(windows(8), preserves="STATISTICAL") == {}
    checks = check_counts(make_recording(), windows(16), preserves="STATISTICAL")
    assert undecided(checks) == {}  # two windows of 16, and a half


def test_samples_that_are_others_after_some_windows_are_left_open():
    checks = check_counts(make_recording(), windows(8, skipped_from=24), preserves="STATISTICAL")

    assert "batches" in undecided(checks)


def test_a_closure_may_make_other_calls():
    baseline = make_recording(change=at(0, closure=1))
    candidate = make_recording(
        change=lambda u: replace(
            u, closure=1, backwards=5, samples=40, inputs=u.inputs * 5, losses=u.losses * 5
        )
    )

    assert failed(candidate, baseline) == {}
    assert candidate.ranks[0].updates[3].loss == make_update(3).loss
