"""Two gloo ranks that fetch features of each other's nodes; rank 0 says as JSON what happened.

First all is compared with the whole, then the ranks have different partitions, then rank 1 stays
away from its third batch, and at last it dies.
"""

import itertools
import json
import os
import sys
import time

import _leave  # noqa: F401
import numpy as np
import torch
import torch.distributed as dist

from steptime.graph import (
    PartitionedFeatures,
    RankLostError,
    load_partition,
    load_rank,
    most_sampled_nodes,
)


def batches_of(rank, num_nodes, num_batches):
    chance = np.random.default_rng(rank)
    return [chance.choice(num_nodes, size=50 * (1 + i), replace=False) for i in range(num_batches)]


def exchange(partition, folder, rank):
    whole = np.load(f"{folder}/whole.npy")
    owned = load_rank(folder, partition, rank, checks_bytes=True)
    indices = np.load(f"{folder}/indices.npy")
    report = {}
    for name, cached in {"plain": 0, "cached": 200}.items():
        nodes = most_sampled_nodes(indices, partition, rank, cached)
        with_labels = PartitionedFeatures(
            partition, owned.features, labels=owned.labels, cached_nodes=nodes, timeout_s=60
        )
        seen = []
        for _epoch in range(2):
            for ids in batches_of(rank, len(whole), 12 if rank else 9):  # one ends sooner
                rows = with_labels.fetch(torch.from_numpy(ids))
                assert np.array_equal(rows.numpy(), whole[ids])
                seen.append(with_labels.counts)
            with_labels.finish()
        nodes = partition.nodes_of(rank)[:5]
        assert with_labels.labels_of(nodes).tolist() == (nodes % 7).tolist()
        counts = with_labels.counts
        report[name] = {key: getattr(counts, key) for key in counts.__slots__}
        report[name]["rounds_of_batches"] = [
            b.rounds - a.rounds for a, b in itertools.pairwise(seen) if b.answered == a.answered
        ]
        report[name]["num_cached"] = with_labels.num_cached
        report[name]["hits"] = counts.cache_hit_fraction
        with_labels.close()
    halves = torch.from_numpy(np.array(owned.features)).bfloat16().reshape(-1, 2, 4)
    features = PartitionedFeatures(partition, halves, timeout_s=60)
    ids = batches_of(rank, len(whole), 1)[0]
    rows = features.fetch(ids)
    assert rows.dtype == torch.bfloat16
    assert torch.equal(rows, torch.from_numpy(whole[ids]).bfloat16().reshape(-1, 2, 4))
    assert features.fetch(np.empty(0, np.int64)).shape == (0, 2, 4)
    features.close()
    everybody = [None, None]
    dist.all_gather_object(everybody, report)
    return everybody


def refused(partition, rank):
    rows = np.zeros((len(partition.nodes_of(rank)), 8), dtype=np.float32)
    try:
        PartitionedFeatures(partition, rows, timeout_s=20)
    except ValueError as error:
        return str(error)


def lose(partition, folder, rank, leave):
    """Rank 1 leaves before its third batch; what rank 0 is told."""
    owned = load_rank(folder, partition, rank)
    features = PartitionedFeatures(partition, owned.features, timeout_s=2)
    try:
        for number, ids in enumerate(batches_of(rank, partition.num_nodes, 5)):
            if rank == 1 and number == 2:
                leave()
                break
            features.fetch(ids)
    except RankLostError as error:
        again = ""
        try:
            features.fetch([0])
        except RankLostError as second:
            again = str(second)
        return {"error": str(error), "ranks": error.ranks, "is_told_again": again == str(error)}


def main():
    folder, rank = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/at", rank=rank, world_size=2)
    partition = load_partition(folder)
    report = {
        "exchange": exchange(partition, folder, rank),
        "other": refused(load_partition(f"{folder}/other") if rank else partition, rank),
        "stay": lose(partition, folder, rank, lambda: time.sleep(4)),
        "die": lose(partition, folder, rank, lambda: os._exit(9)),
    }
    print(json.dumps(report), flush=True)
    os._exit(0)  # a group that has lost a rank is not left in peace


if __name__ == "__main__":
    main()
