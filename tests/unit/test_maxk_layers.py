"""MaxK's convolutions: those of PyG on the input of which k entries are kept."""

import pytest

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # CSR is a beta of torch's

from steptime.graph.maxk import maxk  # noqa: E402
from steptime.graph.maxk_layers import MaxKGCNConv, MaxKGINConv, MaxKSAGEConv  # noqa: E402

NUM_NODES = 40


def make_edges(seed=0):
    """With a few loops, edges twice, and nodes without any."""
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, NUM_NODES - 4, (2, 150), generator=draw)
    edges[:, :3] = edges[0, :3]
    return edges


def make_x(width=24):
    return torch.randn(NUM_NODES, width, dtype=torch.float64).requires_grad_()


def check(ours, theirs, x, *arguments, k=5):
    """The same result and derivatives, from the same parameters."""
    ours.load_state_dict(theirs.state_dict())
    ours.double(), theirs.double()
    a, b = ours(x, *arguments), theirs(maxk(x, k), *arguments)

    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    of_a = torch.autograd.grad(a.square().sum(), [x, *ours.parameters()])
    of_b = torch.autograd.grad(b.square().sum(), [x, *theirs.parameters()])
    for one, other in zip(of_a, of_b, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("k", [5, 24])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"improved": True, "bias": False},
        {"add_self_loops": False},
        {"normalize": False},
        {"cached": True},
    ],
)
def test_gcn_is_that_of_pyg_on_the_kept_entries(options, k):
    ours = MaxKGCNConv(24, 7, k=k, **options)
    check(ours, geometric.GCNConv(24, 7, **options), make_x(), make_edges(), k=k)


def test_gcn_with_weights_passes_their_derivative():
    ours, theirs = MaxKGCNConv(24, 7, k=5), geometric.GCNConv(24, 7)
    ours.load_state_dict(theirs.state_dict())
    x, edges = make_x(), make_edges()
    weight = torch.rand(150, dtype=torch.float64, requires_grad=True)
    a = ours.double()(x, edges, weight)
    b = theirs.double()(maxk(x, 5), edges, weight)

    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    of_a, of_b = (torch.autograd.grad(y.square().sum(), (x, weight)) for y in (a, b))
    torch.testing.assert_close(of_a, of_b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [{}, {"aggr": "sum"}, {"normalize": True}, {"root_weight": False, "bias": False}],
)
def test_sage_is_that_of_pyg_on_the_kept_entries(options):
    ours = MaxKSAGEConv(24, 7, k=5, **options)
    check(ours, geometric.SAGEConv(24, 7, **options), make_x(), make_edges())


@pytest.mark.parametrize("train_eps", [True, False])
def test_gin_is_that_of_pyg_on_the_kept_entries(train_eps):
    ours = MaxKGINConv(torch.nn.Linear(24, 7), 0.3, train_eps=train_eps, k=5)
    theirs = geometric.GINConv(torch.nn.Linear(24, 7), 0.3, train_eps=train_eps)
    check(ours, theirs, make_x(), make_edges())


def test_a_sparse_adjacency_is_the_edge_index_that_it_holds():
    edges, x = make_edges().unique(dim=1), make_x()
    values = torch.rand(edges.shape[1], dtype=torch.float64)
    size = (NUM_NODES, NUM_NODES)
    adj_t = torch.sparse_coo_tensor(edges.flip(0), values, size, check_invariants=True)
    gcn = MaxKGCNConv(24, 7, k=5).double()
    sage = MaxKSAGEConv(24, 7, k=5).double()

    theirs = geometric.GCNConv(24, 7).double()
    gcn.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(gcn(x, adj_t), theirs(maxk(x, 5), adj_t.to_sparse_csr()))
    torch.testing.assert_close(gcn(x, adj_t.to_sparse_csr()), gcn(x, adj_t))
    torch.testing.assert_close(sage(x, adj_t), sage(x, edges))


def test_sources_and_targets_may_be_different_nodes():
    edges = make_edges()
    edges[1] %= 10
    sources = make_x()
    ours, theirs = MaxKSAGEConv((24, 9), 7, k=5), geometric.SAGEConv((24, 9), 7)
    ours.load_state_dict(theirs.state_dict())
    targets = torch.randn(10, 9, dtype=torch.float64)
    a = ours.double()((sources, targets), edges)
    b = theirs.double()((maxk(sources, 5), maxk(targets, 5)), edges)

    torch.testing.assert_close(a, b)
    with pytest.raises(ValueError, match="size="):
        ours((sources, None), edges)


def test_a_network_learns_under_autocast():
    torch.manual_seed(0)
    edges, x = make_edges(), torch.randn(NUM_NODES, 24)
    y = torch.randint(0, 2, (NUM_NODES,))
    first, last = MaxKGCNConv(24, 32, k=5), MaxKGCNConv(32, 2, k=8)
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=0.03)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(last(first(x, edges), edges), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MaxKGCNConv(8, 4, k=9), "1 to the width 8, got 9"),
        (lambda: MaxKSAGEConv(8, 4, k=0), "1 to the width 8, got 0"),
        (lambda: MaxKSAGEConv(8, 4, k=2, aggr="max"), "'mean', 'sum' or 'add', got 'max'"),
        (lambda: MaxKSAGEConv(8, 4, k=2, project=True), "put a Linear"),
        (lambda: MaxKGCNConv(8, 4, k=2, normalize=False, add_self_loops=True), "normalize=True"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_graph_elsewhere_or_of_another_kind_is_refused():
    layer = MaxKGCNConv(8, 4, k=2)
    x = torch.randn(3, 8)

    with pytest.raises(ValueError, match="the rows lie on cpu and the graph on meta"):
        layer(x, torch.zeros(2, 4, dtype=torch.int64, device="meta"))
    with pytest.raises(ValueError, match="two rows of ids"):
        layer(x, torch.zeros(3, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="holds its weights itself"):
        layer(x, torch.eye(3).to_sparse(), torch.ones(3))
