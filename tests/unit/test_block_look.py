"""What a trial measures of repeated blocks, and that measuring changes no bit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from steptime.guest.count.operators import operator_probe  # noqa: E402
from steptime.guest.trial.looks.block_look import BlockLook  # noqa: E402

nn = torch.nn
WIDTH = 32


@pytest.fixture(autouse=True)
def nothing_compiles(monkeypatch):
    monkeypatch.setattr(operator_probe, "COMPILERS", ())  # other tests compile


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        inner = nn.functional.dropout(self.one(x).relu(), 0.1, self.training)
        return x + self.two(inner)


class MaskedBlock(Block):
    def forward(self, x):
        return super().forward(x).masked_fill(x > 3, torch.tensor(0.0))


class Net(nn.Module):
    def __init__(self, block=Block, number=4, times=1):
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(number))
        self.times = times

    def forward(self, x):
        for _ in range(self.times):
            for block in self.blocks:
                x = block(x)
        return x


def train(look, steps=9, **how):
    """Losses and gradients of some steps, with a look at each call if there is one."""
    torch.manual_seed(0)
    model, found = Net(**how), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.randn(256, WIDTH)
        out = model(x) if look is None else look.run(model, lambda x=x: model(x))
        optimizer.zero_grad()
        out.square().mean().backward()
        optimizer.step()
        found += [out.detach().clone(), *(p.grad.clone() for p in model.parameters())]
    return found


@pytest.fixture
def look():
    failures: list[str] = []
    yield BlockLook(torch, failures.append)
    assert failures == []


def test_looking_changes_no_bit(look):
    assert all(map(torch.equal, train(None), train(look)))
    assert look.num_looks == 5


def test_bytes_and_operators_of_each_block_are_found_in_order(look):
    train(look)
    rows = look.describe()["blocks"]
    size = 256 * WIDTH * 4

    assert [row["name"] for row in rows] == [f"Net.blocks.{number}" for number in range(4)]
    assert {row["input_bytes"] for row in rows} == {size}
    # the input, the result of relu, the mask of dropout and what it gave
    assert {row["kept_bytes"] for row in rows} == {size + 2 * size * 3}
    assert all(row["forward_s"] > 0 for row in rows)
    operators = {one["name"]: one for one in rows[0]["operators"]}
    assert operators["aten.addmm.default"]["num"] == 2
    assert operators["aten.addmm.default"]["result_bytes"] == 3 * size
    assert operators["aten.addmm.default"]["can_keep"]


def test_random_and_changed_results_may_not_be_kept(look):
    train(look)
    rows = [one for row in look.describe()["blocks"] for one in row["operators"]]

    drawn = [one for one in rows if "bernoulli" in one["name"] or "empty" in one["name"]]
    assert drawn
    assert not any(one["can_keep"] for one in drawn)


def test_where_a_mode_would_change_bits_operators_are_not_timed(look):
    assert all(map(torch.equal, train(None, block=MaskedBlock), train(look, block=MaskedBlock)))
    assert [row["operators"] for row in look.describe()["blocks"]] == [[]] * 4


def test_blocks_that_are_called_twice_are_left_out(look):
    train(look, times=2)

    assert look.describe() == {"blocks": []}


def test_few_blocks_and_evaluations_are_not_measured(look):
    train(look, number=3)
    model = Net().eval()
    for _ in range(9):
        look.run(model, lambda: model(torch.randn(4, WIDTH)))

    assert look.describe() == {}
