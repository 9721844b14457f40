"""The lever `fused_sampling`: PyG's own loaders, sampled by ours, with the same distribution."""

import dataclasses
import os
import signal

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numba")
pytest.importorskip("torch_geometric")
stats = pytest.importorskip("scipy.stats")

from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader  # noqa: E402
from torch_geometric.sampler import NeighborSampler  # noqa: E402

from steptime.levers import load  # noqa: E402
from steptime.levers.examples import CPU  # noqa: E402
from steptime.levers.input.neighbor_sampling import sampling_of  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without")
LEVER = load("fused_sampling")


@pytest.fixture
def lever():
    undo = LEVER.apply({}, PlainSession(torch))
    yield undo
    undo()


def make_data(num_nodes=100, num_edges=900):
    draw = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(num_nodes, 4, generator=draw),
        edge_index=torch.randint(num_nodes, (2, num_edges), generator=draw),
        time=torch.arange(num_nodes),
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"disjoint": True},
        {"time_attr": "time"},
        {"num_workers": 1, "multiprocessing_context": "fork"},
    ],
    ids=str,
)
def test_an_epoch_of_pygs_own_loader_has_each_seed_once_and_true_edges(lever, options):
    data = make_data()
    loader = NeighborLoader(data, [5, 3], batch_size=16, shuffle=True, **options)

    batches = list(loader)

    assert sorted(torch.cat([b.input_id for b in batches]).tolist()) == list(range(100))
    for batch in batches:
        assert (data.edge_index[:, batch.e_id] == batch.n_id[batch.edge_index]).all()
        assert (batch.x == data.x[batch.n_id]).all()
        assert (batch.n_id[: batch.batch_size] == batch.input_id).all()
        assert batch.e_id.unique().numel() == batch.e_id.numel() or batch.batch is not None


def test_its_picks_have_the_distribution_of_picks_without_replacement(lever):
    sources = torch.arange(1, 13)
    star = Data(edge_index=torch.stack([sources, torch.zeros_like(sources)]), num_nodes=13)
    loader = NeighborLoader(star, [3], input_nodes=torch.zeros(4000, dtype=torch.long))
    torch.manual_seed(0)

    counts = np.zeros(13, np.int64)
    for batch in loader:
        picked = batch.n_id[batch.edge_index[0]]
        assert picked.unique().numel() == 3
        counts += np.bincount(picked, minlength=13)

    # Picks of one batch exclude each other: less varies than in independent draws, by 9 of 11.
    statistic = stats.chisquare(counts[1:]).statistic / (9 / 11)
    assert 0.01 < stats.chi2.sf(statistic, 11) < 0.9999


def test_links_and_types_are_sampled_too(lever):
    typed = HeteroData()
    typed["a"].x, typed["b"].x = torch.randn(20, 2), torch.randn(10, 2)
    typed["a", "to", "b"].edge_index = torch.stack(
        [torch.randint(20, (80,)), torch.randint(10, (80,))]
    )
    loader = LinkNeighborLoader(
        typed, [4, 4], ("a", "to", "b"), batch_size=10, neg_sampling_ratio=1.0
    )

    batch = next(iter(loader))

    ends = typed["a", "to", "b"].edge_index[:, batch["a", "to", "b"].e_id]
    local = batch["a", "to", "b"].edge_index
    assert (ends[0] == batch["a"].n_id[local[0]]).all()
    assert (ends[1] == batch["b"].n_id[local[1]]).all()


def test_taken_back_pyg_samples_by_itself_again():
    before = NeighborSampler._sample
    undo = LEVER.apply({}, PlainSession(torch))
    assert NeighborSampler._sample is not before
    undo()

    assert NeighborSampler._sample is before


def test_a_loader_says_how_it_samples():
    data = make_data()

    assert sampling_of(NeighborLoader(data, [3])) == "fusable"
    assert sampling_of(NeighborLoader(data, [3], subgraph_type="induced")) == "induced"
    assert sampling_of(torch.utils.data.DataLoader([1])) == ""


def test_what_is_not_fused_is_left_to_pyg(lever):
    loader = NeighborLoader(make_data(), [3], subgraph_type="induced")

    with pytest.raises(ImportError, match="requires either 'pyg-lib'"):
        next(iter(loader))


def test_without_the_extra_it_says_what_to_install():
    loader = dataclasses.replace(CPU.loaders[0], neighbor_sampling="fusable")
    facts = dataclasses.replace(CPU, loaders=(loader,), has_numba=False)

    assert "steptime[graph]" in LEVER.applies(facts)


def test_a_killed_worker_ends_the_epoch_with_a_message(lever):
    def die(batch):
        os.kill(os.getpid(), signal.SIGKILL)

    loader = NeighborLoader(
        make_data(),
        [3],
        batch_size=16,
        num_workers=1,
        multiprocessing_context="fork",
        transform=die,
    )

    with pytest.raises(RuntimeError, match=r"worker.*(killed by signal|exited unexpectedly)"):
        list(loader)
