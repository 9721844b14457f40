"""What the guest tells of a loader's padding, and which tokens it counts."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.core.codec import from_json
from steptime.guest.trial.lever_facts import FactsBook
from steptime.guest.trial.looks.loader_probe import probe_lengths
from steptime.guest.trial.looks.row_padding import MAX_BATCHES, MAX_TRIES, PaddingBook, TokenCounter
from steptime.guest.trial.samples import SampleCounter
from steptime.levers.base import PaddingFacts

torch = pytest.importorskip("torch")
data = torch.utils.data


def make_batch(lengths, width, *, is_left=False):
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    mask = mask.flip(1) if is_left else mask
    return {"input_ids": 7 * mask, "attention_mask": mask}


def describe(*batches: Any) -> PaddingFacts:
    book = PaddingBook()
    for batch in batches:
        book.see(torch, batch)
    return from_json(PaddingFacts, book.describe())


# -- the padding of a loader


def test_padding_is_told_as_fractions_of_all_positions():
    found = describe(make_batch([2, 6], 10), make_batch([6, 4], 10))

    assert found == PaddingFacts(
        num_batches=2,
        side="right",
        useful_fraction=18 / 40,
        longest_fraction=24 / 40,
        grouped_fraction=(2 * 4 + 2 * 6) / 40,
        is_fixed=True,
    )


def test_batches_of_different_widths_have_no_fixed_length():
    found = describe(make_batch([2, 6], 6), make_batch([1, 4], 4))

    assert not found.is_fixed
    assert found.longest_fraction == 1.0
    assert found.grouped_fraction == (2 * 2 + 2 * 6) / 20


def test_full_rows_of_one_length_are_no_padding():
    found = describe(make_batch([4, 4], 4), make_batch([4, 4], 4))

    assert (found.useful_fraction, found.longest_fraction, found.is_fixed) == (1.0, 1.0, False)


def test_padding_in_front_of_rows_is_told():
    assert describe(make_batch([2, 6], 8, is_left=True)).side == "left"


def test_batches_without_a_mask_say_nothing_of_padding():
    found = describe(torch.ones(4, 3), {"x": torch.ones(2, 2)})

    assert found == PaddingFacts(num_batches=2)
    assert PaddingBook().describe() is None


def test_only_the_first_batches_are_looked_at():
    found = describe(*[make_batch([3], 4)] * 20, make_batch([1], 400))

    assert found.num_batches == MAX_BATCHES
    assert found.useful_fraction == 3 / 4


# -- the tokens that count


def tokens(*batches: Any) -> list[int | None]:
    counter = TokenCounter(torch)
    return [counter.count(batch) for batch in batches]


def test_tokens_are_those_that_are_no_padding():
    assert tokens(make_batch([2, 6], 10), make_batch([6, 6], 6)) == [8, 12]


def test_a_mask_without_a_name_is_known_again_where_nothing_is_padding():
    first, full = (tuple(make_batch(lengths, 6).values()) for lengths in ([2, 5], [6, 6]))

    assert tokens(full, first, full) == [None, 7, 12]


def test_without_a_mask_the_search_ends():
    batches = [torch.ones(2, 3)] * MAX_TRIES

    assert tokens(*batches, make_batch([1], 3)) == [None] * (MAX_TRIES + 1)


@pytest.mark.parametrize("width", [6, 10, 64])
def test_the_samples_of_an_update_do_not_depend_on_the_padding(width):
    counter = SampleCounter(torch, TokenCounter(torch).count)
    for lengths in ([2, 6], [5, 6]):
        counter.take_batch(make_batch(lengths, width))
        counter.begin_work()

    assert (counter.take(), counter.unit) == (19, "tokens")


def test_images_are_counted_as_before():
    counter = SampleCounter(torch, TokenCounter(torch).count)
    counter.take_batch((torch.ones(5, 3, 4, 4), torch.ones(5)))
    counter.begin_work()

    assert (counter.take(), counter.unit) == (5, "samples")


# -- random numbers in calls of models


def watched(model: Any, *, is_probing: bool = True) -> bool | None:
    failures: list[str] = []
    stack: Any = SimpleNamespace(owners=(), is_acting=False, was_used=False)
    book = FactsBook(torch, stack, failures.append, is_probing=is_probing)
    for _ in range(6):
        compare = book.watch_draws()
        model(torch.ones(2, 2))
        if compare is not None:
            compare()
    assert failures == []
    return book.draws_in_calls


def test_dropout_is_seen_to_draw_and_other_layers_are_not():
    assert watched(torch.nn.Linear(2, 2)) is False
    assert watched(torch.nn.Dropout(0.1)) is True
    assert watched(lambda x: torch.nn.functional.dropout(x, 0.5)) is True
    assert watched(torch.nn.Dropout(0.1), is_probing=False) is None


# -- where lengths come from


class Texts(data.Dataset):
    def __init__(self, num=40):
        self.num = num

    def __len__(self):
        return self.num

    def __getitem__(self, index):
        return {"input_ids": [1] * (index + 1)}


class Noisy(Texts):
    def __getitem__(self, index):
        torch.rand(1)
        return super().__getitem__(index)


class Images(Texts):
    def __getitem__(self, index):
        return torch.ones(3, 4, 4)


def lengths_from(dataset: Any, pause_s: float = 0.0, **arguments: Any) -> str | None:
    loader = data.DataLoader(dataset, batch_size=4, **arguments)
    seconds = (0.0001 * number + pause_s * (number > 2) for number in count())
    return probe_lengths(torch, loader, clock=lambda: next(seconds)).get("lengths_from")


def test_rows_that_are_read_quickly_tell_their_lengths():
    state = torch.get_rng_state()

    assert lengths_from(Texts()) == "rows"
    assert lengths_from(Noisy()) is None
    assert lengths_from(Images()) is None
    assert lengths_from(Texts(), num_workers=2) is None
    assert torch.equal(torch.get_rng_state(), state)


def test_a_pause_while_one_row_is_read_says_nothing_of_the_others():
    assert lengths_from(Texts(), pause_s=60.0) == "rows"


def test_many_rows_are_not_read():
    assert lengths_from(Texts(100_000)) is None


def test_a_list_of_lengths_is_taken_with_workers_too():
    dataset = Texts()
    dataset.lengths = list(range(40))

    assert lengths_from(dataset, num_workers=2) == "column"
