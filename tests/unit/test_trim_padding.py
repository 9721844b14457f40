"""`trim_padding`: what of a batch it cuts, what it leaves alone, and where it is offered."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.levers.base import Facts, LoaderFacts, PaddingFacts, Preserves
from steptime.levers.lengths.trim_padding import LEVER

torch = pytest.importorskip("torch")
data = torch.utils.data

from steptime.levers.lengths.mask_padding import fields_of, find_useful, row_lengths, trim  # noqa: E402

LENGTHS = (3, 5, 1)
WIDTH = 8
PADDING_ID, IGNORED = 9, -100


def mask_of(lengths=LENGTHS, width=WIDTH):
    return (torch.arange(width) < torch.tensor(lengths)[:, None]).long()


def ids_of(lengths=LENGTHS, width=WIDTH):
    ids = torch.arange(10, 10 + len(lengths) * width).reshape(len(lengths), width)
    return torch.where(mask_of(lengths, width).bool(), ids, PADDING_ID)


def make_batch(**fields):
    """A batch as tokenizers make it; `fields` are added to it."""
    labels = torch.where(mask_of().bool(), ids_of(), IGNORED)
    base = {"input_ids": ids_of(), "attention_mask": mask_of(), "labels": labels}
    return base | fields


def trimmed(batch, **settings):
    return trim(torch, batch, **settings)


# -- what is cut


def test_all_fields_of_a_batch_are_cut_to_its_longest_row():
    batch = make_batch(token_type_ids=torch.zeros(3, WIDTH, dtype=torch.long))
    found = trimmed(batch)

    assert {name: tuple(t.shape) for name, t in found.items()} == dict.fromkeys(batch, (3, 5))
    for name, tensor in found.items():
        assert torch.equal(tensor, batch[name][:, :5])
        assert tensor.is_contiguous()
    assert batch["input_ids"].shape == (3, WIDTH), "the batch itself stays as it is"


def test_fields_of_another_shape_stay_as_they_are():
    label, pixels = torch.tensor([0, 1, 0]), torch.ones(3, 4)
    found = trimmed(make_batch(label=label, pixels=pixels, names=["a", "b", "c"]))

    assert found["input_ids"].shape == (3, 5)
    assert found["label"] is label
    assert found["pixels"] is pixels
    assert found["names"] == ["a", "b", "c"]


def test_a_field_that_is_longer_than_the_mask_keeps_all_that_it_holds():
    targets = torch.full((3, WIDTH), IGNORED)
    targets[1, 6] = 4

    assert trimmed(make_batch(targets=targets))["input_ids"].shape == (3, 7)


def test_positions_that_count_on_behind_the_rows_are_cut_with_them():
    positions = torch.arange(WIDTH).expand(3, WIDTH)

    assert trimmed(make_batch(position_ids=positions))["position_ids"].shape == (3, 5)


def test_features_of_each_position_are_cut_too():
    features = torch.randn(3, WIDTH, 4) * mask_of()[:, :, None]

    assert trimmed(make_batch(features=features))["features"].shape == (3, 5, 4)


def test_the_length_may_stay_a_multiple():
    assert trimmed(make_batch(), multiple_of=2)["input_ids"].shape == (3, 6)
    batch = make_batch()
    assert trimmed(batch, multiple_of=8) is batch


@pytest.mark.parametrize("kind", [UserDict, lambda batch: SimpleNamespace(**batch)])
def test_a_batch_in_an_object_is_replaced_by_a_copy(kind):
    batch = kind(make_batch())
    found = trimmed(batch)

    assert type(found) is type(batch)
    assert dict(fields_of(torch, found))["labels"].shape == (3, 5)
    assert dict(fields_of(torch, batch))["labels"].shape == (3, WIDTH)


# -- masks that have no name


def test_in_a_tuple_the_mask_is_known_by_its_rows_and_the_padding_id_beside_it():
    ids, mask, labels = trimmed((ids_of(), mask_of(), torch.tensor([0, 1, 0])))

    assert ids.shape == mask.shape == (3, 5)
    assert labels.shape == (3,)


def test_a_mask_that_marks_padding_is_turned_round():
    padding = ~mask_of().bool()
    found = find_useful(torch, list(fields_of(torch, (ids_of(), padding))))

    assert found is not None
    assert row_lengths(torch, found[1]) == list(LENGTHS)
    assert trimmed((ids_of(), padding))[1].shape == (3, 5)


@pytest.mark.parametrize(
    "batch",
    [
        (ids_of(), torch.tensor([0, 1, 0])),
        (torch.arange(24).reshape(3, 8), mask_of()),
        (ids_of(), torch.tensor([[1, 0, 1, 1, 0, 0, 0, 0]] * 3)),
        (torch.randn(3, WIDTH), mask_of().float()),
        torch.arange(24).reshape(3, 8),
        "text",
    ],
    ids=["no mask", "no padding id", "holes", "no tokens", "one tensor", "text"],
)
def test_where_nothing_says_what_is_padding_nothing_is_cut(batch):
    assert trimmed(batch) is batch


# -- what is left alone


def left(table):
    return table.flip(1)


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": left(ids_of()), "attention_mask": left(mask_of())},
        {"input_ids": ids_of((3, WIDTH)), "attention_mask": mask_of((3, WIDTH))},
        make_batch(square=torch.ones(3, WIDTH, WIDTH)),
        make_batch(extended=torch.ones(3, 1, 1, WIDTH)),
        make_batch(shared=torch.arange(WIDTH)),
        make_batch(weights=torch.rand(3, WIDTH) + 1),
    ],
    ids=["left", "full", "square mask", "extended mask", "shared positions", "content"],
)
def test_a_batch_that_cannot_be_cut_safely_stays_the_same_object(batch):
    assert trimmed(batch) is batch


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(1, 4))
def test_whatever_is_cut_was_padding(lengths, multiple_of):
    width = 12
    batch = {
        "input_ids": ids_of(lengths, width),
        "attention_mask": mask_of(lengths, width),
        "labels": torch.where(mask_of(lengths, width).bool(), ids_of(lengths, width), IGNORED),
    }
    found = trimmed(batch, multiple_of=multiple_of)

    kept = found["input_ids"].shape[1]
    assert kept == min(width, -(-max(lengths) // multiple_of) * multiple_of)
    for name, tensor in found.items():
        assert torch.equal(tensor, batch[name][:, :kept])
    assert int(found["attention_mask"].sum()) == sum(lengths)
    assert trimmed(found, multiple_of=multiple_of) is found


# -- in loaders


class Texts(data.Dataset):
    """Rows of some lengths, padded to one width."""

    def __init__(self, lengths=(3, 5, 1, 2), width=WIDTH):
        self.ids, self.mask = ids_of(lengths, width), mask_of(lengths, width)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "attention_mask": self.mask[index]}


def widths(loader):
    return [batch["input_ids"].shape[1] for batch in loader]


@pytest.fixture
def on():
    undo = LEVER.apply({"multiple_of": 1}, SimpleNamespace(torch=torch))
    yield
    undo()


def test_a_loader_that_feeds_training_gives_shorter_batches(on):
    assert widths(data.DataLoader(Texts(), batch_size=2)) == [5, 2]


def test_an_evaluation_is_left_as_it_is(on):
    with torch.no_grad():
        assert widths(data.DataLoader(Texts(), batch_size=2)) == [WIDTH, WIDTH]


def test_the_collate_of_the_script_is_called_as_before(on):
    def collate(samples):
        return dict(data.default_collate(samples), num=len(samples))

    loader = data.DataLoader(Texts(), batch_size=2, collate_fn=collate)
    assert widths(loader) == [5, 2]
    assert loader.collate_fn is collate


def test_taken_off_it_leaves_nothing_behind():
    kind = data.dataloader._DatasetKind
    before = kind.__dict__["create_fetcher"]
    LEVER.apply({"multiple_of": 1}, SimpleNamespace(torch=torch))()

    assert kind.__dict__["create_fetcher"] is before
    assert widths(data.DataLoader(Texts(), batch_size=2)) == [WIDTH, WIDTH]


def test_a_batch_that_cannot_be_looked_into_is_passed_on(on):
    class Odd:
        def __init__(self, tensor):
            self.tensor = tensor

        def __copy__(self):
            raise TypeError("cannot be copied")

    def collate(samples):
        return Odd(data.default_collate(samples))

    (batch,) = data.DataLoader(Texts(), batch_size=4, collate_fn=collate)
    assert batch.tensor["input_ids"].shape == (4, WIDTH)


# -- where it is offered

PADDED = PaddingFacts(
    num_batches=16,
    side="right",
    useful_fraction=0.3,
    longest_fraction=0.6,
    grouped_fraction=0.4,
    is_fixed=True,
)


def make_facts(padding: PaddingFacts | None = PADDED, **fields: Any) -> Facts:
    loader = LoaderFacts(dataset="Texts", padding=padding)
    base: dict[str, Any] = {"torch_version": "2.13.0", "loaders": (loader,)}
    return Facts(**(base | fields))


def but(**fields: Any) -> PaddingFacts:
    return dataclasses.replace(PADDED, **fields)


def test_it_is_offered_where_the_longest_rows_end_in_padding():
    facts = make_facts()

    assert LEVER.applies(facts) is None
    assert LEVER.space(facts) == ({"multiple_of": 1},)
    assert LEVER.space(make_facts(device="cuda")) == ({"multiple_of": 8},)
    assert LEVER.saves is not None
    assert LEVER.saves(facts) == pytest.approx(1 - 0.6**2)
    assert LEVER.saves(make_facts(None)) is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (make_facts(loaders=()), "No DataLoader"),
        (make_facts(loaders=None), "not observed"),
        (make_facts(None), "not observed"),
        (make_facts(PaddingFacts(num_batches=16)), "no attention mask"),
        (make_facts(but(side="left")), "padded in front"),
        (make_facts(but(longest_fraction=0.996)), "Only 0.4% of the positions"),
        (make_facts(has_batch_statistics=True), "batch norms"),
        (make_facts(has_sequence_convolution=True), "convolves along sequences"),
        (make_facts(uses_compile=True), "compiles its model"),
    ],
)
def test_where_trimming_is_of_no_use_or_not_safe_the_reason_is_said(facts: Facts, words: str):
    assert words in (LEVER.applies(facts) or "")


@pytest.mark.parametrize(
    ("draws", "expected"), [(False, Preserves.NUMERIC), (True, None), (None, None)]
)
def test_it_only_rounds_otherwise_where_the_model_draws_nothing(draws: Any, expected: Any):
    assert LEVER.class_here(make_facts(draws_in_calls=draws), {}) is expected
    assert LEVER.preserves is Preserves.STATISTICAL


def test_the_edit_does_what_the_lever_does():
    names: dict[str, Any] = {"DataLoader": lambda *args, **words: words["collate_fn"]}
    names["default_collate"] = data.default_collate
    exec(LEVER.edit({"multiple_of": 2}).replace("...", "0"), names)
    batch = names["collate"]([Texts()[i] for i in range(3)])

    assert batch["input_ids"].shape == batch["attention_mask"].shape == (3, 6)
    assert "%" not in LEVER.edit({"multiple_of": 1})
