"""Levers of the loader: when they are offered, with what settings, and as what class."""

from dataclasses import replace

import pytest

from steptime.levers.base import Facts, LoaderFacts, Preserves
from steptime.levers.input import dataloader, dataset_cache, preloaded_samples, whole_batch_fetch

GIB = 2**30


def make_loader(**fields):
    base = {"dataset": "Images", "batch_size": 32, "num_samples": 1000, "sample_bytes": 4096}
    exact = {"is_deterministic": True, "is_collate_deterministic": True}
    return LoaderFacts(**(base | exact | fields))


def make_facts(*loaders, **fields):
    base = {"torch_version": "2.13.0", "num_cores": 4, "available_bytes": 8 * GIB}
    return Facts(loaders=loaders, **(base | fields))


# --- dataloader -------------------------------------------------------------------------


def counts(facts):
    return [row["num_workers"] for row in dataloader.LEVER.space(facts)]


def test_workers_are_tried_in_powers_of_two_up_to_the_cores_and_then_a_deeper_queue():
    rows = dataloader.LEVER.space(make_facts(make_loader(), num_cores=6))

    assert [row["num_workers"] for row in rows] == [1, 2, 4, 6, 6]
    assert [row["prefetch_factor"] for row in rows] == [2, 2, 2, 2, 8]
    assert all(row["persistent_workers"] for row in rows)


def test_a_deep_queue_of_large_batches_is_left_out():
    facts = make_facts(make_loader(sample_bytes=600_000))

    assert counts(facts) == [1, 2, 4]


def test_a_queue_of_unknown_size_is_not_made_deeper():
    assert counts(make_facts(make_loader(sample_bytes=None))) == [1, 2, 4]


@pytest.mark.parametrize(
    ("now", "expected"), [(1, [0, 1, 2, 4]), (2, [0, 1, 2, 4]), (4, [0, 2, 4])]
)
def test_where_there_are_workers_none_and_half_of_them_are_tried_too(now, expected):
    facts = make_facts(make_loader(num_workers=now, prefetch_factor=2, sample_bytes=None))

    assert counts(facts) == expected


def test_half_of_the_workers_that_are_kept_are_tried():
    kept = {"num_workers": 4, "persistent_workers": True, "prefetch_factor": 2}

    assert counts(make_facts(make_loader(**kept, sample_bytes=None))) == [2]


def test_more_workers_than_cores_may_become_fewer():
    facts = make_facts(make_loader(num_workers=8, sample_bytes=None))

    assert counts(facts) == [0, 1, 2, 4]


def test_ranks_share_the_cores():
    facts = make_facts(make_loader(sample_bytes=None), num_cores=8, world_size=4)

    assert counts(facts) == [1, 2]


def test_memory_is_pinned_only_where_there_is_a_device():
    on_cpu, on_device = (
        dataloader.LEVER.space(make_facts(make_loader(), device=device))
        for device in ("cpu", "cuda")
    )

    assert not any("pin_memory" in row for row in on_cpu)
    assert all(row["pin_memory"] for row in on_device)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (make_facts(), "No DataLoader"),
        (make_facts(make_loader(is_iterable=True)), "iterable"),
        (
            make_facts(
                make_loader(
                    num_workers=1, persistent_workers=True, prefetch_factor=2, sample_bytes=None
                ),
                num_cores=1,
            ),
            "enough|a worker for each core",
        ),
    ],
)
def test_workers_are_not_offered_and_the_reason_is_said(facts, words):
    reason = dataloader.LEVER.applies(facts)

    assert any(word in reason for word in words.split("|"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Preserves.EXACT),
        ({"is_deterministic": False}, None),
        ({"is_deterministic": None}, None),
        ({"is_collate_deterministic": False}, None),
        ({"has_own_sampler": True}, None),
    ],
)
def test_workers_keep_the_bits_only_where_nothing_is_drawn_in_them(fields, expected):
    facts = make_facts(make_loader(**fields))

    assert dataloader.LEVER.class_here(facts, {"num_workers": 2}) is expected
    assert dataloader.LEVER.preserves is Preserves.STATISTICAL


def test_the_edit_names_the_arguments_and_says_that_the_order_changes():
    line = dataloader.LEVER.edit({"num_workers": 2, "persistent_workers": True})

    assert "DataLoader(..., num_workers=2, persistent_workers=True)" in line
    assert "order" in line


# --- whole_batch_fetch ------------------------------------------------------------------


def test_whole_batches_are_offered_for_tensors_in_memory():
    assert whole_batch_fetch.LEVER.applies(make_facts(make_loader(is_tensor_dataset=True))) is None


def test_whole_batches_are_not_offered_for_other_data_sets_which_are_named():
    assert "Images" in whole_batch_fetch.LEVER.applies(make_facts(make_loader()))
    assert "No DataLoader" in whole_batch_fetch.LEVER.applies(make_facts())


# --- preloaded_samples ------------------------------------------------------------------


def same(**fields):
    known = {"is_deterministic": True, "joins_rows": True, "is_pure": True}
    return make_loader(**{**known, "sample_bytes": 1024, "sample_s": 1e-4, **fields})


def test_preloading_applies_to_constant_samples_that_are_quickly_read_with_workers_too():
    assert preloaded_samples.LEVER.applies(make_facts(same(num_workers=4))) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"is_deterministic": None}, "same samples twice"),
        ({"is_pure": False}, "stays as it is"),
        ({"joins_rows": False}, "one row of each"),
        ({"is_tensor_dataset": True}, "same samples twice"),
        ({"is_in_memory": True}, "same samples twice"),
        ({"sample_s": 0.1}, "100 s before the first step"),
        ({"num_samples": 10**8}, "a quarter of free memory"),
        ({"sample_bytes": None}, "is not known"),
    ],
)
def test_preloading_says_why_it_does_not_apply(fields, words):
    assert words in preloaded_samples.LEVER.applies(make_facts(same(**fields)))


# --- dataset_cache ----------------------------------------------------------------------


def kept(**fields):
    base = {"kept_bytes": 4096, "sample_s": 0.01, "saved_s": 0.008}
    return make_loader(**(base | fields))


def test_samples_that_fit_are_kept_in_a_quarter_of_the_memory():
    facts = make_facts(kept())
    expected = {"limit_bytes": 2 * GIB, "is_on_disk": False, "has_draws": False}

    assert dataset_cache.LEVER.applies(facts) is None
    assert dataset_cache.LEVER.space(facts) == (expected,)
    assert dataset_cache.LEVER.is_live(facts)


def test_each_rank_keeps_its_own_in_its_share():
    (settings,) = dataset_cache.LEVER.space(make_facts(kept(), world_size=2))

    assert settings["limit_bytes"] == GIB


def test_samples_that_draw_at_the_end_are_kept_up_to_there_and_by_workers():
    facts = make_facts(kept(is_deterministic=False, num_workers=2))
    (settings,) = dataset_cache.LEVER.space(facts)

    assert dataset_cache.LEVER.applies(facts) is None
    assert settings["has_draws"]
    assert not dataset_cache.LEVER.is_live(facts)


def test_samples_larger_than_the_limit_are_kept_in_a_file():
    facts = make_facts(kept(num_samples=10**6, kept_bytes=6000))
    (settings,) = dataset_cache.LEVER.space(facts)

    assert dataset_cache.LEVER.applies(facts) is None
    assert (settings["is_on_disk"], settings["limit_bytes"]) == (True, 12 * 10**9)


@pytest.mark.parametrize(
    "fields",
    [
        {"kept_bytes": None},
        {"saved_s": 0.001},
        {"is_iterable": True},
        {"is_tensor_dataset": True},
        {"dataset": "list"},
    ],
)
def test_samples_are_not_kept_where_they_differ_or_little_is_saved(fields):
    assert "No data set was seen" in dataset_cache.LEVER.applies(make_facts(kept(**fields)))


def test_a_data_set_that_was_not_observed_is_not_called_random():
    assert "was not observed" in dataset_cache.LEVER.applies(replace(make_facts(), loaders=None))


def test_workers_for_a_loader_that_was_not_observed_are_tried_and_not_called_exact():
    facts = replace(make_facts(), loaders=None)

    assert dataloader.LEVER.applies(facts) is None
    assert {row["num_workers"] for row in dataloader.LEVER.space(facts)} >= {1, 2}
    assert dataloader.LEVER.class_here(facts, {"num_workers": 1}) is None
    assert whole_batch_fetch.LEVER.applies(facts) is None


def test_an_unknown_memory_is_not_taken_for_large():
    facts = make_facts(kept(), available_bytes=None)

    assert "not known" in dataset_cache.LEVER.applies(facts)
