"""Trains on real gloo ranks with each lever on DistributedDataParallel, and writes what came of it.

    python exchange.py NUM_RANKS FOLDER

The ranks are forks of one process that has imported torch. Each trains all cases one after another
and writes `rank-N.json`: by case losses, weights, and the norms of local gradients at some places.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from steptime.levers import load
from steptime.testing.lever_session_double import PlainSession

VIEW = {"gradient_as_bucket_view": True}
CASES = {
    "plain": ((), {}),
    "view": ((("ddp_options", VIEW),), {}),
    "buckets": ((("ddp_options", VIEW | {"bucket_cap_mb": 1}),), {}),
    "unused": ((), {"is_unused": True}),
    "static": ((("ddp_options", VIEW | {"static_graph": True}),), {"is_unused": True}),
    "bf16": ((("ddp_bf16", {}),), {}),
    # One bucket: with several, gloo's callbacks exchange them in another order on each rank.
    "narrow": ((), {"width": 200}),
    "powersgd": ((("ddp_powersgd", {"rank": 4, "warmup_steps": 3}),), {"width": 200}),
    "own_hook": ((("ddp_bf16", {}),), {"has_hook": True}),
    "own_hook_powersgd": (
        (("ddp_powersgd", {"rank": 4, "warmup_steps": 3}),),
        {"has_hook": True},
    ),
    "accumulated": ((), {"passes": 4}),
    "no_sync": ((("ddp_no_sync", {"passes": 4}),), {"passes": 4}),
    "no_sync_with_views": (
        (("ddp_options", VIEW), ("ddp_no_sync", {"passes": 4}), ("ddp_bf16", {})),
        {"passes": 4},
    ),
    "own_no_sync": ((("ddp_no_sync", {"passes": 4}),), {"passes": 4, "is_own": True}),
}
NUM_BATCHES = 14  # of which the last two make a shorter accumulation


class Net(nn.Module):
    def __init__(self, *, is_unused, width):
        super().__init__()
        first, second = nn.Linear(64, width), nn.Linear(width, width)
        self.layers = nn.Sequential(first, nn.Tanh(), second, nn.Tanh())
        self.head = nn.Linear(width, 1)
        self.spare = nn.Linear(width, 1) if is_unused else None

    def forward(self, x):
        return self.head(self.layers(x))


def mean_as_torch(group, bucket):
    whole = bucket.buffer().div_(group.size())
    return (
        dist.all_reduce(whole, group=group, async_op=True)
        .get_future()
        .then(lambda done: done.value()[0])
    )


def train(*, passes=1, is_unused=False, has_hook=False, is_own=False, width=600):
    torch.manual_seed(0)
    net = Net(is_unused=is_unused, width=width)
    model = DistributedDataParallel(net, find_unused_parameters=is_unused)
    if has_hook:
        model.register_comm_hook(dist.group.WORLD, mean_as_torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(1 + dist.get_rank())
    batches = [(torch.randn(8, 64), torch.randn(8, 1)) for _ in range(NUM_BATCHES)]
    losses, norms = [], []
    for number, (x, y) in enumerate(batches, 1):
        is_last = number % passes == 0 or number == NUM_BATCHES
        with model.no_sync() if is_own and not is_last else contextlib.nullcontext():
            loss = nn.functional.mse_loss(model(x), y) / passes
            loss.backward()
        losses.append(loss.item())
        norms.append(net.head.weight.grad.norm().item())
        if is_last:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    weights = [p.detach().clone() for p in net.parameters()]
    return {
        "losses": losses,
        "norms": norms,
        "weights": [w.double().sum().item() for w in weights],
        "view": model.gradient_as_bucket_view,
        "static": model.static_graph,
        "num_hooks": len(model._comm_hooks),
    }


def run_rank(rank, num_ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=num_ranks
    )
    found = {}
    for name, (wanted, options) in CASES.items():
        with PlainSession(torch) as session:
            undos = [load(lever).apply(settings, session) for lever, settings in wanted]
            found[name] = train(**options)
            for undo in reversed(undos):
                undo()
    found["init"] = DistributedDataParallel.__init__.__qualname__
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # torch may wait for ever when it frees a model with a hook in Python


def main(num_ranks, folder):
    children = []
    for rank in range(num_ranks):
        pid = os.fork()
        if pid == 0:
            try:
                run_rank(rank, num_ranks, folder)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    sys.exit(max(map(bool, codes)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
