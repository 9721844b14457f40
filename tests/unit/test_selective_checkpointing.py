"""`selective_checkpointing`: the same bits, the wanted bytes; and where it is not offered."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from steptime.guest.count.operators import operator_probe  # noqa: E402
from steptime.guest.trial.looks.block_look import BlockLook  # noqa: E402
from steptime.levers import load  # noqa: E402
from steptime.levers.base import BlockFacts, BlockOperator, Facts  # noqa: E402
from steptime.levers.examples import TEXT  # noqa: E402
from steptime.levers.memory.block_choice import choose, freed_bytes  # noqa: E402
from steptime.levers.memory.selective_checkpointing import settings_for, settings_of  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.allocated import allocated  # noqa: E402

LEVER = load("selective_checkpointing")
nn = torch.nn
WHOLE = {"whole": "Net.blocks.[0-2]"}
PARTLY = {"partly": "Net.blocks.[0-2]", "keep": "aten.addmm.default"}
BOTH = {"whole": "Net.blocks.0", "partly": "Net.blocks.[1-2]", "keep": "aten.addmm.default"}


@pytest.fixture(autouse=True)
def nothing_compiles(monkeypatch):
    monkeypatch.setattr(operator_probe, "COMPILERS", ())  # other tests compile


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.one, self.two = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.num_calls = 0

    def forward(self, x):
        self.num_calls += 1
        inner = nn.functional.gelu(self.one(self.norm(x)))
        return x + self.two(nn.functional.dropout(inner, 0.2, self.training))


class Net(nn.Module):
    def __init__(self, number=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(number))
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


def train(steps=4):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, losses, gradients = torch.randn(8, 16), [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        gradients += [p.grad.clone() for p in model.parameters()]
    return losses, gradients, model


@pytest.mark.parametrize("settings", [WHOLE, PARTLY, BOTH], ids=["whole", "partly", "both"])
def test_each_bit_of_each_gradient_stays_with_dropout_too(session, settings):
    expected = train()
    LEVER.apply(settings, session)
    found = train()

    assert found[0] == expected[0]
    assert all(map(torch.equal, found[1], expected[1]))
    assert [block.num_calls for block in found[2].blocks] == [8, 8, 8, 4]


@pytest.mark.parametrize("settings", [WHOLE, PARTLY, BOTH], ids=["whole", "partly", "both"])
def test_the_bytes_that_the_estimate_says_are_freed(session, settings):
    facts = measure(Net())
    model, x = Net(), torch.randn(1024, 16)
    before = allocated(lambda: model(x)).held
    LEVER.apply(settings, session)
    model(x)
    freed = before - allocated(lambda: model(x)).held

    assert freed == pytest.approx(LEVER.frees(facts, settings), rel=0.05)


def measure(model, rows=1024):
    """The facts of a model after the calls that a trial looks at."""
    failures = []
    look = BlockLook(torch, failures.append)
    for _ in range(9):
        x = torch.randn(rows, 16)
        look.run(model, lambda x=x: model(x)).sum().backward()
    assert failures == []
    blocks = tuple(
        BlockFacts(**{**row, "operators": tuple(BlockOperator(**one) for one in row["operators"])})
        for row in look.describe()["blocks"]
    )
    return dataclasses.replace(TEXT, blocks=blocks)


def test_the_first_call_holds_no_more_than_others(session):
    x = torch.randn(1024, 16)
    LEVER.apply(WHOLE, session)
    model = Net()
    first, second = (allocated(lambda: model(x).sum().backward()).peak for _ in range(2))

    assert first - sum(p.numel() * 4 for p in model.parameters()) <= second


def test_what_the_solver_chose_from_the_measured_run_is_what_happens(session):
    facts = measure(Net(8))
    total = sum(one.kept_bytes for one in facts.blocks)
    choice = choose(facts.blocks, total // 2)
    model, x = Net(8), torch.randn(1024, 16)
    step = lambda: model(x).sum().backward()  # noqa: E731
    step()
    before = allocated(step).peak
    LEVER.apply(settings_of(choice), session)
    step()

    assert before - allocated(step).peak >= 0.95 * choice.frees_bytes >= 0.45 * total
    assert choice.takes_s < sum(one.forward_s for one in facts.blocks)


def test_a_block_that_is_cheaper_for_its_bytes_is_chosen_first():
    cheap = [BlockFacts(name=f"N.a.{n}", kept_bytes=90, input_bytes=0, forward_s=1) for n in (0, 1)]
    slow = [BlockFacts(name=f"N.b.{n}", kept_bytes=90, input_bytes=0, forward_s=9) for n in (0, 1)]
    settings = settings_for((*slow, *cheap), 90)

    assert settings == {"whole": "N.a.0"}
    assert freed_bytes((*slow, *cheap), whole=["N.a.0"]) == 90


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_fraction": 0.4}, "holds 40%"),
        ({"blocks": None}, "not observed"),
        ({"blocks": ()}, "repeats no block"),
        ({"has_batch_statistics": True}, "batch norms"),
        ({"uses_compile": True}, "compiles"),
    ],
)
def test_it_says_why_it_is_not_offered(change, words):
    assert LEVER.applies(TEXT) is None
    assert words in LEVER.applies(dataclasses.replace(TEXT, **change))


def test_it_frees_the_wanted_parts_in_less_time_than_all_blocks_take():
    total = sum(one.kept_bytes for one in TEXT.blocks)
    found = [LEVER.frees(TEXT, settings) / total for settings in LEVER.space(TEXT)]

    assert all(part >= wanted for part, wanted in zip(found, (0.25, 0.5, 0.75), strict=True))
    assert LEVER.frees(Facts(torch_version="2.9"), {"whole": "Net.a"}) is None


def test_the_edit_names_blocks_and_operators():
    text = LEVER.edit(BOTH)

    assert "Net.blocks.[1-2]" in text
    assert "torch.ops.aten.addmm.default" in text
