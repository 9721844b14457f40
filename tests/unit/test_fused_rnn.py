"""The lever fused_rnn: which loops it computes together, and what it leaves alone."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.lever_switch import switching  # noqa: E402

LEVER = load("fused_rnn")
ROWS, STEPS, SIZE = 3, 7, 4


class Loop(nn.Module):
    """`act(self, x)` steps the cells over x of (rows, steps, size)."""

    def __init__(self, act, *, bias=True):
        super().__init__()
        self.cell = nn.LSTMCell(SIZE, SIZE, bias=bias)
        self.second = nn.LSTMCell(SIZE, SIZE)
        self.gru = nn.GRUCell(SIZE, SIZE, bias=bias)
        self.head = nn.Linear(SIZE, SIZE)
        self.act = act

    def forward(self, x):
        return self.act(self, x)


def zeros():
    return torch.zeros(ROWS, SIZE), torch.zeros(ROWS, SIZE)


def stacked(self, x):
    h, c = zeros()
    found = []
    for t in range(STEPS):
        h, c = self.cell(x[:, t], (h, c))
        found.append(h)
    return self.head(torch.stack(found, dim=1)) + c.mean()


def last(self, x):
    states = None
    for one in x.unbind(1):
        states = self.cell(one, states)
    return self.head(states[0]) * states[1]


def two_layers(self, x):
    first = second = zeros()
    found = []
    for t in range(STEPS):
        first = self.cell(x[:, t], first)
        second = self.second(first[0], second)
        found += [second[0]]
    return torch.cat(found, dim=-1)


def returned(self, x):
    states = None
    for one in x.unbind(1):
        states = self.cell(one, states)
    return states


def in_halves(self, x):
    h, c = zeros()
    found = []
    for t in range(STEPS + 2):
        if t == 4:
            h = h * 0.5  # what was computed so far is used here
        h, c = self.cell(x[:, t % STEPS], (h, c))
        found.append(h)
    return torch.stack(found)


TOGETHER = [(stacked, 1), (last, 1), (two_layers, 2), (returned, 1), (in_halves, 2)]


def fed_back(self, x):
    h, c = zeros()
    found = []
    for _ in range(STEPS):
        h, c = self.cell(x[:, 0] if not found else found[-1], (h, c))
        found.append(self.head(h))
    return torch.stack(found)


def keeps_cell_states(self, x):
    states, found = zeros(), []
    for one in x.unbind(1):
        states = self.cell(one, states)
        found += states
    return torch.stack(found)


def written_into_place(self, x):
    states, found = zeros(), torch.zeros(STEPS, ROWS, SIZE)
    for t, one in enumerate(x.unbind(1)):
        states = self.cell(one, states)
        found[t] = states[0]
    return found


def one_step(self, x):
    return self.cell(x[:, 0])[0]


def one_row(self, x):
    states = None
    for one in x[0]:
        states = self.cell(one, states)
    return states[0]


class Peephole(nn.LSTMCell):
    """Looks like the cell and computes something else."""

    def forward(self, x, hx):
        h, c = super().forward(x, hx)
        return h + 0.1 * c, c


def of_another_class(self, x):
    cell = self.peephole = Peephole(SIZE, SIZE) if not hasattr(self, "peephole") else self.peephole
    cell.load_state_dict(self.cell.state_dict())
    states = zeros()
    for one in x.unbind(1):
        states = cell(one, states)
    return states[0] + self.cell(x[:, 0])[0]


BY_STEPS = [fed_back, keeps_cell_states, written_into_place, one_step, one_row, of_another_class]


@pytest.fixture
def put_on():
    """Puts the lever on; what the test leaves on is taken off behind it."""
    with PlainSession(torch) as session, switching(LEVER, session) as apply:
        yield apply


@pytest.fixture
def calls(monkeypatch):
    """The calls of torch's LSTM and GRU, apart from those that are tried on some rows."""
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


class Training:
    def __init__(self, act, **options):
        torch.manual_seed(1)
        self.model = type("Own", (Loop,), {})(act, **options)
        self.inputs = torch.randn(ROWS, STEPS, SIZE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def steps(self, number):
        losses = []
        for _ in range(number):
            self.optimizer.zero_grad()
            result = self.model(self.inputs)
            assert all(
                type(one) is torch.Tensor
                for one in ([result] if torch.is_tensor(result) else result)
            )
            result = torch.stack(result) if type(result) is tuple else result
            loss = (result - 0.3).square().mean()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("act", "num_runs"), TOGETHER)
def test_a_loop_is_computed_at_once_and_trains_alike(put_on, calls, act, num_runs, bias):
    expected = Training(act, bias=bias).steps(6)
    training = Training(act, bias=bias)
    take_off = put_on()
    losses = training.steps(4)
    take_off()

    assert len(calls) == 3 * num_runs, "the first call is the one that is looked into"
    assert losses + training.steps(2) == pytest.approx(expected, rel=1e-4)
    assert len(calls) == 3 * num_runs


@pytest.mark.parametrize("act", BY_STEPS)
def test_other_loops_are_computed_step_by_step_to_the_last_bit(put_on, calls, act):
    expected = Training(act).steps(5)
    training = Training(act)
    put_on()

    assert training.steps(5) == expected
    assert calls == []


def test_a_cell_outside_of_such_a_module_is_left_alone(put_on, calls):
    put_on()
    Training(stacked).steps(2)
    h, _ = nn.LSTMCell(SIZE, SIZE)(torch.randn(ROWS, SIZE))

    assert type(h) is torch.Tensor
    assert calls == [STEPS]


def test_states_are_as_good_as_tensors(put_on):
    seen = []

    def act(self, x):
        result = stacked(self, x)
        h, c = self.cell(x[:, 0])
        seen.append([h.shape, h.size(0), h.dim(), h.dtype, (2 * h).sum().item(), str(c.detach())])
        seen[-1] += [len(h), h[0].tolist(), (h > 0).any().item(), torch.cat([h, c]).shape, -h is h]
        return result

    expected = Training(act)
    with torch.no_grad():
        expected.model(expected.inputs)
    put_on()
    training = Training(act)
    for _ in range(2):
        training.model(training.inputs)

    assert seen[0] == seen[1] == seen[2]


def test_an_input_that_was_overwritten_raises_instead_of_being_wrong(put_on):
    buffer = torch.zeros(ROWS, SIZE)

    def act(self, x):
        states = None
        for one in x.unbind(1):
            with torch.no_grad():
                buffer.copy_(one)
            states = self.cell(buffer, states)
        return states[0]

    put_on()
    training = Training(act)
    with torch.no_grad():
        training.model(training.inputs)
    training.steps(0)
    with pytest.raises(RuntimeError, match=r"changed before its result was used|inplace operation"):
        training.steps(2)


def test_nothing_is_left_at_torch_or_the_model(put_on):
    before = nn.LSTMCell.forward
    training = Training(stacked)
    take_off = put_on()
    training.steps(2)
    take_off()

    assert nn.LSTMCell.forward is before
    assert "forward" not in vars(type(training.model))


def a_gru(self, x):
    h, found = torch.zeros(ROWS, SIZE), []
    for one in x.unbind(1):
        h = self.gru(one, h)
        found.append(h)
    return self.head(torch.stack(found))


def a_gru_from_zeros(self, x):
    h = None
    for one in x.unbind(1):
        h = self.gru(one, h)
    return self.head(h)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("act", [a_gru, a_gru_from_zeros])
def test_a_loop_over_a_gru_cell_is_computed_at_once(put_on, calls, act, bias):
    expected = Training(act, bias=bias).steps(5)
    training = Training(act, bias=bias)
    put_on()

    assert training.steps(5) == pytest.approx(expected, rel=1e-4)
    assert len(calls) == 4


REASONS = [
    ({}, None),
    ({"stepped_cells": ("LSTMCell",)}, None),
    ({"stepped_cells": ()}, "No module steps a recurrent cell in a loop."),
    ({"uses_compile": True}, "The script compiles its model, steps of cells with it."),
    ({"device": "cuda"}, "It has not been tested on cuda."),
]


@pytest.mark.parametrize(("known", "reason"), REASONS)
def test_it_says_where_it_does_not_apply(known, reason):
    assert LEVER.applies(Facts(torch_version="2.9.0", **known)) == reason
