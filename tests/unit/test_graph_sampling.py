"""Fused sampling: what is picked, how it is numbered, and what is refused."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba")
stats = pytest.importorskip("scipy.stats")

from steptime.errors import GraphError  # noqa: E402
from steptime.graph.csc import Csc, csc_of_edges, open_csc  # noqa: E402
from steptime.graph.sample import FusedSampler, key_of  # noqa: E402
from steptime.graph.sampled import EDGE, NODE  # noqa: E402
from steptime.graph.sampling_kernels import mix  # noqa: E402


def random_edges(num_nodes=60, num_edges=600, seed=0):
    draw = np.random.default_rng(seed)
    return draw.integers(num_nodes, size=(2, num_edges))


def make_graph(num_nodes=60, num_edges=600, **parts):
    sources, targets = random_edges(num_nodes, num_edges)
    return csc_of_edges(sources, targets, num_nodes=num_nodes, **parts)


def star(num_neighbors, **parts):
    """Return a graph whose node 0 has all others as its neighbors."""
    sources = np.arange(1, num_neighbors + 1)
    return csc_of_edges(sources, np.zeros_like(sources), num_nodes=num_neighbors + 1, **parts)


def counts_of_picks(sampler, num_batches):
    num = sampler.num_nodes[NODE]
    counts = np.zeros(num, np.int64)
    for batch in range(num_batches):
        out = sampler.sample(np.array([0]), batch=batch)
        counts += np.bincount(out.nodes[NODE][out.rows[EDGE]], minlength=num)
    return counts[1:]


def plain_neighborhood(sources, targets, seeds, hops):
    """Return nodes in the order of discovery and all edges, slowly: every neighbor is taken."""
    nodes, edges, begin = list(seeds), [], 0
    for _ in range(hops):
        end = len(nodes)
        for node in nodes[begin:end]:
            for edge in np.flatnonzero(targets == node):
                edges.append(edge)
                if sources[edge] not in nodes:
                    nodes.append(int(sources[edge]))
        begin = end
    return nodes, edges


def test_all_neighbors_are_those_of_a_slow_search():
    sources, targets = random_edges()
    sampler = FusedSampler(make_graph(), [-1, -1])

    out = sampler.sample(np.array([3, 17, 5]))

    nodes, edges = plain_neighborhood(sources, targets, [3, 17, 5], 2)
    assert out.nodes[NODE].tolist() == nodes
    assert out.edges[EDGE].tolist() == edges
    assert out.num_nodes[NODE][0] == 3
    assert sum(out.num_nodes[NODE]) == len(nodes)
    assert sum(out.num_edges[EDGE]) == len(edges)


@pytest.mark.parametrize("fanout", [4, 40])
@pytest.mark.parametrize("ids", [np.int32, np.int64])
def test_picks_are_distinct_edges_into_their_node(fanout, ids):
    sources, targets = random_edges(20, 2000)
    graph = csc_of_edges(sources, targets, num_nodes=20)
    graph = Csc(indptr=graph.indptr, indices=graph.indices.astype(ids), edge_ids=graph.edge_ids)
    sampler = FusedSampler(graph, [fanout, fanout])

    out = sampler.sample(np.arange(8))

    nodes, edges = out.nodes[NODE], out.edges[EDGE]
    assert len(set(edges)) == len(edges)
    assert (sources[edges] == nodes[out.rows[EDGE]]).all()
    assert (targets[edges] == nodes[out.columns[EDGE]]).all()
    degrees = np.bincount(targets, minlength=20)
    assert out.num_edges[EDGE][0] == np.minimum(degrees[:8], fanout).sum()


def test_the_map_is_empty_again_after_each_batch_and_takes_4_bytes_a_node():
    sampler = FusedSampler(make_graph(), [5, 5])

    sampler.sample(np.arange(10))
    with pytest.raises(GraphError):
        sampler.sample(np.array([60]))

    assert (sampler._numbers[NODE] == -1).all()
    assert sampler.num_bytes == 4 * 60


@pytest.mark.parametrize(("fanout", "num"), [(5, 40), (40, 120)])
def test_each_neighbor_is_as_likely(fanout, num):
    counts = counts_of_picks(FusedSampler(star(num), [fanout], seed=3), 100_000 // fanout)

    assert counts.sum() >= 99_000
    assert stats.chisquare(counts).pvalue > 0.01


def test_a_million_picks_of_many_nodes_are_uniform():
    num, width = 4000, 20
    targets = np.repeat(np.arange(num), width)
    sources = np.tile(np.arange(width), num)
    graph = csc_of_edges(sources, targets, num_nodes=num)
    sampler = FusedSampler(graph, [5], seed=1)
    counts = np.zeros(num * width, np.int64)
    for batch in range(50):
        counts += np.bincount(
            sampler.sample(np.arange(num), batch=batch).edges[EDGE], minlength=counts.size
        )

    per_place = counts.reshape(num, width).sum(0)
    assert counts.sum() == 1_000_000
    # Picks of one node exclude each other: less varies than in independent draws, by 15 of 19.
    statistic = stats.chisquare(per_place).statistic / (15 / 19)
    assert 0.01 < stats.chi2.sf(statistic, width - 1) < 0.9999


def test_picks_with_replacement_are_uniform_and_repeat():
    sampler = FusedSampler(star(10), [30], replace=True)
    out = sampler.sample(np.array([0]))

    assert out.edges[EDGE].size == 30
    assert len(set(out.edges[EDGE])) < 30
    assert stats.chisquare(counts_of_picks(sampler, 3000)).pvalue > 0.01


def test_weighted_picks_with_replacement_follow_the_weights():
    weights = np.array([1.0, 2, 3, 4, 0])
    counts = counts_of_picks(FusedSampler(star(5, weights=weights), [10], replace=True), 3000)

    assert counts[4] == 0
    assert stats.chisquare(counts[:4], 3000 * weights[:4]).pvalue > 0.01


def test_weighted_picks_without_replacement_follow_the_chances_of_one_after_the_other():
    weights = np.array([1.0, 2, 3, 4, 0])
    counts = counts_of_picks(FusedSampler(star(5, weights=weights), [2]), 20_000)

    first = weights[:4] / 10
    second = [
        sum(first[j] * weights[i] / (10 - weights[j]) for j in range(4) if j != i) for i in range(4)
    ]
    expected = 20_000 * (first + second)
    assert counts[4] == 0
    assert counts.sum() == 40_000
    # Two picks of one batch exclude each other, so that the test is on the safe side.
    assert stats.chisquare(counts[:4], expected).pvalue > 0.01


def test_fewer_than_the_fanout_are_all_that_have_a_weight():
    sampler = FusedSampler(star(5, weights=np.array([0, 1.0, 0, 2, 0])), [4])

    assert sorted(sampler.sample(np.array([0])).edges[EDGE]) == [1, 3]


def test_any_number_of_threads_picks_the_same():
    graph = make_graph(500, 20_000)
    sampler = FusedSampler(graph, [5, 5], seed=7)
    seeds = [np.arange(start, start + 50) for start in range(0, 500, 50)]
    alone = [sampler.sample(s, epoch=1, batch=i) for i, s in enumerate(seeds)]

    def in_thread(number):
        return sampler.clone().sample(seeds[number], epoch=1, batch=number)

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(in_thread, range(10)))

    for one, other in zip(alone, together, strict=True):
        assert (one.edges[EDGE] == other.edges[EDGE]).all()
        assert (one.nodes[NODE] == other.nodes[NODE]).all()


def test_seed_epoch_and_batch_each_change_the_picks():
    graph = make_graph(100, 5000)
    seeds = np.arange(20)

    def edges(seed, epoch, batch):
        sampler = FusedSampler(graph, [5], seed=seed)
        return tuple(sampler.sample(seeds, epoch=epoch, batch=batch).edges[EDGE])

    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)]
    assert len({edges(*key) for key in keys}) == 4


def test_the_key_of_counters_is_mixed_as_the_compiled_loops_mix():
    assert key_of(5) == int(mix(np.uint64((5 + 0x9E3779B97F4A7C15) % 2**64)))


def test_two_calls_at_once_are_refused():
    sampler = FusedSampler(make_graph(), [5])
    with sampler._is_busy, pytest.raises(GraphError, match="another thread"):
        sampler.sample(np.array([0]))
    with sampler._is_busy, pytest.raises(GraphError, match="clone"):
        sampler.sample_blocks(np.array([0]))

    assert sampler.sample(np.array([0])).nodes[NODE][0] == 0
    assert threading.active_count() >= 1


# --- trees, times, types ----------------------------------------------------------------


def test_disjoint_trees_share_no_node_and_pick_apart():
    graph = make_graph(40, 4000)
    sampler = FusedSampler(graph, [6, 3], disjoint=True)

    out = sampler.sample(np.array([4, 4, 9]))

    trees, nodes = out.trees[NODE], out.nodes[NODE]
    assert trees[:3].tolist() == [0, 1, 2]
    assert (trees[out.rows[EDGE]] == trees[out.columns[EDGE]]).all()
    assert len(set(zip(trees, nodes, strict=True))) == nodes.size
    first = {tree: set(out.edges[EDGE][out.columns[EDGE] == tree]) for tree in (0, 1)}
    assert first[0] != first[1]


def test_only_edges_no_later_than_the_seed_are_picked():
    sources, targets = random_edges(30, 3000)
    times = np.random.default_rng(1).integers(100, size=3000)
    graph = csc_of_edges(sources, targets, num_nodes=30, times=times)
    seeds, limits = np.arange(10), np.arange(10) * 10

    out = FusedSampler(graph, [5, 5]).sample(seeds, times=limits)
    latest = FusedSampler(graph, [5], take_latest=True).sample(seeds, times=limits)

    trees = out.trees[NODE][out.columns[EDGE]]
    assert (times[out.edges[EDGE]] <= limits[trees]).all()
    for tree in range(10):
        allowed = np.sort(times[(targets == tree) & (times <= limits[tree])])
        picked = np.sort(times[latest.edges[EDGE][latest.columns[EDGE] == tree]])
        assert picked.tolist() == allowed[-5:].tolist()


def test_times_of_nodes_are_those_of_their_edges():
    sources, targets = random_edges(30, 900)
    when = np.arange(30)
    graph = csc_of_edges(sources, targets, num_nodes=30, node_times=when)

    out = FusedSampler(graph, [-1]).sample(np.array([12]), times=when[[12]])

    expected = np.flatnonzero((targets == 12) & (sources <= 12))
    assert sorted(out.edges[EDGE]) == expected.tolist()


def test_each_relation_picks_for_the_nodes_of_its_target():
    writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
    draw = np.random.default_rng(0)
    ends = {writes: draw.integers(20, size=(2, 200)), cites: draw.integers(20, size=(2, 300))}
    graphs = {r: csc_of_edges(*pair, num_nodes=(20, 20)) for r, pair in ends.items()}
    sampler = FusedSampler(graphs, {writes: [2, 2], cites: [3, 1]})

    out = sampler.sample({"paper": np.array([1, 2])})

    for relation, (sources, targets) in ends.items():
        edges = out.edges[relation]
        assert (sources[edges] == out.nodes[relation[0]][out.rows[relation]]).all()
        assert (targets[edges] == out.nodes[relation[2]][out.columns[relation]]).all()
    assert out.num_edges[writes][0] == 4
    assert out.num_edges[cites][0] == 6
    assert out.num_nodes["author"][0] == 0
    assert sampler.num_bytes == 4 * 40


def test_blocks_with_all_neighbors_hold_each_layer_of_the_graph():
    sources, targets = random_edges()
    blocks = FusedSampler(make_graph(), [-1, -1]).sample_blocks(np.array([3, 17]))

    assert blocks[1].num_targets == 2
    assert blocks[0].num_targets == blocks[1].sources.size
    for block in blocks:
        here = block.sources[: block.num_targets]
        for number, node in enumerate(here):
            span = slice(block.indptr[number], block.indptr[number + 1])
            expected = np.flatnonzero(targets == node)
            assert block.edges[span].tolist() == expected.tolist()
            assert (block.sources[block.indices[span]] == sources[expected]).all()


# --- what is refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"indptr": [0, 2, 1, 3], "indices": [0, 1, 2]}, "`indptr` falls from 2 to 1"),
        ({"indptr": [0, 1, 2, 3], "indices": [0, 1, 3]}, "`indices` has ids from 0 to 3"),
        ({"indptr": [0, 1, 2, 3], "indices": [0, -1, 2]}, "ids from -1"),
        ({"indptr": [0, 0], "indices": []}, "The graph is empty"),
        ({"indptr": [0], "indices": [1]}, "The graph is empty"),
        ({"indptr": [0, 1, 2, 2], "indices": [0, 1, 2]}, "must go from 0 to the 3 edges"),
        ({"indptr": [0, 1], "indices": [0], "weights": [np.nan]}, "never NaN"),
        ({"indptr": [0, 1], "indices": [0], "weights": [np.inf]}, "infinite"),
        ({"indptr": [0, 1], "indices": [0], "weights": [1.0, 2.0]}, "one value for each edge"),
        ({"indptr": [0, 2], "indices": [0, 0], "times": [2, 1]}, "`times` falls behind edge 0"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(parts, words):
    arrays = {
        name: np.array(values, None if name in {"weights", "times"} else np.int64)
        for name, values in parts.items()
    }

    with pytest.raises(GraphError, match=words):
        Csc(**arrays)


def test_ids_must_be_whole_numbers_on_the_cpu():
    class Elsewhere:
        device = "cuda:0"

    with pytest.raises(GraphError, match="int32 or int64"):
        Csc(indptr=np.array([0.0, 1.0]), indices=np.array([0]))
    with pytest.raises(GraphError, match=r"lies on cuda:0.*\.cpu\(\)"):
        Csc(indptr=Elsewhere(), indices=np.array([0]))
    with pytest.raises(GraphError, match="`targets` has ids from 0 to 7"):
        csc_of_edges(np.array([0, 1]), np.array([0, 7]), num_nodes=3)


@pytest.mark.parametrize(
    ("fanouts", "words"),
    [
        ([5, 0], "A fan-out is 0"),
        ([-2], "A fan-out is -2"),
        ([2**31], "as the ids are int32"),
        ([], "at least one"),
        ({("a", "b", "c"): [1]}, "for each relation"),
    ],
)
def test_a_fanout_that_cannot_be_is_refused(fanouts, words):
    with pytest.raises(GraphError, match=words):
        FusedSampler(make_graph(), fanouts)


def test_seeds_that_cannot_be_are_refused():
    sampler = FusedSampler(make_graph(), [5])

    with pytest.raises(GraphError, match="`seeds` has ids from 60 to 60"):
        sampler.sample(np.array([60]))
    with pytest.raises(GraphError, match="seeds of type"):
        sampler.sample({"author": np.array([0])})
    timed = FusedSampler(make_graph(times=np.arange(600)), [5])
    with pytest.raises(GraphError, match="one for each seed"):
        timed.sample(np.array([0, 1]), times=np.array([3]))
    with pytest.raises(GraphError, match="use `sample`"):
        timed.sample_blocks(np.array([0]))


def test_relations_must_agree_on_the_number_of_nodes():
    graph = make_graph()
    other = make_graph(50, 100)

    with pytest.raises(GraphError, match="pass the same number"):
        FusedSampler({("a", "x", "a"): graph, ("a", "y", "a"): other}, [2])
    with pytest.raises(GraphError, match="no relations"):
        FusedSampler({}, {})


def test_a_saved_graph_is_mapped_and_samples_the_same(tmp_path):
    graph = make_graph(weights=np.random.default_rng(0).random(600))
    graph.save(tmp_path)

    mapped = open_csc(tmp_path)

    assert isinstance(mapped.indices.base, np.memmap)
    assert mapped.num_bytes == graph.num_bytes
    one, other = (FusedSampler(g, [3, 3]).sample(np.arange(9)) for g in (graph, mapped))
    assert (one.edges[EDGE] == other.edges[EDGE]).all()
    with pytest.raises(GraphError, match=r"Csc\.save"):
        open_csc(tmp_path / "nowhere")
