"""MaxK: the kept entries, the products with a graph and their derivatives, in each build."""

import logging

import pytest

torch = pytest.importorskip("torch")

from steptime.graph import maxk_build, maxk_paths  # noqa: E402
from steptime.graph.adjacency import Adjacency, adjacency_of  # noqa: E402
from steptime.graph.maxk import CBSR, aggregate, compress, maxk  # noqa: E402
from steptime.graph.maxk_torch import TorchKernels  # noqa: E402

CPU = torch.device("cpu")


def runs_here(path):
    try:
        maxk_paths.kernels_for(CPU, path)
    except ValueError:
        return False
    return True


each_path = pytest.mark.parametrize("path", ["portable", "avx2", "avx512", "torch"])


@pytest.fixture(autouse=True)
def _path_that_runs(request):
    path = request.node.callspec.params.get("path") if hasattr(request.node, "callspec") else None
    if path is not None and not runs_here(path):
        pytest.skip(f"no {path} on this machine")


def make_graph(num_rows=37, num_cols=29, num_edges=300, seed=0):
    """Some rows are empty, some edges stand twice."""
    draw = torch.Generator().manual_seed(seed)
    target = torch.randint(0, num_rows - 5, (num_edges,), generator=draw)
    source = torch.randint(0, num_cols, (num_edges,), generator=draw)
    return Adjacency.from_edge_index(torch.stack([source, target]), num_rows, num_cols)


def dense_of(graph, weight):
    dense = torch.zeros(graph.num_rows, graph.num_cols, dtype=weight.dtype)
    return dense.index_put((graph.rows(), graph.indices.long()), weight, accumulate=True)


def masked(x, k):
    """What MaxK is by definition: of equal entries, the first are kept."""
    kept = torch.sort(x, dim=1, descending=True, stable=True).indices[:, :k]
    return x * torch.zeros_like(x).scatter_(1, kept, 1.0)


# --- selection ------------------------------------------------------------------------


@each_path
@pytest.mark.parametrize("width", [1, 7, 16, 40, 256, 300])
def test_the_k_largest_entries_are_kept_whatever_the_width(path, width):
    x = torch.randn(70, width, generator=torch.Generator().manual_seed(width))
    for k in {1, width // 3 + 1, width}:
        assert torch.equal(maxk(x, k, path=path), masked(x, k))


@each_path
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_of_equal_entries_the_first_are_kept(path, dtype):
    draw = torch.Generator().manual_seed(1)
    x = torch.randint(-2, 3, (200, 50), generator=draw).to(dtype)
    x[3] = 0.0

    rows = compress(x, 20, path=path)

    assert torch.equal(rows.dense(path=path), masked(x, 20))
    assert (rows.idx.long().diff(dim=1) > 0).all()
    assert rows.idx[3].tolist() == list(range(20))


@each_path
def test_infinities_and_the_least_numbers_are_ordered(path):
    x = torch.tensor([[-torch.inf, 1e-45, torch.inf, -1e-45, 3e38, -3e38, torch.inf, -torch.inf]])

    assert compress(x, 4, path=path).idx.tolist() == [[1, 2, 4, 6]]
    assert compress(x, 8, path=path).val.tolist() == x.tolist()


@each_path
def test_nan_is_refused_with_its_row(path):
    x = torch.randn(300, 20)
    x[211, 19] = -torch.nan

    with pytest.raises(ValueError, match="NaN values, and row 211 holds one"):
        maxk(x, 3, path=path)


@pytest.mark.parametrize(
    ("k", "words"), [(0, "at least 1"), (9, "at most the width 8, got 9"), (2.0, "an integer")]
)
def test_k_fits_the_width(k, words):
    with pytest.raises(ValueError, match=words):
        maxk(torch.randn(3, 8), k)


def test_other_types_are_refused():
    with pytest.raises(ValueError, match="float32, bfloat16 or float64"):
        maxk(torch.ones(3, 8, dtype=torch.int64), 2)


def test_the_activation_takes_any_shape_and_no_rows():
    x = torch.randn(2, 3, 8)

    assert torch.equal(maxk(x, 2)[1], masked(x[1], 2))
    assert torch.equal(maxk(x.transpose(1, 2), 2)[0], masked(x[0].T, 2))
    assert maxk(torch.randn(8), 2).count_nonzero() == 2
    assert maxk(torch.randn(0, 8), 2).shape == (0, 8)


def test_the_activation_passes_the_derivative_of_kept_entries():
    x = torch.randn(9, 8, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(lambda x: maxk(x, 3), (x,))


# --- products -------------------------------------------------------------------------


@each_path
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize(("width", "k"), [(20, 4), (256, 64), (256, 20), (300, 70), (40, 40)])
def test_a_product_and_its_derivatives_are_those_of_the_dense_mask(path, dtype, atol, width, k):
    draw = torch.Generator().manual_seed(2)
    graph = make_graph()
    x = torch.randn(29, width, dtype=dtype, generator=draw).requires_grad_()
    weight = torch.rand(300, dtype=dtype, generator=draw).requires_grad_()
    dy = torch.randn(37, width, dtype=dtype, generator=draw)

    ours = aggregate(graph, compress(x, k, path=path), weight, path=path)
    of_ours = torch.autograd.grad(ours, (x, weight), dy)
    theirs = torch.sparse.mm(dense_of(graph, weight).to_sparse(), masked(x, k))
    of_theirs = torch.autograd.grad(theirs, (x, weight), dy)

    torch.testing.assert_close(ours, theirs, rtol=atol, atol=atol)
    for a, b in zip(of_ours, of_theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=atol, atol=atol)
    assert not ours[-5:].any(), "rows without an edge are zeros"


@each_path
@pytest.mark.parametrize(("width", "k"), [(40, 6), (256, 70)])
def test_sums_of_bfloat16_are_taken_in_float32(path, width, k):
    graph = make_graph()
    x = torch.randn(29, width).bfloat16().requires_grad_()
    wide = x.detach().float().requires_grad_()
    weight = torch.rand(300).bfloat16()

    ours = aggregate(graph, compress(x, k, path=path), weight, path=path)
    theirs = aggregate(graph, compress(wide, k, path="torch"), weight.float(), path="torch")
    of_ours = torch.autograd.grad(ours.sum(), x)[0]
    of_theirs = torch.autograd.grad(theirs.sum(), wide)[0]

    assert ours.dtype == of_ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), theirs, rtol=0.01, atol=0.01)
    torch.testing.assert_close(of_ours.float(), of_theirs, rtol=0.01, atol=0.01)


@each_path
@pytest.mark.parametrize("k", [2, 9])
def test_first_derivatives_are_exact(path, k):
    graph = make_graph(9, 8, 30)
    x = torch.randn(8, 9, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(30, dtype=torch.float64, requires_grad=True)

    def product(x, weight):
        return aggregate(graph, compress(x, k, path=path), weight, path=path)

    assert torch.autograd.gradcheck(product, (x, weight))


@pytest.mark.parametrize("path", ["portable", "avx512"])
@pytest.mark.parametrize("k", [16, 70])
def test_the_bits_do_not_depend_on_the_number_of_threads(path, k):
    graph = make_graph(600, 500, 9000)
    x = torch.randn(500, 256, requires_grad=True)
    found = []
    before = torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        y = aggregate(graph, compress(x, k, path=path), path=path)
        found.append((y, torch.autograd.grad(y.square().sum(), x)[0]))
    torch.set_num_threads(before)

    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_above_a_third_of_the_width_the_product_is_dense(monkeypatch):
    graph, x = make_graph(), torch.randn(29, 30)
    calls = []
    dense = Adjacency.product
    monkeypatch.setattr(Adjacency, "product", lambda *a: calls.append(1) or dense(*a))

    aggregate(graph, compress(x, 10))
    assert not calls
    aggregate(graph, compress(x, 11))
    assert calls


def test_a_graph_without_edges_gives_zeros():
    graph = Adjacency.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 4, 3)
    for k in (1, 5):
        x = torch.randn(3, 5, requires_grad=True)
        y = aggregate(graph, compress(x, k))

        assert torch.equal(y, torch.zeros(4, 5))
        assert not torch.autograd.grad(y.sum(), x)[0].any()


# --- the graph ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indptr", "indices", "words"),
    [
        ([0, 2, 1, 3], [0, 1, 2], "never falls, and it goes from 2 to 1 at row 1"),
        ([0, 1, 2], [0, 1, 2], r"ends at the number of edges \(3\)"),
        ([1, 2, 3], [0, 1, 2], "begins at 0"),
        ([0, 1, 3], [0, 1, 4], "columns are 0 to 3, got 0 to 4"),
        ([0, 1, 3], [0, -1, 2], "columns are 0 to 3, got -1 to 2"),
        ([0.0, 3.0], [0, 1, 2], "ids are integers"),
        ([], [], "one row of integers each"),
    ],
)
def test_what_is_no_graph_is_refused(indptr, indices, words):
    with pytest.raises(ValueError, match=words):
        Adjacency(torch.tensor(indptr), torch.tensor(indices), 4)


def test_edges_end_at_nodes_of_the_graph():
    with pytest.raises(ValueError, match="nodes 0 to 2"):
        Adjacency.from_edge_index(torch.tensor([[0], [3]]), 3, 3)


def test_sizes_and_devices_fit():
    graph, rows = make_graph(), compress(torch.randn(29, 8), 2)
    elsewhere = CBSR(val=rows.val.to("meta"), idx=rows.idx.to("meta"), width=8)

    with pytest.raises(ValueError, match="29 columns, and there are 28 rows"):
        aggregate(graph, compress(torch.randn(28, 8), 2))
    with pytest.raises(ValueError, match="one weight an edge"):
        aggregate(graph, rows, torch.ones(3))
    with pytest.raises(ValueError, match="the rows lie on meta and the graph on cpu"):
        aggregate(graph, elsewhere)


def test_a_graph_is_made_again_only_when_its_edges_change():
    edges = torch.tensor([[0, 1], [1, 0]])
    first = adjacency_of(edges, 2, 2)

    assert adjacency_of(edges, 2, 2) is first
    edges[0, 0] = 1
    assert adjacency_of(edges, 2, 2) is not first


# --- which build ----------------------------------------------------------------------


def test_an_unknown_path_is_refused():
    with pytest.raises(ValueError, match="one of portable, avx2"):
        maxk(torch.randn(2, 4), 1, path="sse")


def test_a_path_is_forced_from_outside(monkeypatch):
    monkeypatch.setenv("STEPTIME_MAXK_PATH", "torch")

    assert isinstance(maxk_paths.kernels_for(CPU), TorchKernels)


def test_without_a_compiler_torch_takes_over_and_it_is_said(monkeypatch, tmp_path, caplog):
    def no_compiler(built):
        raise RuntimeError("Ninja is required")

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(maxk_build, "_build", no_compiler)
    maxk_build.load_library.cache_clear()
    with caplog.at_level(logging.WARNING):
        kernels = maxk_paths.kernels_for(CPU)
        with pytest.raises(ValueError, match="could not be built"):
            maxk_paths.kernels_for(CPU, "avx2")
    maxk_build.load_library.cache_clear()

    assert isinstance(kernels, TorchKernels)
    assert "Ninja is required" in caplog.text
    assert str(tmp_path) in caplog.text


def test_a_folder_that_cannot_be_written_is_no_compiler(monkeypatch, tmp_path):
    (tmp_path / "steptime").write_text("in the way")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    maxk_build.load_library.cache_clear()
    found = maxk_build.load_library()
    maxk_build.load_library.cache_clear()

    assert found is None
