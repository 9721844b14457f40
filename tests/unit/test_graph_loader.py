"""PyG's loaders over the fused sampler: the same fields as PyG's, and no pyg-lib."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numba")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.sampler import NumNeighbors  # noqa: E402

from steptime.errors import GraphError  # noqa: E402
from steptime.graph.csc import csc_of_edges  # noqa: E402
from steptime.graph.loader import LinkNeighborLoader, NeighborLoader  # noqa: E402


def make_data(num_nodes=100, num_edges=900):
    draw = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(num_nodes, 4, generator=draw),
        y=torch.arange(num_nodes),
        edge_index=torch.randint(num_nodes, (2, num_edges), generator=draw),
        edge_attr=torch.arange(float(num_edges)),
        weight=torch.rand(num_edges, generator=draw),
        time=torch.arange(num_nodes),
    )


def make_typed():
    draw = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.randn(50, 2), torch.randn(30, 3)
    writes = torch.stack([torch.randint(num, (300,), generator=draw) for num in (50, 30)])
    data["author", "writes", "paper"].edge_index = writes
    data["paper", "of", "author"].edge_index = writes.flip(0)
    return data


@pytest.mark.parametrize(
    "options",
    [{}, {"replace": True}, {"weight_attr": "weight"}, {"disjoint": True}, {"time_attr": "time"}],
    ids=str,
)
def test_a_batch_has_the_fields_and_the_values_of_pyg(options):
    data = make_data()
    loader = NeighborLoader(
        data, [5, 3], input_nodes=torch.arange(20, 70), batch_size=16, seed=1, **options
    )

    batches = list(loader)

    assert len(batches) == len(loader) == 4
    assert torch.cat([b.input_id for b in batches]).tolist() == list(range(50))
    for batch in batches:
        assert (batch.n_id[: batch.batch_size] == 20 + batch.input_id).all()
        assert (batch.x == data.x[batch.n_id]).all()
        assert (batch.y == batch.n_id).all()
        assert (batch.edge_attr == batch.e_id).all()
        assert (data.edge_index[:, batch.e_id] == batch.n_id[batch.edge_index]).all()
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
        assert sum(batch.num_sampled_edges) == batch.num_edges
        if options.keys() & {"disjoint", "time_attr"}:
            assert batch.batch[: batch.batch_size].tolist() == list(range(batch.batch_size))
        if "time_attr" in options:
            seeds = batch.n_id[batch.batch[batch.edge_index[1]]]
            assert (batch.n_id[batch.edge_index[0]] <= seeds).all()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_threads_give_the_batches_of_none(num_workers):
    data, options = make_data(), {"batch_size": 8, "seed": 3}
    alone = NeighborLoader(data, [4, 4], **options)
    beside = NeighborLoader(data, [4, 4], num_workers=num_workers, **options)

    for _ in range(2):
        for one, other in zip(alone, beside, strict=True):
            assert (one.n_id == other.n_id).all()
            assert (one.e_id == other.e_id).all()
    first, second = next(iter(alone)), next(iter(alone))
    assert first.e_id.tolist() != second.e_id.tolist()


def test_torchs_own_seed_decides_where_none_is_given():
    def edges():
        torch.manual_seed(5)
        loader = NeighborLoader(make_data(), [4], batch_size=50, shuffle=True)
        return [batch.e_id.tolist() for batch in loader]

    assert edges() == edges()


def shuffled_inputs(kind, **options):
    torch.rand(1)  # what torch's own state is plays no part
    inputs = torch.randint(100, (2, 40), generator=torch.Generator().manual_seed(1))
    what = {"edge_label_index": inputs} if kind is LinkNeighborLoader else {}
    loader = kind(make_data(), [4], batch_size=8, shuffle=True, seed=3, **what, **options)
    return [[one.input_id.tolist() for one in loader] for _ in range(2)]


@pytest.mark.parametrize("kind", [NeighborLoader, LinkNeighborLoader])
def test_the_order_of_an_epoch_depends_on_the_seed_too_unless_a_generator_is_given(kind):
    first, second = shuffled_inputs(kind)

    assert shuffled_inputs(kind, num_workers=2) == [first, second]
    assert first != second
    own = torch.Generator().manual_seed(7)
    assert shuffled_inputs(kind, generator=own) != [first, second]


def test_types_are_sampled_by_relation():
    data = make_typed()

    batch = next(iter(NeighborLoader(data, [4, 4], ("author", torch.arange(20)), batch_size=8)))

    assert batch["author"].batch_size == 8
    assert batch["author"].n_id[:8].tolist() == list(range(8))
    for kind in data.edge_types:
        ends = data[kind].edge_index[:, batch[kind].e_id]
        local = batch[kind].edge_index
        assert (ends[0] == batch[kind[0]].n_id[local[0]]).all()
        assert (ends[1] == batch[kind[2]].n_id[local[1]]).all()
    assert (batch["paper"].x == data["paper"].x[batch["paper"].n_id]).all()


def test_fan_outs_may_differ_by_type_with_a_default():
    data, ends = make_typed(), ("author", torch.arange(20))
    first, *others = data.edge_types
    hops = {first: [2, 1]} | {key: [3, 3] for key in others}

    by_dict = next(iter(NeighborLoader(data, hops, ends, seed=1)))
    by_default = next(
        iter(NeighborLoader(data, NumNeighbors({first: [2, 1]}, [3, 3]), ends, seed=1))
    )

    assert by_dict[first].e_id.tolist() == by_default[first].e_id.tolist()
    for kind in data.edge_types:
        assert by_dict[kind].e_id.numel() <= 20 * hops[kind][0] * (1 + 20 * hops[kind][1])
    with pytest.raises(GraphError, match="Missing number of neighbors"):
        NeighborLoader(data, {first: [2, 1]}, ends)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_of_any_float_type_and_with_gradients_can_be_sampled_by(kind):
    data = make_data()
    data.chance = (data.edge_index[0] % 2).to(kind).requires_grad_()

    batch = next(iter(NeighborLoader(data, [3], batch_size=20, weight_attr="chance")))

    assert (batch.n_id[batch.edge_index[0]] % 2 == 1).all()


def test_both_directions_are_there_where_asked_for():
    batch = next(
        iter(NeighborLoader(make_data(), [2], batch_size=9, subgraph_type="bidirectional"))
    )

    pairs = set(zip(*batch.edge_index.tolist(), strict=True))
    assert pairs == {(target, source) for source, target in pairs}


@pytest.mark.parametrize("kind", ["binary", "triplet"])
def test_links_come_with_negatives_that_depend_on_the_key_alone(kind):
    data = make_data()

    def first(num_workers):
        loader = LinkNeighborLoader(
            data, [3], batch_size=8, neg_sampling=kind, num_workers=num_workers, seed=4
        )
        return next(iter(loader))

    one, other = first(0), first(2)
    if kind == "binary":
        ends = one.n_id[one.edge_label_index]
        assert one.edge_label.tolist() == [1.0] * 8 + [0.0] * 8
        assert (ends[:, :8] == data.edge_index[:, :8]).all()
        assert (ends == other.n_id[other.edge_label_index]).all()
    else:
        assert (one.n_id[one.dst_pos_index] == data.edge_index[1, :8]).all()
        assert (one.n_id[one.dst_neg_index] == other.n_id[other.dst_neg_index]).all()


def test_links_of_types_and_times():
    typed = LinkNeighborLoader(
        make_typed(), [4], ("author", "writes", "paper"), batch_size=8, neg_sampling="binary"
    )
    data = make_data()
    timed = LinkNeighborLoader(
        data, [4], batch_size=4, time_attr="time",
        edge_label_index=data.edge_index[:, :40], edge_label_time=torch.full((40,), 60),
    )  # fmt: skip

    relation = ("author", "writes", "paper")
    assert next(iter(typed))[relation].edge_label_index.shape == (2, 16)
    batch = next(iter(timed))
    assert (batch.time[batch.edge_index[0]] <= 60).all()


def test_a_ready_graph_needs_no_edges_in_the_data():
    data = make_data()
    graph = csc_of_edges(*data.edge_index, num_nodes=100)
    bare = Data(x=data.x)

    batch = next(iter(NeighborLoader(bare, [5], batch_size=10, graph=graph, device="cpu")))

    assert (data.edge_index[:, batch.e_id] == batch.n_id[batch.edge_index]).all()
    assert (batch.x == data.x[batch.n_id]).all()


def test_a_failure_in_a_thread_ends_the_epoch_with_a_message():
    def fail(batch):
        if batch.input_id[0] == 16:
            raise RuntimeError("no such feature")
        return batch

    for num_workers in (0, 2):
        loader = NeighborLoader(
            make_data(), [3], batch_size=8, transform=fail, num_workers=num_workers
        )
        seen = []
        with pytest.raises(RuntimeError if not num_workers else GraphError) as caught:
            seen.extend(loader)
        assert len(seen) == 0 or len(seen) == 2
        assert "no such feature" in str(caught.value)
        assert not num_workers or "Batch 2 of epoch 0" in str(caught.value)
    assert next(iter(loader)).batch_size == 8  # The next epoch begins all the same.


def test_a_batch_that_takes_too_long_ends_the_epoch():
    import threading

    let_go = threading.Event()

    def wait(batch):
        let_go.wait(30)
        return batch

    loader = NeighborLoader(
        make_data(), [3], batch_size=50, transform=wait, num_workers=1, timeout=0.05
    )
    with pytest.raises(GraphError, match=r"took longer than 0\.05 s"):
        next(iter(loader))
    let_go.set()


def test_an_epoch_that_is_left_early_leaves_its_samplers():
    loader = NeighborLoader(make_data(), [3], batch_size=5, num_workers=2)
    for _ in range(5):
        next(iter(loader))

    assert len(list(loader)) == 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subgraph_type": "induced"}, "must be directional or bidirectional"),
        ({"temporal_strategy": "first"}, "'uniform' or 'last'"),
        ({"directed": False}, "directed=False is not supported"),
        ({"weight_attr": "nothing"}, "no 'nothing'"),
        ({"time_attr": "nothing"}, "no 'nothing'"),
        ({"input_time": torch.arange(100)}, "time_attr is not"),
        ({"num_workers": -1}, "at least 0"),
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_is_refused(options, words):
    with pytest.raises(GraphError, match=words):
        NeighborLoader(make_data(), [3], **options)


def test_data_without_edges_and_links_without_times_are_refused():
    with pytest.raises(GraphError, match="no `edge_index`"):
        NeighborLoader(Data(x=torch.randn(3, 2)), [3])
    with pytest.raises(GraphError, match="pass PyG's Data"):
        NeighborLoader((1, 2), [3])
    for fanouts in (3, [2.5]):
        with pytest.raises(GraphError, match="a list of whole numbers, one for each hop"):
            NeighborLoader(make_data(), fanouts)
    with pytest.raises(GraphError, match="belong together"):
        LinkNeighborLoader(make_data(), [3], time_attr="time")


def test_arguments_about_processes_are_said_to_do_nothing():
    with pytest.warns(UserWarning, match="persistent_workers has no effect"):
        NeighborLoader(make_data(), [3], num_workers=1, persistent_workers=True)
