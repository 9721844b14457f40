"""The lever fused_rnn on cells that a script writes out: which it knows, which it leaves alone."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from steptime.levers import load  # noqa: E402
from steptime.levers._cell_finder import LoopLook  # noqa: E402
from steptime.levers._cells import CellFuser  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.lever_switch import switching  # noqa: E402

LEVER = load("fused_rnn")
ROWS, STEPS, INPUTS, SIZE = 3, 7, 5, 4


class TwoLayers(nn.Module):
    """An LSTM whose gates are two layers, in another order than torch's."""

    def __init__(self):
        super().__init__()
        self.of_input = nn.Linear(INPUTS, 4 * SIZE)
        self.of_state = nn.Linear(SIZE, 4 * SIZE, bias=False)

    def forward(self, x, states):
        h, c = states
        gates = self.of_input(x) + self.of_state(h)
        o, f, i, g = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + i.sigmoid() * torch.tanh(g)
        h = o.sigmoid() * c.tanh()
        return h, (h, c)


class OneLayer(nn.Module):
    """An LSTM with one layer over the input beside the state, cut by slices."""

    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(SIZE + INPUTS, 4 * SIZE)

    def forward(self, x, h, c):
        gates = self.gates(torch.cat([h, x], -1)).squeeze()
        i, f = torch.sigmoid(gates[:, : 2 * SIZE]).chunk(2, 1)
        g, o = torch.tanh(gates[..., 2 * SIZE : 3 * SIZE]), torch.sigmoid(gates[:, 3 * SIZE :])
        c = c * f + g * i
        return o * torch.tanh(c), c


class LayerPerGate(nn.Module):
    """An LSTM with a layer for each gate."""

    def __init__(self):
        super().__init__()
        for name in "figo":
            self.add_module(name, nn.Linear(INPUTS + SIZE, SIZE))
        self.act = nn.Sigmoid()

    def forward(self, x, hx):
        h, c = hx
        both = torch.cat((x, h), dim=1)
        f, i, o = (self.act(layer(both)) for layer in (self.f, self.i, self.o))
        c = torch.add(torch.mul(f, c), i * torch.tanh(self.g(both)))
        return o * torch.tanh(c), c


class OwnWeights(nn.Module):
    """An LSTM with weights of its own, which stand as inputs by outputs."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(INPUTS, 4 * SIZE) * 0.3)
        self.u = nn.Parameter(torch.randn(4 * SIZE, SIZE) * 0.3)
        self.b = nn.Parameter(torch.randn(4 * SIZE) * 0.3)

    def forward(self, x, states):
        h, c = states
        gates = x @ self.w + torch.mm(h, self.u.t()) + self.b
        i, f, g, o = torch.split(gates, SIZE, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return [o.sigmoid() * c.tanh(), c]


class Gru(nn.Module):
    """A GRU as torch has it, with its gates in another order."""

    def __init__(self):
        super().__init__()
        self.of_input, self.of_state = nn.Linear(INPUTS, 3 * SIZE), nn.Linear(SIZE, 3 * SIZE)

    def forward(self, x, h):
        z, r, n = self.of_input(x).chunk(3, 1)
        hz, hr, hn = self.of_state(h).chunk(3, 1)
        reset, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
        n = torch.tanh(n + reset * hn)
        return n + z * (h - n)


class SixLayers(nn.Module):
    """A GRU whose update gate weighs the new state."""

    def __init__(self):
        super().__init__()
        self.x = nn.ModuleList([nn.Linear(INPUTS, SIZE) for _ in range(3)])
        self.h = nn.ModuleList([nn.Linear(SIZE, SIZE, bias=at > 0) for at in range(3)])

    def forward(self, h, x):
        r = torch.sigmoid(self.x[0](x) + self.h[0](h))
        z = torch.sigmoid(self.x[1](x) + self.h[1](h))
        n = torch.tanh(self.x[2](x) + r * self.h[2](h))
        h = (1 - z) * h + z * n
        return h, h


KNOWN = [TwoLayers, OneLayer, LayerPerGate, OwnWeights, Gru, SixLayers]


class ResetFirst(nn.Module):
    """A GRU as it was first published: the reset gate multiplies the state."""

    def __init__(self):
        super().__init__()
        self.gates, self.new = nn.Linear(INPUTS + SIZE, 2 * SIZE), nn.Linear(INPUTS + SIZE, SIZE)

    def forward(self, x, h):
        r, z = torch.sigmoid(self.gates(torch.cat([x, h], 1))).chunk(2, 1)
        n = torch.tanh(self.new(torch.cat([x, r * h], 1)))
        return (1 - z) * n + z * h


class ResetFirstInLayers(ResetFirst):
    """The same with a layer for each gate."""

    def __init__(self):
        super().__init__()
        self.r, self.z = nn.Linear(INPUTS + SIZE, SIZE), nn.Linear(INPUTS + SIZE, SIZE)

    def forward(self, x, h):
        both = torch.cat([x, h], 1)
        r, z = torch.sigmoid(self.r(both)), torch.sigmoid(self.z(both))
        n = torch.tanh(self.new(torch.cat([x, r * h], 1)))
        return (1 - z) * n + z * h


class Peepholes(TwoLayers):
    """Gates that see the cell state too."""

    def __init__(self):
        super().__init__()
        self.peep = nn.Parameter(torch.ones(SIZE))

    def forward(self, x, states):
        h, c = states
        o, f, i, g = (self.of_input(x) + self.of_state(h)).chunk(4, dim=1)
        c = torch.sigmoid(f + self.peep * c) * c + i.sigmoid() * torch.tanh(g)
        h = o.sigmoid() * c.tanh()
        return h, (h, c)


class Drops(TwoLayers):
    """States that are dropped at random."""

    def forward(self, x, states):
        h, (_, c) = super().forward(x, states)
        h = nn.functional.dropout(h, 0.5)
        return h, (h, c)


class Counts(TwoLayers):
    """A cell that counts its steps."""

    num = 0

    def forward(self, x, states):
        self.num += 1
        return super().forward(x, states)


class Plain(nn.Module):
    """A recurrence without gates."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(INPUTS + SIZE, SIZE)

    def forward(self, x, h):
        return torch.tanh(self.layer(torch.cat([x, h], 1)))


class Asks(Gru):
    """What a step does depends on numbers."""

    def forward(self, x, h):
        return super().forward(x, h) if h.sum() > -100 else h


class Buffered(Gru):
    """A cell with a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(1))


LEFT = [
    (ResetFirst, "reset_first"),
    (ResetFirstInLayers, "reset_first"),
    (Peepholes, "unlike"),
    (Drops, "unlike"),
    (Counts, "keeps"),
    (Plain, "unlike"),
    (Asks, "unlike"),
    (Buffered, "hooks"),
]


class Loop(nn.Module):
    """Steps a cell over rows, in the way in which its class is called."""

    def __init__(self, cell_class):
        super().__init__()
        self.cell, self.head = cell_class(), nn.Linear(SIZE, SIZE)
        self.is_gru = issubclass(cell_class, (Gru, SixLayers, ResetFirst, Plain))

    def step(self, x, h, c):
        if isinstance(self.cell, SixLayers):
            return self.cell(h=h, x=x)[0], c
        if self.is_gru:
            return self.cell(x, h), c
        made = self.cell(x, h, c) if isinstance(self.cell, OneLayer) else self.cell(x, (h, c))
        return made[1] if isinstance(made[1], tuple) else made

    def forward(self, x):
        h, c, found = torch.zeros(ROWS, SIZE), torch.zeros(ROWS, SIZE), []
        for one in x.unbind(1):
            h, c = self.step(one, h, c)
            found.append(h)
        return self.head(torch.stack(found)) + c.mean()


class Training:
    def __init__(self, cell_class):
        torch.manual_seed(1)
        own = type(cell_class.__name__, (cell_class,), {})  # what is known of a class stays known
        self.model = type("Own", (Loop,), {})(own)
        self.inputs = torch.randn(ROWS, STEPS, INPUTS)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def steps(self, number):
        losses = []
        for _ in range(number):
            self.optimizer.zero_grad()
            loss = (self.model(self.inputs) - 0.3).square().mean()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


@pytest.fixture
def put_on():
    """Puts the lever on; what the test leaves on is taken off behind it."""
    with PlainSession(torch) as session, switching(LEVER, session) as apply:
        yield apply


@pytest.fixture
def calls(monkeypatch):
    """The lengths that torch's LSTM and GRU were given, apart from those that are tried."""
    seen = []

    def watched(original):
        def call(inputs, *args):
            if inputs.shape[1] == ROWS:
                seen.append(len(inputs))
            return original(inputs, *args)

        return call

    for name in ("lstm", "gru"):
        monkeypatch.setattr(torch, name, watched(getattr(torch, name)))
    return seen


@pytest.mark.parametrize("cell_class", KNOWN)
def test_a_written_cell_is_stepped_at_once_and_trains_alike(put_on, calls, cell_class):
    expected = Training(cell_class)
    losses_as_written = expected.steps(6)
    training = Training(cell_class)
    names = list(training.model.state_dict())
    take_off = put_on()
    losses = training.steps(4)
    take_off()

    assert calls == 3 * [STEPS], "the first call is the one that is looked into"
    assert losses + training.steps(2) == pytest.approx(losses_as_written, rel=1e-4)
    assert list(training.model.state_dict()) == names
    for one, other in zip(training.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(("cell_class", "word"), LEFT)
def test_what_only_looks_like_a_cell_is_left_alone_to_the_last_bit(put_on, calls, cell_class, word):
    torch.manual_seed(2)
    expected = Training(cell_class).steps(4)
    training = Training(cell_class)
    put_on()

    assert training.steps(4) == expected
    assert calls == []
    look = LoopLook(CellFuser(torch))
    look.run(training.model, lambda: training.model(training.inputs))
    assert (look.found(), look.reasons()) == ({}, [word])


def test_a_cell_with_a_hook_is_left_alone(put_on, calls):
    training, seen = Training(Gru), []
    training.model.cell.of_input.register_forward_hook(lambda *_: seen.append(1))
    put_on()
    training.steps(3)

    assert calls == []
    assert len(seen) == 3 * STEPS


def test_a_cell_is_left_alone_in_the_mode_in_which_it_was_not_looked_into(put_on, calls):
    class Changes(Gru):
        def forward(self, x, h):
            return super().forward(x, h) if self.training else h

    training = Training(Changes)
    put_on()
    training.steps(3)
    training.model.eval()
    result = training.model(training.inputs)

    assert calls == 2 * [STEPS]
    assert torch.equal(result[0], result[-1])


def test_a_cell_that_changed_its_numbers_is_computed_step_by_step(put_on, calls):
    class Changes(Gru):
        factor = 1.0

        def forward(self, x, h):
            return super().forward(x, h) * self.factor

    training = Training(Changes)
    put_on()
    training.steps(1)
    type(training.model.cell).factor = 0.5
    training.steps(1)

    assert calls == []


def test_the_look_names_the_classes_that_torch_can_step():
    model = Training(OneLayer).model
    look = LoopLook(CellFuser(torch))
    look.run(model, lambda: model(torch.randn(ROWS, STEPS, INPUTS)))

    assert {
        owner.__name__: [type(one).__name__ for one in cells]
        for owner, cells in look.found().items()
    } == {"Own": ["OneLayer"]}
    assert look.reasons() == []
