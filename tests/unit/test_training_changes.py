"""Levers that change the training: what each does to an unmodified one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.methods import gradients  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from steptime.testing.training import Training  # noqa: E402

OTHER = load("other_optimizer")


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


@pytest.mark.parametrize(
    ("name", "transform"),
    [("znorm", gradients.ZNorm()), ("clip_adaptive", gradients.ClipAdaptive())],
)
def test_a_transform_acts_as_if_the_script_had_attached_it(session, name, transform):
    own = Training(torch)
    gradients.attach(own.optimizer, transform)
    expected = own.steps(4)

    undo = load("gradient_transform").apply({"transform": name}, session)
    assert Training(torch).steps(4) == expected
    undo()
    assert Training(torch).steps(4) == Training(torch).steps(4) != expected


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 8)
        self.hidden, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 11)

    def forward(self, x):
        return self.head(self.hidden(self.embedding(x)).tanh())


def train_words(*, decay=0.1, steps=5, by_hand=False):
    torch.manual_seed(0)
    model, words = Words(), torch.randint(0, 11, (16,))
    matrix = [model.hidden.weight]
    others = (
        [p for p in model.parameters() if p is not matrix[0]] if by_hand else model.parameters()
    )
    optimizers = [torch.optim.AdamW(others, lr=0.02, weight_decay=decay)]
    if by_hand:
        muon = torch.optim.Muon
        optimizers.append(muon(matrix, lr=0.02, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    for _ in range(steps):
        torch.nn.functional.cross_entropy(model(words), words).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return model, optimizers[0]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
def test_muon_takes_the_hidden_matrices_and_adamw_the_rest(session):
    own = torch.optim.AdamW
    expected, _ = train_words(by_hand=True)
    undo = OTHER.apply({"optimizer": "muon"}, session)
    found, optimizer = train_words()
    states = [sorted(optimizer.state[p]) for p in found.parameters()]
    saved = optimizer.state_dict()
    undo()

    assert torch.optim.AdamW is own
    assert isinstance(optimizer, own)
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert states == [["momentum_buffer"] if p is found.hidden.weight else
                      ["exp_avg", "exp_avg_sq", "step"] for p in found.parameters()]  # fmt: skip
    assert len(saved["state"]) == 5


def train_at(kind, rate, *, sets_rates=False):
    torch.manual_seed(0)
    model, words = Words(), torch.randint(0, 11, (16,))
    optimizer = kind(model.parameters(), lr=rate, weight_decay=0.1)
    for _ in range(4):
        if sets_rates:
            optimizer.param_groups[0]["lr"] = rate
        torch.nn.functional.cross_entropy(model(words), words).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()], optimizer


@pytest.mark.parametrize("sets_rates", [False, True])
def test_adafactor_steps_with_ten_times_the_rate_and_the_script_sees_its_own(session, sets_rates):
    expected, _ = train_at(torch.optim.Adafactor, 0.2)
    undo = OTHER.apply({"optimizer": "adafactor"}, session)
    found, optimizer = train_at(torch.optim.AdamW, 0.02, sets_rates=sets_rates)
    undo()

    assert isinstance(optimizer, torch.optim.Adafactor)
    assert optimizer.param_groups[0]["lr"] == 0.02
    assert optimizer.param_groups[0]["weight_decay"] == 0.1
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
