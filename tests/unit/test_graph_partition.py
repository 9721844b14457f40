"""Partitions of graphs, their files, and features exchanged by real ranks."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from steptime.errors import DataError, MissingExtraError
from steptime.graph import (
    load_partition,
    load_rank,
    make_partition,
    most_sampled_nodes,
    partition_graph,
    save_partition,
)

SPECIMEN = Path(__file__).resolve().parents[1] / "specimens" / "graph_features.py"


def columns_of(num_nodes, sources, targets):
    """Edges as columns: indptr, indices."""
    order = np.argsort(targets, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=num_nodes))])
    return indptr, sources[order]


def blocks_graph(num_blocks=4, size=250, inside=12, outside=2, seed=7):
    """A graph of blocks: most edges stay inside theirs. Copies and loops stand in it too."""
    chance = np.random.default_rng(seed)
    num_nodes = num_blocks * size
    block = chance.permutation(num_nodes) % num_blocks
    members = [np.flatnonzero(block == b) for b in range(num_blocks)]
    targets = np.repeat(np.arange(num_nodes), inside)
    near = np.concatenate([chance.choice(members[block[v]], inside) for v in range(num_nodes)])
    far = chance.integers(num_nodes, size=num_nodes * outside)
    targets = np.concatenate([targets, np.repeat(np.arange(num_nodes), outside)])
    return *columns_of(num_nodes, np.concatenate([near, far]), targets), block


# --- partitions -----------------------------------------------------------------------


def cut_by_hand(indptr, indices, owner):
    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return int((owner[targets] != owner[indices]).sum())


@pytest.mark.parametrize("method", ["metis", "random"])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_parts_are_even_and_the_cut_is_counted(method, kind):
    indptr, indices, _ = blocks_graph()
    indptr, indices = indptr.astype(kind), indices.astype(kind)

    partition = partition_graph(indptr, indices, 4, method=method, seed=1)

    assert partition.edge_cut == cut_by_hand(indptr, indices, partition.owner)
    assert partition.sizes.sum() == 1000
    assert partition.imbalance <= 1.04
    again = partition_graph(indptr, indices, 4, method=method, seed=1)
    assert np.array_equal(partition.owner, again.owner)
    assert np.array_equal(np.concatenate([partition.nodes_of(r) for r in range(4)]).argsort(),
                          np.argsort(np.argsort(partition.owner, kind="stable")))  # fmt: skip


def test_metis_finds_blocks_that_chance_does_not():
    indptr, indices, block = blocks_graph()
    planted = cut_by_hand(indptr, indices, block)
    cut = {
        method: partition_graph(indptr, indices, 4, method=method).edge_cut
        for method in ("metis", "random")
    }

    assert cut["metis"] <= 1.1 * planted
    assert cut["random"] == pytest.approx(0.75 * len(indices), rel=0.05)


def test_one_part_and_no_edges_are_partitions_too():
    indptr, indices = np.zeros(6, dtype=np.int64), np.empty(0, dtype=np.int64)

    for method in ("metis", "random"):
        assert partition_graph(indptr, indices, 1, method=method).cut_fraction == 0
        assert partition_graph(indptr, indices, 5, method=method).edge_cut == 0


@pytest.mark.parametrize(
    ("indptr", "indices", "num_parts", "words"),
    [
        ([0], [], 1, "empty"),
        ([0, 2, 1, 3], [0, 1, 2], 2, "must not fall, and does after node 1"),
        ([0, 1, 2], [0, 1, 1], 2, "number of edges, 3"),
        ([0, 1, 2], [0, 2], 2, "between 0 and 1, got 0 to 2"),
        ([0, 1, 2], [-1, 0], 2, "between 0 and 1, got -1 to 0"),
        ([0, 1, 2], [0.5, 1], 2, "`indices` must be integers"),
        ([0, 1, 2], [0, 1], 3, "num_parts=3, num_nodes=2"),
    ],
)
def test_what_is_no_graph_is_refused(indptr, indices, num_parts, words):
    with pytest.raises(ValueError, match=words):
        partition_graph(np.array(indptr), np.array(indices, dtype=None if indices else int),
                        num_parts, method="random")  # fmt: skip


def test_owners_that_are_no_ranks_are_refused():
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])

    with pytest.raises(ValueError, match="ranks from 0 to 1, got 0 to 2"):
        make_partition(np.array([0, 2]), indptr, indices, num_parts=2)
    with pytest.raises(ValueError, match="one integer for each of 2 nodes"):
        make_partition(np.array([0]), indptr, indices, num_parts=2)
    with pytest.raises(ValueError, match="one of metis, random"):
        partition_graph(indptr, indices, 2, method="spectral")


def test_without_pymetis_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])

    with pytest.raises(MissingExtraError) as caught:
        partition_graph(indptr, indices, 2)

    assert "steptime[graph]" in caught.value.hint
    assert "random" in caught.value.hint


def test_the_cache_takes_what_is_a_neighbor_most_often_and_is_not_own():
    indptr, indices = np.array([0, 3, 5, 6, 6]), np.array([1, 2, 3, 2, 3, 2])
    partition = make_partition(np.array([0, 0, 1, 1]), indptr, indices, num_parts=2)

    assert most_sampled_nodes(indices, partition, 0, 1).tolist() == [2]
    assert most_sampled_nodes(indices, partition, 0, 9).tolist() == [2, 3]
    assert most_sampled_nodes(indices, partition, 1, 9).tolist() == [1]
    assert most_sampled_nodes(indices, partition, 1, 0).tolist() == []


# --- files ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("partition")
    indptr, indices, _ = blocks_graph()
    partition = partition_graph(indptr, indices, 2, seed=0)
    whole = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    save_partition(folder, partition, features=whole, labels=np.arange(1000) % 7)
    save_partition(folder / "other", partition_graph(indptr, indices, 2, method="random"))
    np.save(folder / "whole.npy", whole)
    np.save(folder / "indices.npy", indices)
    return folder


def test_a_saved_partition_comes_back_mapped(saved):
    whole = np.load(saved / "whole.npy")

    partition = load_partition(saved)

    assert isinstance(partition.owner, np.memmap)
    for rank in range(2):
        owned = load_rank(saved, partition, rank, checks_bytes=True)
        assert isinstance(owned.features, np.memmap)
        assert np.array_equal(owned.features, whole[owned.nodes])
        assert np.array_equal(owned.labels, owned.nodes % 7)
    assert {p.suffix for p in saved.iterdir() if p.is_file()} == {".json", ".npy"}


def copy_of(saved, tmp_path):
    for path in saved.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_damage_is_found_on_load(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    partition = load_partition(folder)

    data = bytearray((folder / "features-0.npy").read_bytes())
    data[-1] ^= 1
    (folder / "features-0.npy").write_bytes(data)
    with pytest.raises(DataError, match=r"features-0\.npy is damaged.*not those"):
        load_rank(folder, partition, 0, checks_bytes=True)
    (folder / "features-0.npy").write_bytes(data[:-100])
    with pytest.raises(DataError, match=r"features-0\.npy is damaged"):
        load_rank(folder, partition, 0)
    (folder / "features-0.npy").write_bytes((folder / "features-1.npy").read_bytes())
    if len(partition.nodes_of(0)) != len(partition.nodes_of(1)):
        with pytest.raises(DataError, match="its rank owns"):
            load_rank(folder, partition, 0)
    np.save(folder / "features-0.npy", np.zeros((500, 8)))
    with pytest.raises(DataError, match="the description says <f4"):
        load_rank(folder, partition, 0)
    np.save(folder / "features-0.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(DataError, match=r"features-0\.npy is damaged"):
        load_rank(folder, partition, 0)
    (folder / "features-0.npy").unlink()
    with pytest.raises(DataError, match=r"features-0\.npy is missing"):
        load_rank(folder, partition, 0)


def test_owners_that_were_changed_are_found(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    np.save(folder / "owner.npy", np.roll(np.load(folder / "owner.npy"), 1))

    with pytest.raises(DataError, match=r"owner\.npy is damaged"):
        load_partition(folder)
    (folder / "partition.json").unlink()
    with pytest.raises(DataError, match="missing, unfinished"):
        load_partition(folder)


def test_columns_that_do_not_belong_to_the_graph_are_refused(saved, tmp_path):
    partition = load_partition(saved)

    with pytest.raises(ValueError, match=r"a row for each of 1,000 nodes, got 3"):
        save_partition(tmp_path, partition, features=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="Python objects"):
        save_partition(tmp_path, partition, labels=np.array([None] * 1000))
    with pytest.raises(ValueError, match="between 0 and 1, got 2"):
        load_rank(saved, partition, 2)
    with pytest.raises(DataError, match="without features"):
        load_rank(saved / "other", load_partition(saved / "other"), 0)


# --- ranks ----------------------------------------------------------------------------


of_ranks = pytest.mark.slow("two ranks import torch, and one waits for the other's limit")


@pytest.fixture(scope="module")
def said(saved):
    """What rank 0 of two real ranks said, whose rank 1 dies at the end."""
    pytest.importorskip("torch")
    ranks = [
        subprocess.Popen(
            [sys.executable, SPECIMEN, saved, str(rank)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        (out, err), _ = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 9], err
    return json.loads(out.splitlines()[-1])


@of_ranks
def test_rows_of_other_ranks_come_in_two_rounds(said):
    for rank, report in enumerate(said["exchange"]):
        plain, cached = report["plain"], report["cached"]
        assert plain["batches"] == 2 * (12 if rank else 9)
        assert plain["answered"] == (2 if rank else 2 * 4)  # and once more: all have finished
        assert set(plain["rounds_of_batches"]) <= {2, 3}
        assert plain["rounds_of_batches"][-5:] == [2] * 5  # blocks have grown
        assert plain["row_bytes"] == 32 * said["exchange"][1 - rank]["plain"]["remote_rows"]
        assert cached["num_cached"] == 200
        assert cached["hits"] > 0.2
        assert cached["remote_rows"] + cached["cached_rows"] == plain["remote_rows"]
        assert cached["row_bytes"] < plain["row_bytes"]


@of_ranks
def test_ranks_with_different_partitions_are_refused(said):
    assert "different owners" in said["other"]


@of_ranks
def test_a_rank_that_stays_away_is_waited_for_up_to_the_limit(said):
    assert said["stay"]["ranks"] == []
    assert "no answer within 2" in said["stay"]["error"]
    assert "without finish()" in said["stay"]["error"]
    assert said["stay"]["is_told_again"]


@of_ranks
def test_a_rank_that_dies_ends_the_epoch_with_its_name(said):
    assert said["die"]["ranks"] == [1]
    assert "rank 1 (process" in said["die"]["error"]
    assert "has ended" in said["die"]["error"]


def test_one_part_needs_no_group():
    torch = pytest.importorskip("torch")
    from steptime.graph import PartitionedFeatures

    indptr, indices, _ = blocks_graph()
    rows = torch.arange(2000.0).reshape(1000, 2)
    features = PartitionedFeatures(partition_graph(indptr, indices, 1), rows)

    assert features.fetch([3, 999]).tolist() == [[6.0, 7.0], [1998.0, 1999.0]]
    features.finish()
    assert features.counts.rounds == 0
    with pytest.raises(ValueError, match="between 0 and 999, got 3 to 1000"):
        features.fetch([3, 1000])
    with pytest.raises(ValueError, match="integers in one dimension"):
        features.fetch([0.5])
    with pytest.raises(ValueError, match="no labels"):
        features.labels_of([1])
    with pytest.raises(ValueError, match="not initialized"):
        PartitionedFeatures(partition_graph(indptr, indices, 2), rows)
    with pytest.raises(ValueError, match=r"1,000 nodes that rank 0 owns, got 3"):
        PartitionedFeatures(partition_graph(indptr, indices, 1), rows[:3])


def test_two_threads_in_one_exchange_are_refused():
    pytest.importorskip("torch")
    from steptime.graph import PartitionedFeatures

    indptr, indices, _ = blocks_graph()
    features = PartitionedFeatures(partition_graph(indptr, indices, 1), np.zeros((1000, 2)))

    with features._alone(), pytest.raises(RuntimeError, match="another thread"):
        features.fetch([1])
