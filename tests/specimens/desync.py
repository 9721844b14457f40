"""Two to four gloo ranks; in one step a rank does something else than the others, as `--kind` says.

With `--kind none` all do the same, and each prints its loss. The first process starts the ranks and
kills what is left of them: soon after one has failed, as soon as the watch has written of a stall,
or after a time that has an end in any case. With `--dump FOLDER` torch's record of each rank that
is left is put there before.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

AT = 30
BARE_S, LIMIT_S, DUMP_S = 4.0, 40.0, 15.0
KINDS = (
    "none",
    *("operation", "size", "type", "missing", "missing_alike", "order", "group"),
    *("left", "data", "python"),
)


class Stuck(Dataset):
    def __getitem__(self, index):
        threading.Event().wait()  # data: this sample never comes


def train(rank, args, store):
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=args.ranks)
    torch.manual_seed(0)
    beside = dist.new_group(list(range(args.ranks)))
    model = nn.Linear(11, 6, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numbers, extra = torch.ones(77), torch.ones(50)
    for step in range(AT + 20):
        is_culprit = step == AT and rank == args.culprit
        kind = args.kind if is_culprit else ""
        optimizer.zero_grad()
        loss = model(torch.ones(3, 11)).square().sum()
        loss.backward()
        if kind == "left":
            return
        if kind == "data":
            next(iter(DataLoader(Stuck(), sampler=[0])))  # culprit: data
        if kind == "python":
            threading.Event().wait()  # culprit: python
        if kind == "operation":
            dist.broadcast(extra[:9], 0)  # culprit: operation
        elif kind == "size":
            dist.all_reduce(torch.ones(5000))  # culprit: size
        elif kind == "type":
            dist.all_reduce(numbers.double())  # culprit: type
        elif kind == "order":
            dist.broadcast(extra, 0)  # culprit: order
            dist.all_reduce(numbers)
        elif kind == "group":
            dist.all_reduce(numbers, group=beside)  # culprit: group
        elif kind != "missing":
            dist.all_reduce(numbers)  # first
        if kind not in ("missing_alike", "order"):
            dist.broadcast(extra, 0)  # second
        if args.kind == "missing_alike":
            dist.broadcast(extra, 0)  # third
            dist.all_reduce(extra)  # fourth
        dist.all_reduce(model.weight.grad, group=beside, async_op=True).wait()  # gradient
        optimizer.step()
    dist.barrier()
    print(f"rank {rank}: {loss.item()!r} {numbers.sum().item()!r}", flush=True)


def dump(rank, folder):
    while not Path(folder, "ask").exists():
        time.sleep(0.2)
    data = torch._C._distributed_c10d._dump_fr_trace()
    Path(folder, f"part-{rank}").write_bytes(data)
    Path(folder, f"part-{rank}").rename(Path(folder, f"rank_{rank}"))


def ask_for_dumps(folder, ranks):
    Path(folder, "ask").touch()
    until = time.monotonic() + DUMP_S
    while time.monotonic() < until:
        alive = [rank for rank, one in enumerate(ranks) if one.is_alive()]
        if all(Path(folder, f"rank_{rank}").exists() for rank in alive):
            break
        time.sleep(0.2)


def run_rank(rank, args, store):
    if args.dump:
        threading.Thread(target=dump, args=(rank, args.dump), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # gloo ends a rank by abort
    torch.set_num_threads(1)
    train(rank, args, store)


def has_stalled():
    stalls = Path(os.environ.get("STEPTIME_RUN", "/nowhere"), "stalls.jsonl")
    return stalls.exists() and stalls.read_bytes().count(b"\n") >= 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--dump")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        fork = multiprocessing.get_context("fork")
        ranks = [
            fork.Process(target=run_rank, args=(rank, args, store)) for rank in range(args.ranks)
        ]
        for one in ranks:
            one.start()
        until = time.monotonic() + (LIMIT_S if "STEPTIME_RUN" in os.environ else BARE_S)
        while time.monotonic() < until and not has_stalled():
            if all(one.exitcode == 0 for one in ranks):
                break
            if any(one.exitcode for one in ranks):
                time.sleep(1.0)  # the others fail at once
                break
            time.sleep(0.2)
        if args.dump and has_stalled():
            ask_for_dumps(args.dump, ranks)
        for one in ranks:
            one.kill()
            one.join()
    sys.exit(any(one.exitcode for one in ranks))


if __name__ == "__main__":
    main()
