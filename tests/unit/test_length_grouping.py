"""`length_grouping`: which samples come when, which loaders are left alone, where it is offered."""

from __future__ import annotations

import dataclasses
import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.levers.base import Facts, LoaderFacts, PaddingFacts
from steptime.levers.lengths.grouping import RandomKeys, regroup
from steptime.levers.lengths.length_grouping import LEVER

torch = pytest.importorskip("torch")
data = torch.utils.data

from steptime.levers.lengths.grouping import is_shuffled, reorder_rows  # noqa: E402
from steptime.levers.lengths.lengths import known_lengths, length_of, read_lengths  # noqa: E402

NUM, BATCH = 200, 8


class Texts(data.Dataset):
    """Rows of different lengths; a row holds its own number, again and again."""

    def __init__(self, num=NUM):
        self.own_lengths = [1 + (37 * index) % 50 for index in range(num)]

    def __len__(self):
        return len(self.own_lengths)

    def __getitem__(self, index):
        return {"input_ids": [index] * self.own_lengths[index], "label": index % 2}


def numbers(samples):
    return [sample["input_ids"][0] for sample in samples]


def make_loader(dataset=None, **arguments):
    base = {"batch_size": BATCH, "shuffle": True, "collate_fn": numbers}
    return data.DataLoader(Texts() if dataset is None else dataset, **(base | arguments))


@pytest.fixture
def on():
    undo = LEVER.apply({"window": 16}, SimpleNamespace(torch=torch))
    yield
    undo()


def spread(batches):
    """How far the lengths in a batch differ, on average."""
    lengths = Texts().own_lengths
    ranges = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    return sum(ranges) / len(ranges)


# -- the order


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 5))
def test_batches_keep_their_sizes_and_each_row_comes_once(sizes, seed):
    rows = list(range(sum(sizes)))
    random.Random(seed).shuffle(rows)
    window, begin = [], 0
    for size in sizes:
        window.append(rows[begin : begin + size])
        begin += size
    lengths = [random.Random(row).randint(1, 20) for row in range(len(rows))]

    found = regroup(window, lengths, random.Random(seed))

    assert list(map(len, found)) == sizes
    assert sorted(row for batch in found for row in batch) == sorted(rows)
    spans = sorted((min(lengths[r] for r in b), max(lengths[r] for r in b)) for b in found)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_rows_of_similar_length_are_in_one_batch(on):
    torch.manual_seed(0)
    batches = list(make_loader())

    assert sorted(row for batch in batches for row in batch) == list(range(NUM))
    assert [len(batch) for batch in batches] == [BATCH] * (NUM // BATCH)
    assert spread(batches) < 8
    lengths = [Texts().own_lengths[batch[0]] for batch in batches]
    assert lengths != sorted(lengths), "the batches come in random order"


def test_the_same_samples_come_within_each_window(on):
    torch.manual_seed(0)
    grouped = list(make_loader())
    with torch.no_grad():  # as written
        torch.manual_seed(0)
        written = list(make_loader())

    first = [
        sorted(row for batch in batches[:16] for row in batch) for batches in (grouped, written)
    ]
    assert first[0] == first[1]
    assert grouped != written


def test_the_random_numbers_of_the_script_stay_as_they_were(on):
    def draw(context):
        torch.manual_seed(3)
        random.seed(3)
        with context:
            for _ in range(2):
                list(make_loader())
        return torch.rand(1).item(), random.random()

    assert draw(torch.enable_grad()) == draw(torch.no_grad())


def test_a_last_batch_that_is_short_stays_the_last(on):
    assert [len(batch) for batch in make_loader(Texts(203))][-2:] == [BATCH, 3]
    assert [len(batch) for batch in make_loader(Texts(203), drop_last=True)][-1] == BATCH


def test_epochs_differ_and_runs_repeat(on):
    def run():
        torch.manual_seed(5)
        loader = make_loader()
        return [list(loader) for _ in range(2)]

    first, second = run()
    assert first != second
    assert run() == [first, second]


def test_ranks_take_long_batches_at_the_same_time(on):
    def lengths(rank):
        sampler = data.DistributedSampler(Texts(), num_replicas=2, rank=rank, seed=1)
        loader = make_loader(shuffle=False, sampler=sampler)
        return [max(Texts().own_lengths[row] for row in batch) for batch in loader]

    zero, one = lengths(0), lengths(1)
    apart = [abs(a - b) for a, b in zip(zero, one, strict=True)]
    assert sum(apart) / len(apart) < 8


def test_workers_that_are_kept_get_each_epoch_grouped(on):
    loader = make_loader(num_workers=1, persistent_workers=True)
    epochs = [list(loader) for _ in range(2)]

    assert all(spread(batches) < 8 for batches in epochs)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"shuffle": False},
        {"shuffle": False, "sampler": range(NUM)},
        {"batch_size": 1, "shuffle": False, "batch_sampler": [[3, 1], [2, 0]]},
    ],
    ids=["in order", "own sampler", "own batches"],
)
def test_other_orders_are_left_as_they_are(on, arguments):
    with torch.no_grad():
        expected = list(make_loader(**arguments))

    assert list(make_loader(**arguments)) == expected


def test_rows_that_take_too_long_to_read_are_left_in_their_order():
    seconds = iter(range(1000))
    assert read_lengths(torch, Texts(), limit_s=5.0, clock=lambda: float(next(seconds))) is None


def test_taken_off_it_leaves_nothing_behind():
    iterator_class = data.dataloader._BaseDataLoaderIter
    before = iterator_class.__init__, data.dataloader._DatasetKind.__dict__["create_fetcher"]
    LEVER.apply({"window": 16, "trims": True}, SimpleNamespace(torch=torch))()

    after = iterator_class.__init__, data.dataloader._DatasetKind.__dict__["create_fetcher"]
    assert after == before


def test_batches_of_one_length_are_trimmed_too_where_that_is_set():
    lengths = torch.randint(1, 50, (64,), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(64) < lengths[:, None]).long()
    rows = data.TensorDataset(torch.arange(2, 66).expand(64, 64) * mask, mask)
    undo = LEVER.apply({"window": 16, "trims": True}, SimpleNamespace(torch=torch))
    try:
        widths = [ids.shape[1] for ids, _ in data.DataLoader(rows, batch_size=4, shuffle=True)]
    finally:
        undo()

    assert sum(widths) < 1.2 * 16 * float(lengths.float().mean())


def test_for_comparison_rows_are_put_into_other_batches_at_random():
    def run(seed):
        undo = reorder_rows(torch, 16, seed=seed)
        try:
            torch.manual_seed(0)
            return list(make_loader())
        finally:
            undo()

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert spread(run(1)) > 30
    assert sorted(row for batch in run(1) for row in batch) == list(range(NUM))
    assert len(RandomKeys(1, 5)) == 5


# -- lengths


def test_lengths_come_from_a_list_on_the_data_set_or_a_column_of_it():
    class Columns(Texts):
        column_names = ("input_ids", "length")

        def __getitem__(self, index):
            return list(range(NUM)) if index == "length" else super().__getitem__(index)

    listed = Texts()
    listed.lengths = listed.own_lengths

    assert known_lengths(torch, listed) == ("column", listed.own_lengths)
    assert known_lengths(torch, Columns()) == ("column", list(range(NUM)))
    assert known_lengths(torch, data.Subset(listed, [3, 1])) == (
        "column",
        [listed.own_lengths[3], listed.own_lengths[1]],
    )


def test_lengths_come_from_a_mask_among_tensors():
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    rows = data.TensorDataset(torch.tensor([[5, 6, 0, 0], [7, 8, 9, 0]]), mask)

    assert known_lengths(torch, rows) == ("mask", [2, 3])


@pytest.mark.parametrize("lengths", [None, [1, 2], ["a"] * NUM, 7, "text"])
def test_what_is_no_list_of_all_lengths_is_not_taken_for_one(lengths):
    dataset = Texts()
    dataset.lengths = lengths

    assert known_lengths(torch, dataset) is None


@pytest.mark.parametrize(
    ("sample", "length"),
    [
        ({"input_ids": [5, 6, 7]}, 3),
        ({"input_ids": torch.tensor([5, 6, 0, 0]), "attention_mask": [1, 1, 0, 0]}, 2),
        ({"label": 1, "tokens": torch.tensor([5, 6])}, 2),
        ((torch.tensor([5, 6, 7, 8]), 1), 4),
        ([1, [4, 5]], 2),
        ((torch.rand(3, 4), 1), None),
        ("text", None),
    ],
)
def test_a_sample_is_as_long_as_its_mask_or_its_tokens(sample, length):
    assert length_of(torch, sample) == length


# -- where it is offered

PADDED = PaddingFacts(
    num_batches=16, side="right", useful_fraction=0.3, longest_fraction=0.6, grouped_fraction=0.4
)


def make_facts(padding: PaddingFacts | None = PADDED, **fields: Any) -> Facts:
    base: dict[str, Any] = {"dataset": "Texts", "is_shuffled": True, "lengths_from": "rows"}
    loader = LoaderFacts(**(base | {"padding": padding} | fields))
    return Facts(torch_version="2.13.0", loaders=(loader,))


FIXED = dataclasses.replace(PADDED, is_fixed=True)


def test_it_is_offered_where_similar_lengths_need_less_padding():
    assert LEVER.applies(make_facts()) is None
    assert LEVER.space(make_facts()) == ({"window": 16},)
    assert LEVER.space(make_facts(FIXED)) == ({"window": 16, "trims": True},)
    assert LEVER.saves is not None
    assert LEVER.saves(make_facts()) == pytest.approx(1 - (0.4 / 0.6) ** 2)
    assert LEVER.saves(make_facts(FIXED)) == pytest.approx(1 - 0.4**2)
    assert LEVER.saves(make_facts(None)) is None
    assert LEVER.reorders


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (dataclasses.replace(make_facts(), loaders=()), "No DataLoader"),
        (dataclasses.replace(make_facts(), loaders=None), "not observed"),
        (make_facts(PaddingFacts(num_batches=4)), "no attention mask"),
        (make_facts(is_iterable=True), "iterable"),
        (make_facts(is_shuffled=None), "own sampler"),
        (make_facts(is_shuffled=False), "in the order of the data set"),
        (make_facts(lengths_from=None), "`lengths`"),
        (make_facts(dataclasses.replace(PADDED, grouped_fraction=0.595)), "Only 0.8%"),
        (dataclasses.replace(make_facts(FIXED), uses_compile=True), "compiles its model"),
    ],
)
def test_where_rows_cannot_be_grouped_the_reason_is_said(facts: Facts, words: str):
    assert words in (LEVER.applies(facts) or "")


def test_batches_of_different_lengths_may_be_compiled():
    assert LEVER.applies(dataclasses.replace(make_facts(), uses_compile=True)) is None


def test_a_sampler_is_known_by_what_it_is():
    weighted = data.WeightedRandomSampler([1.0] * NUM, NUM)

    assert is_shuffled(torch, make_loader()) is True
    assert is_shuffled(torch, make_loader(shuffle=False)) is False
    assert is_shuffled(torch, make_loader(shuffle=False, sampler=weighted)) is None
    assert is_shuffled(torch, make_loader(shuffle=False, sampler=list(range(NUM)))) is None
    fixed = data.DistributedSampler(Texts(), num_replicas=2, rank=0, shuffle=False)
    assert is_shuffled(torch, make_loader(shuffle=False, sampler=fixed)) is False


def test_the_edit_gives_each_row_once():
    names: dict[str, Any] = {"data": Texts(), "lengths": Texts().own_lengths, "random": random}
    exec("from itertools import chain, islice", names)
    names |= {"BatchSampler": data.BatchSampler, "RandomSampler": data.RandomSampler}
    names["DataLoader"] = lambda dataset, batch_sampler: list(batch_sampler)
    exec(LEVER.edit({"window": 4}), names)

    assert sorted(row for batch in names["loader"] for row in batch) == list(range(NUM))
    assert "trim_padding" in LEVER.edit({"window": 4, "trims": True})
