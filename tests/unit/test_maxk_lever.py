"""The lever `maxk`: PyG's hidden convolutions on the k largest entries of each row."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numba")
pyg = pytest.importorskip("torch_geometric.nn")

from steptime.graph.maxk import maxk  # noqa: E402
from steptime.levers import load  # noqa: E402
from steptime.levers.kernels.graph_convolutions import widths_in  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("maxk")
K = 16
EDGES = torch.randint(40, (2, 300), generator=torch.Generator().manual_seed(0))
X = torch.randn(40, 60, generator=torch.Generator().manual_seed(1))


def gin(width, out):
    return pyg.GINConv(torch.nn.Sequential(torch.nn.Linear(width, out)), train_eps=True)


class Net(torch.nn.Module):
    def __init__(self, kind, width=64):
        super().__init__()
        self.first, self.second = kind(60, width), kind(width, 8)

    def forward(self, x):
        return self.second(self.first(x, EDGES), EDGES)


def trained(net):
    net.zero_grad()
    out = net(X)
    out.square().sum().backward()
    return out.detach(), [p.grad.clone() for p in net.parameters()]


KINDS = [pyg.GCNConv, pyg.SAGEConv, gin]


@pytest.mark.parametrize("kind", KINDS, ids=["gcn", "sage", "gin"])
def test_hidden_rows_are_cut_to_k_and_the_data_stay_whole(kind):
    torch.manual_seed(0)
    net = Net(kind)
    state = torch.get_rng_state()
    undo = LEVER.apply({"kept": K}, PlainSession(torch))
    try:
        out, gradients = trained(net)
        net.eval()
        with torch.no_grad():
            torch.testing.assert_close(net(X), out)
    finally:
        undo()
    assert torch.equal(state, torch.get_rng_state())

    hidden = net.first(X, EDGES)
    expected = net.second(maxk(hidden, K), EDGES)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    net.zero_grad()
    expected.square().sum().backward()
    for found, parameter in zip(gradients, net.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(net(X), net.second(net.first(X, EDGES), EDGES))  # taken back


def test_before_a_layer_was_trained_and_where_rows_are_narrow_it_is_pygs():
    untrained, narrow = Net(pyg.GCNConv), Net(pyg.GCNConv, width=3 * K - 1)
    with torch.no_grad():
        expected = untrained(X), narrow(X)

    undo = LEVER.apply({"kept": K}, PlainSession(torch))
    try:
        out, _ = trained(narrow)
        with torch.no_grad():
            assert torch.equal(untrained(X), expected[0])
    finally:
        undo()
    assert torch.equal(out, expected[1])


def test_convolutions_that_sum_or_average_are_found_with_their_widths():
    gat, largest = pyg.GATConv(4, 4), pyg.SAGEConv(4, 4, aggr="max")

    assert widths_in([Net(pyg.GCNConv), torch.nn.Linear(3, 3), gat, largest]) == [60, 64]
    assert widths_in([gin(7, 3), pyg.SAGEConv((9, 5), 4)]) == [7, 5]
