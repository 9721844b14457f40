"""The lever `progressive_length`: which rows of which scripts are cut, and when no longer."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers._row_cuts import length_at  # noqa: E402
from steptime.levers.base import LoaderFacts, PaddingFacts  # noqa: E402
from steptime.levers.examples import CPU, TEXT  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("progressive_length")
LENGTH, ROWS = 64, 4
GROWING = [16, 24, 40, 48]  # of a row of 64, from a quarter on, over four steps


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        undo = LEVER.apply({"start": 0.25, "steps": 4}, session)
        yield session
        undo()


class Words(torch.nn.Module):
    """Returns scores, or with targets its loss too, as nanoGPT does."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)
        self.seen = []

    def forward(self, idx, targets=None):
        self.seen.append(idx.shape[1])
        scores = self.head(self.embedding(idx))
        if targets is None:
            return scores
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
        return scores, loss


def texts(num_batches=7, width=LENGTH):
    chance = torch.Generator().manual_seed(0)
    return torch.randint(2, 50, (num_batches * ROWS, width), generator=chance)


def loader(*fields):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*fields), batch_size=ROWS)


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        scores = model(x)
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_rows_of_a_loader_grow_with_their_targets_until_they_are_whole(session):
    model, x = Words(), texts()
    train(model, loader(x, x))

    # The first batch comes before a model was called; then 1, 2 and 3 steps were made.
    assert model.seen == [LENGTH, *GROWING[1:], LENGTH, LENGTH, LENGTH]
    assert session.counts["cut_batch"] == 3


def test_a_model_with_its_loss_inside_is_cut_at_its_call(session):
    model, x = Words(), texts(num_batches=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(6):
        scores, loss = model(x, x) if number % 2 else model(x, targets=x)
        assert scores.shape[1] == model.seen[-1]
        loss.backward()
        optimizer.step()

    # The first call is looked at: does it give a loss?
    assert model.seen == [LENGTH, *GROWING[1:], LENGTH, LENGTH]


def test_an_evaluation_sees_whole_rows(session):
    model, x = Words(), texts(num_batches=2)
    train(model, list(loader(x, x))[:1])
    model.eval()
    for batch, _ in loader(x, x):  # gradients are on here
        with torch.no_grad():
            model(batch)
    with torch.no_grad():
        model(x[:ROWS], x[:ROWS])

    assert model.seen[1:] == [LENGTH] * 3


@pytest.mark.parametrize(
    "batch",
    [
        (torch.rand(4, 64), torch.rand(4, 64)),  # numbers
        (torch.ones(4, 64, dtype=torch.long),),  # a mask alone
        (texts(1, width=20),),  # columns of a table
        (texts(1), torch.zeros(4, 64, 64)),  # a square mask
        {"input_ids": texts(1), "attention_mask": (torch.arange(64) > 9).long().expand(4, 64)},
    ],
)
def test_what_is_no_row_of_tokens_stays(session, batch):
    from steptime.levers._row_cuts import cut_batch

    assert cut_batch(torch, batch, 0.5) is batch


def test_all_tables_of_a_batch_are_cut_together():
    from steptime.levers._row_cuts import cut_batch

    mask = torch.ones(4, 64, dtype=torch.long)
    found = cut_batch(
        torch, {"input_ids": texts(1), "attention_mask": mask, "labels": torch.ones(4)}, 0.5
    )

    assert found["input_ids"].shape == found["attention_mask"].shape == (4, 32)
    assert torch.equal(found["input_ids"], texts(1)[:, :32])
    assert len(found["labels"]) == 4


def test_a_model_that_gives_no_loss_is_called_as_the_script_does(session):
    class Pair(Words):
        def forward(self, source, target):
            return super().forward(source) + super().forward(target)

    model, x = Pair(), texts(num_batches=1)
    for _ in range(3):
        model(x, x)

    assert set(model.seen) == {LENGTH}


def test_lengths_are_multiples_of_eight_and_no_longer_than_the_row():
    assert [length_at(100, one) for one in (0.01, 0.25, 0.5, 0.999, 1.0)] == [8, 24, 48, 96, 100]


def test_it_helps_hurts_or_does_not_apply():
    left = LoaderFacts(dataset="Texts", padding=PaddingFacts(num_batches=4, side="left"))

    assert LEVER.applies(TEXT) is None
    assert "no tokens" in LEVER.applies(dataclasses.replace(CPU, has_token_embedding=False))
    assert "not observed" in LEVER.applies(CPU)
    assert "compiles" in LEVER.applies(dataclasses.replace(TEXT, uses_compile=True))
    assert "in front" in LEVER.applies(dataclasses.replace(TEXT, loaders=(left,)))
