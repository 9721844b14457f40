"""The lever compile, block by block: which blocks, one graph for all, and nothing left on them."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.levers.tools.blocks import find_blocks  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.counted_graphs import CountedGraphs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
"""Torch looks at it and hides that, which does not help where warnings are errors."""

LEVER = load("compile")
BLOCKS = {"mode": "default", "scope": "blocks"}
WHOLE = {"mode": "default"}
NUM_BLOCKS = 6


class Block(nn.Module):
    def __init__(self, width: int = 8, number: int = 0) -> None:
        super().__init__()
        self.number = number
        self.norm, self.entry = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.exit, self.dropout = nn.Linear(2 * width, width), nn.Dropout(0.1)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return x + scale * self.dropout(self.exit(torch.relu(self.entry(self.norm(x)))))


class Numbered(Block):
    """Reads its own number, as some do that keep a cache for each layer."""

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return super().forward(x, scale) * (1 + self.number)


class Net(nn.Module):
    def __init__(self, *blocks: nn.Module, reentrant: bool | None = None) -> None:
        super().__init__()
        self.entry, self.head = nn.Linear(4, 8), nn.Linear(8, 1)
        self.blocks, self.reentrant = nn.ModuleList(blocks), reentrant

    def forward(self, x: Any) -> Any:
        x = self.entry(x)
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x, scale=0.5)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


def make_net(kind: type[Block] = Block, *, reentrant: bool | None = None) -> Net:
    torch.manual_seed(0)
    blocks = [kind(number=number) for number in range(NUM_BLOCKS)]
    return Net(*blocks, reentrant=reentrant)


def train(model: Any, num_steps: int = 3) -> list[float]:
    """Losses and gradients of some steps."""
    torch.manual_seed(1)
    found = []
    for _ in range(num_steps):
        loss = model(torch.randn(3, 4)).pow(2).sum()
        loss.backward()
        found.append(loss.item())
    return found + [p.grad.sum().item() for p in model.parameters()]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Any:
    graphs, make = CountedGraphs(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda what, **_: make(what, backend=graphs))
    LEVER.apply.__globals__["kept_forms"].clear()
    yield graphs
    torch.compiler.reset()


@pytest.fixture
def session() -> Any:
    with PlainSession(torch) as session:
        yield session


# -- which blocks


def names_of(model: nn.Module) -> list[list[str]]:
    return [[type(block).__name__ for block in blocks] for blocks in find_blocks(torch, model)]


def test_blocks_are_found_wherever_they_are() -> None:
    inside = nn.Sequential(nn.Linear(4, 8), make_net())
    layer = nn.TransformerEncoderLayer(8, 2, 16)

    assert names_of(inside) == [["Block"] * NUM_BLOCKS]
    assert names_of(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)) == [
        ["TransformerEncoderLayer"] * 3
    ]


def test_blocks_inside_blocks_are_compiled_with_them() -> None:
    outer = nn.Sequential(*(Net(Block(), Block()) for _ in range(3)))

    assert names_of(outer) == [["Net"] * 3]


def test_two_kinds_of_blocks_are_two_regions() -> None:
    assert names_of(Net(Block(), Numbered(), Block(), Numbered())) == [
        ["Block"] * 2,
        ["Numbered"] * 2,
    ]


@pytest.mark.parametrize(
    "model",
    [
        Net(Block()),
        Net(*(Block(width) for width in (4, 8, 16, 32))),
        nn.Sequential(*(nn.Linear(4, 4) for _ in range(6))),
        nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(6))),
        nn.DataParallel(Net(Block(), Block())),
    ],
    ids=["one", "each of another size", "single layers", "containers", "copied in each call"],
)
def test_what_does_not_repeat_is_no_region(model: nn.Module) -> None:
    assert find_blocks(torch, model) == []


def test_a_block_that_is_used_twice_counts_once() -> None:
    block = Block()

    assert find_blocks(torch, Net(block, block)) == []


def test_torch_that_would_compile_each_block_is_not_asked_to() -> None:
    offered = LEVER.space(Facts(torch_version="2.4.1", num_repeated_blocks=12))

    assert BLOCKS not in offered


@pytest.mark.parametrize(("num", "is_offered"), [(12, True), (0, False), (None, False)])
def test_blocks_are_offered_first_where_a_model_repeats_some(
    num: int | None, *, is_offered: bool
) -> None:
    offered = LEVER.space(Facts(torch_version="2.9", num_repeated_blocks=num))

    assert (offered[0] == BLOCKS) is is_offered
    assert WHOLE in offered


# -- what it does


def test_all_blocks_share_one_graph_and_train_the_same(session: Any, graphs: Any) -> None:
    """The specimen that it helps: a sixth of the operators are compiled."""
    expected = train(make_net())
    undo = LEVER.apply(BLOCKS, session)
    found = train(make_net())
    undo()
    num_graphs, num_operators = graphs.num_graphs, graphs.num_operators
    LEVER.apply(WHOLE, session)
    train(make_net())

    assert found == expected
    assert num_graphs == 1
    assert graphs.num_calls == 3 * NUM_BLOCKS + 3
    assert (graphs.num_operators - num_operators) > (NUM_BLOCKS - 1) * num_operators


def test_blocks_that_read_their_number_are_compiled_one_by_one(session: Any, graphs: Any) -> None:
    """The specimen that it hurts: as many graphs as blocks, where the whole model is one."""
    expected = train(make_net(Numbered))
    LEVER.apply(BLOCKS, session)

    assert train(make_net(Numbered)) == expected
    assert graphs.num_graphs == NUM_BLOCKS


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks_are_computed_again_as_they_were(
    session: Any, graphs: Any, *, reentrant: bool
) -> None:
    expected = train(make_net(reentrant=reentrant))
    LEVER.apply(BLOCKS, session)

    assert train(make_net(reentrant=reentrant)) == expected
    assert graphs.num_calls == 2 * 3 * NUM_BLOCKS


def test_evaluation_is_not_compiled(session: Any, graphs: Any) -> None:
    model = make_net()
    LEVER.apply(BLOCKS, session)
    model.eval()
    model(torch.ones(2, 4))

    assert graphs.num_graphs == 0


def test_off_it_is_eager_and_on_again_it_compiles_nothing_again(session: Any, graphs: Any) -> None:
    model = make_net()
    for _ in range(3):
        undo = LEVER.apply(BLOCKS, session)
        train(model, 1)
        undo()
        train(model, 1)

    assert (graphs.num_graphs, graphs.num_calls) == (1, 3 * NUM_BLOCKS)


@pytest.mark.parametrize("part", ["", "entry"], ids=["the block", "a part of it"])
def test_a_block_with_hooks_runs_as_it_is(session: Any, graphs: Any, part: str) -> None:
    """Torch would give it the graph of a block without hooks."""
    model, shapes = make_net(), []
    LEVER.apply(BLOCKS, session)
    train(model, 1)
    hooked = model.blocks[2].get_submodule(part)
    handle = hooked.register_forward_hook(lambda *three: shapes.append(len(three[2])))
    train(model, 2)
    handle.remove()
    train(model, 1)

    assert shapes == [3, 3]
    assert (graphs.num_graphs, graphs.num_calls) == (1, 4 * NUM_BLOCKS - 2)


def test_a_checkpoint_written_inside_a_call_is_as_it_was(session: Any, graphs: Any) -> None:
    model, files, copies = make_net(), [], []

    def save(*_: Any) -> None:
        file = io.BytesIO()
        torch.save(model.blocks, file)
        files.append(file.getvalue())
        copies.append(copy.deepcopy(model.blocks))

    model.head.register_forward_pre_hook(save)
    keys = list(model.state_dict())
    LEVER.apply(BLOCKS, session)
    train(model, 1)

    assert graphs.num_calls == NUM_BLOCKS
    assert b"steptime" not in files[0]
    assert b"_compiled_call_impl" not in files[0]
    assert "_compiled_call_impl" not in vars(copies[0][0])
    assert list(model.state_dict()) == keys


def test_nothing_stays_on_a_block_not_even_after_an_error(session: Any, graphs: Any) -> None:
    model = make_net()
    before = {name: sorted(vars(part)) for name, part in model.named_modules()}
    LEVER.apply(BLOCKS, session)
    train(model, 1)
    with pytest.raises(RuntimeError, match="shape"):
        model(torch.ones(2, 5))

    assert {name: sorted(vars(part)) for name, part in model.named_modules()} == before
    assert [vars(one) for one in model.parameters()] == [{}] * len(list(model.parameters()))


def test_a_block_that_the_script_compiled_keeps_its_own(session: Any, graphs: Any) -> None:
    model, own = make_net(), CountedGraphs()
    model.blocks[0].compile()
    mine = model.blocks[0]._compiled_call_impl
    LEVER.apply(BLOCKS, session)
    train(model, 1)

    assert model.blocks[0]._compiled_call_impl is mine
    assert own.num_graphs == 0
