"""The checks of orders: each bug is named, and what is sound does not fail."""

from __future__ import annotations

import random

import pytest

from order_cases import loader_seen
from steptime.data.check.epoch_checks import (
    check_duplicates,
    check_lost,
    check_ranks,
    check_reshuffled,
)
from steptime.data.check.order_tests import class_dispersion, class_p_value, serial_z, spearman_z
from steptime.data.check.resume_checks import check_resume
from steptime.data.check.seen_orders import LoaderSeen, SavedAt
from steptime.data.check.shuffle_checks import check_shuffle, check_sorted
from steptime.data.check.worker_checks import check_workers
from steptime.verify.values import Outcome

PASS, FAIL, UNDECIDED = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


def shuffled(num, seed):
    return random.Random(seed).sample(range(num), num)


# -- epochs


def test_another_order_in_the_second_epoch_passes():
    assert check_reshuffled(loader_seen(shuffled(64, 1), shuffled(64, 2))).outcome is PASS


def test_the_same_shuffled_order_twice_fails_and_shows_how_both_begin():
    order = shuffled(64, 1)

    check = check_reshuffled(loader_seen(order, order))

    assert (check.name, check.outcome, check.place) == ("reshuffled", FAIL, "train.py:7")
    assert str(order[0]) in check.evidence[0]


def test_the_same_order_of_a_distributed_sampler_is_a_forgotten_set_epoch():
    order = shuffled(64, 1)

    check = check_reshuffled(loader_seen(order, order, is_distributed=True))

    assert (check.name, check.outcome) == ("set_epoch", FAIL)
    assert "set_epoch(epoch)" in check.advice


def test_a_loader_that_does_not_shuffle_may_be_meant_so():
    check = check_reshuffled(loader_seen(range(64), range(64)))

    assert check.outcome is UNDECIDED
    assert "does not shuffle" in check.finding


def test_an_order_that_comes_back_after_several_epochs_fails():
    orders = [shuffled(64, seed) for seed in (1, 2, 3, 2)]

    check = check_reshuffled(loader_seen(*orders))
    assert check.outcome is FAIL
    assert "the same in epochs 2 and 4" in check.finding
    assert check_reshuffled(loader_seen(*orders[:2])).outcome is PASS
    assert "each of 3 epochs" in check_reshuffled(loader_seen(*orders[:3])).finding


def test_a_set_epoch_that_begins_again_fails_and_is_not_called_stuck():
    orders = [shuffled(64, seed) for seed in (1, 2, 1)]
    seen = loader_seen(*orders, is_distributed=True)
    for epoch, one in enumerate(seen.passes):
        one.epoch = epoch

    check = check_reshuffled(seen)
    assert (check.name, check.outcome) == ("set_epoch", FAIL)
    assert "was at epoch" not in check.finding


def test_what_goes_wrong_in_a_later_epoch_is_told_with_its_number():
    good = shuffled(64, 1)
    twice = [*shuffled(63, 2), 3]

    found = check_duplicates(loader_seen(good, good, twice)).finding
    assert "in epoch 3" in found
    lost = check_lost([loader_seen(good, shuffled(64, 2), shuffled(60, 3), num_samples=64)])
    assert "4 of 64 samples are not in epoch 3" in lost.finding


def test_samples_lost_in_each_of_several_epochs_fail():
    orders = [shuffled(64, seed) for seed in (1, 2, 3)]

    check = check_lost([loader_seen(*orders, num_samples=70)])
    assert check.outcome is FAIL
    assert "none of 3 epochs" in check.evidence[0]


def test_a_sample_that_comes_twice_fails_unless_drawn_with_replacement():
    twice = [*range(20), 3]

    assert check_duplicates(loader_seen(twice)).evidence == ("sample 3 comes 2 times",)
    assert check_duplicates(loader_seen(twice, is_replacing=True)).outcome is PASS


def test_other_samples_lost_each_epoch_pass_as_drop_last_does_that():
    first, second = shuffled(70, 1)[:64], shuffled(70, 2)[:64]

    check = check_lost([loader_seen(first, second, num_samples=70)])

    assert check.outcome is PASS
    assert "6 of 70" in check.finding


def test_the_same_samples_lost_each_epoch_fail():
    check = check_lost([loader_seen(shuffled(64, 1), shuffled(64, 2), num_samples=70)])

    assert check.outcome is FAIL
    assert "64, 65, 66, 67, 68" in check.evidence[0]


def test_half_of_the_samples_left_out_by_a_sampler_of_its_own_may_be_a_split():
    loader = loader_seen(shuffled(64, 1), shuffled(64, 2), num_samples=128, is_shuffled=False)

    assert check_lost([loader]).outcome is UNDECIDED


def ranks(*orders):
    return [loader_seen(order, rank=n, world_size=len(orders)) for n, order in enumerate(orders)]


def test_ranks_that_share_out_the_samples_pass_with_padding():
    assert check_ranks(ranks(range(0, 65, 2), [*range(1, 65, 2), 0])).outcome is PASS


def test_ranks_with_the_same_samples_fail():
    order = shuffled(64, 1)

    check = check_ranks(ranks(order, order))

    assert check.outcome is FAIL
    assert "64 samples are on more than one of 2 ranks" in check.finding


def test_ranks_that_overlap_from_the_second_epoch_on_fail():
    even, odd = range(0, 64, 2), range(1, 64, 2)
    seen = [
        loader_seen(even, odd, rank=0, world_size=2),
        loader_seen(odd, odd, rank=1, world_size=2),
    ]

    check = check_ranks(seen)
    assert check.outcome is FAIL
    assert "in epoch 2" in check.finding


def test_a_rank_that_was_not_seen_leaves_it_open():
    seen = ranks(range(0, 64, 2), range(1, 64, 2))[:1]

    assert check_ranks(seen).outcome is UNDECIDED


# -- shuffle


def test_statistics_of_a_random_order_are_within_their_spread():
    values = [(spearman_z(o), serial_z(o)) for o in (shuffled(200, seed) for seed in range(40))]

    for z_values in zip(*values, strict=True):
        assert abs(sum(z_values)) / len(z_values) < 0.5
        assert 0.7 < sum(z * z for z in z_values) / len(z_values) < 1.5


def test_classes_of_a_random_order_have_a_dispersion_of_one_and_sorted_ones_a_batch():
    labels, sizes = [n % 4 for n in shuffled(512, 3)], [32] * 16

    assert class_dispersion(labels, sizes) == pytest.approx(1, abs=0.4)
    assert class_dispersion(sorted(labels), sizes) == pytest.approx(32, rel=0.1)
    assert class_p_value(sorted(labels), sizes) == 0.001


def test_a_random_order_passes_and_a_window_that_moves_along_fails():
    window = [index for begin in range(0, 512, 16) for index in shuffled(16, begin)]
    moving = [begin * 16 + index for begin, index in enumerate(window[:16])]
    windowed = [16 * (place // 16) + index for place, index in enumerate(window)]

    assert moving
    assert check_shuffle(loader_seen(shuffled(512, 5))).outcome is PASS
    check = check_shuffle(loader_seen(windowed))
    assert check.outcome is FAIL
    assert check.p_value < 0.001


def test_classes_in_order_are_sorted_input_and_mixed_ones_are_not():
    in_order = loader_seen(range(128), labels=[n // 32 for n in range(128)], is_shuffled=False)
    mixed = loader_seen(range(128), labels=[n % 4 for n in range(128)], is_shuffled=False)

    check = check_sorted(in_order)

    assert check.outcome is FAIL
    assert check.evidence[0] == "batch 0 of 8 samples: class 0: 8"
    assert check_sorted(mixed).outcome is PASS


# -- resume


FIRST, SECOND, OTHER = shuffled(64, 1), shuffled(64, 2), shuffled(64, 3)


def resumed(order, *, saved):
    before = loader_seen(FIRST, SECOND, saves=[saved])
    return check_resume(before, loader_seen(order))


BETWEEN, WITHIN = SavedAt(0, 8, True), SavedAt(0, 3, False)


@pytest.mark.parametrize(
    ("order", "saved", "outcome", "words"),
    [
        (SECOND, BETWEEN, PASS, "second epoch's order"),
        (FIRST, BETWEEN, FAIL, "repeats the first epoch's order"),
        (OTHER, BETWEEN, UNDECIDED, "a new order"),
        (OTHER[8:], BETWEEN, FAIL, "leaves out 8 samples"),
        (FIRST[24:], WITHIN, PASS, "after batch 3"),
        (FIRST, WITHIN, FAIL, "3 batches come twice"),
        (OTHER[24:], WITHIN, FAIL, "leaves out"),
        (list(reversed(FIRST[24:])), WITHIN, UNDECIDED, "another order"),
    ],
)
def test_a_resumed_training_goes_on_or_it_is_said_how_it_does_not(order, saved, outcome, words):
    check = resumed(order, saved=saved)

    assert check.outcome is outcome
    assert words in check.finding


def test_batches_that_the_script_passes_over_itself_are_no_repetition():
    after = loader_seen(FIRST)
    after.passes[0].num_passed_over = 3

    assert check_resume(loader_seen(FIRST, SECOND, saves=[WITHIN]), after).outcome is PASS


def test_without_a_checkpoint_the_resume_is_open():
    check = check_resume(loader_seen(FIRST, SECOND), loader_seen(SECOND))

    assert check.outcome is UNDECIDED
    assert "no checkpoint" in check.finding


# -- workers


def handed(*batches: str, order: list[int] | None = None, is_at_end: bool = True) -> LoaderSeen:
    """A loader that handed out batches whose samples are letters."""
    loader = loader_seen(order or [])
    loader.passes[0].order = order
    loader.passes[0].digests = [list(batch) for batch in batches]
    loader.passes[0].is_at_end = is_at_end
    return loader


def test_the_same_order_with_any_number_of_workers_passes():
    children = {n: handed("ab", "cd", order=[0, 1, 2, 3]) for n in (0, 1, 2)}

    check = check_workers(children, again=None)

    assert check.outcome is PASS
    assert "0, 1, 2 workers" in check.finding


def test_random_transforms_change_values_and_not_the_samples():
    children = {n: handed(*text, order=[0, 1, 2, 3]) for n, text in enumerate((("ab",), ("xy",)))}

    check = check_workers(children, again=None)

    assert check.outcome is PASS
    assert check.finding.endswith("0, 1 workers; the values of 2 of 2 of them are others")


def test_values_that_one_worker_gives_and_several_do_not_come_from_a_copy_in_each():
    order = [0, 1, 2, 3]
    children = {n: handed("ab", "cd", order=order) for n in (0, 1)}

    check = check_workers({**children, 2: handed("ab", "xy", order=order)}, again=None)

    assert check.outcome is FAIL
    assert check.finding.startswith("with 2 workers 2 of 4 samples have other values; with 1")


def test_another_order_with_workers_fails_unless_two_runs_differ_anyway():
    children = {0: handed("ab", order=[0, 1]), 2: handed("ab", order=[1, 0])}

    assert check_workers(children, again=children[0]).outcome is FAIL
    assert check_workers(children, again=children[2]).outcome is UNDECIDED


def test_an_iterable_data_set_copied_by_workers_fails_before_its_end():
    children = {
        0: handed("ab", "cd", is_at_end=False),
        2: handed("ab", "ab", "cd", "cd", is_at_end=False),
    }

    check = check_workers(children, again=None)

    assert check.outcome is FAIL
    assert "comes 2 times" in check.finding


def test_an_iterable_data_set_that_workers_share_out_passes_in_another_order():
    children = {0: handed("ab", "cd"), 2: handed("ac", "bd")}

    check = check_workers(children, again=None)

    assert check.outcome is PASS
    assert "the order changes" in check.finding


def test_samples_that_workers_lose_fail():
    children = {0: handed("ab", "cd", "e"), 2: handed("ac", "bd")}

    check = check_workers(children, again=None)

    assert check.outcome is FAIL
    assert "1 of 5 samples are missing" in check.finding


def test_an_iterable_data_set_that_was_not_seen_to_its_end_is_open():
    children = {0: handed("ab", is_at_end=False), 2: handed("ab", is_at_end=False)}

    assert check_workers(children, again=None).outcome is UNDECIDED
