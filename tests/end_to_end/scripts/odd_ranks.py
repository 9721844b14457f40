"""Small trainings of two ranks, all in the same two processes; what was found of each, as JSON.

Those of `HEALTHY` train in ways that look odd and are right; each of `FAULTY` plants one fault.
Usage: `odd_ranks.py STORE OUT [NAME ...]`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from odd_trainings import Plain, found_in, new_run
from torch import nn
from torch.distributed.algorithms import Join
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from steptime.guest import late
from steptime.record.live.call_ring import calls_file

RANKS, UPDATES = 2, 40
Act = Callable[[int], None]
HEALTHY: list[Act] = []
FAULTY: list[Act] = []


def healthy(act: Act) -> Act:
    HEALTHY.append(act)
    return act


def faulty(act: Act) -> Act:
    FAULTY.append(act)
    return act


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


def ddp(model: nn.Module | None = None) -> DistributedDataParallel:
    return DistributedDataParallel(net() if model is None else model)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


def batch() -> tuple[Any, Any]:
    return torch.randn(8, 6), torch.randn(8, 1)


def backward(model: nn.Module) -> None:
    x, y = batch()
    mse_loss(model(x), y).backward()


def update(optimizer: torch.optim.Optimizer, *models: nn.Module) -> None:
    optimizer.zero_grad()
    for model in models:
        backward(model)
    optimizer.step()


# -- weights


@healthy
def plain(rank: int) -> None:
    model = ddp()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, model)


@healthy
def no_sync_but_in_the_last(rank: int) -> None:
    model = ddp()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        with model.no_sync():
            backward(model)
        backward(model)
        optimizer.step()


@healthy
def averages_its_weights_now_and_then(rank: int) -> None:
    model = ddp()
    optimizer = sgd(model)
    for number in range(UPDATES):
        with model.no_sync():
            update(optimizer, model)
        if number % 7 == 6:
            for weight in model.parameters():
                dist.all_reduce(weight.data)
                weight.data.div_(RANKS)


@healthy
def local_sgd_by_a_hook(rank: int) -> None:
    model = ddp()
    alone, _ = dist.new_subgroups(group_size=1)
    state = post_local.PostLocalSGDState(None, alone, start_localSGD_iter=3)
    model.register_comm_hook(state, post_local.post_localSGD_hook)
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, model)


@healthy
def looks_for_flat_minima(rank: int) -> None:
    """The weights of each rank are disturbed by its own gradients, and put back before the step."""
    model = ddp()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        with model.no_sync():
            backward(model)
        moves = [0.1 * torch.sign(weight.grad) for weight in model.parameters()]
        with torch.no_grad():
            for weight, move in zip(model.parameters(), moves, strict=True):
                weight.add_(move)
        optimizer.zero_grad()
        backward(model)
        with torch.no_grad():
            for weight, move in zip(model.parameters(), moves, strict=True):
                weight.sub_(move)
        optimizer.step()


@healthy
def noise_on_the_weights_of_each_rank(rank: int) -> None:
    model = ddp()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        before = [weight.detach().clone() for weight in model.parameters()]
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
        optimizer.zero_grad()
        backward(model)
        with torch.no_grad():
            for weight, value in zip(model.parameters(), before, strict=True):
                weight.copy_(value)
        optimizer.step()


@healthy
def another_optimizer_on_one_rank(rank: int) -> None:
    """One rank fits a probe in between, whose updates the other one has not."""
    model, probe = ddp(), nn.Linear(6, 1)
    optimizer, other = sgd(model), sgd(probe)
    for _ in range(UPDATES):
        update(optimizer, model)
        if not rank:
            update(other, probe)


@healthy
def one_model_after_the_other(rank: int) -> None:
    for width in (8, 12, 16):
        model = ddp(nn.Sequential(nn.Linear(6, width), nn.Linear(width, 1)))
        optimizer = sgd(model)
        for _ in range(UPDATES // 3):
            update(optimizer, model)


@healthy
def one_rank_has_more_batches(rank: int) -> None:
    model = ddp()
    optimizer = sgd(model)
    with Join([model]):
        for _ in range(UPDATES - 9 * rank):
            update(optimizer, model)


@healthy
def searches_along_a_line(rank: int) -> None:
    model = ddp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    for _ in range(UPDATES):
        x, y = batch()

        def closure(x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            loss.backward()
            dist.all_reduce(loss.detach())
            return loss.detach() / RANKS

        optimizer.step(closure)


@healthy
def looks_up_rows(rank: int) -> None:
    parts = nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 1)
    model = ddp(nn.Sequential(*parts))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        mse_loss(model(torch.randint(0, 50, (8, 4))), torch.randn(8, 1)).backward()
        optimizer.step()


@healthy
def keeps_its_weights_small(rank: int) -> None:
    """The first layer is frozen, and both ranks clamp the others after each update."""
    inner = net()
    inner[0].requires_grad_(False)
    model = ddp(inner)
    optimizer = torch.optim.Adam(inner[2].parameters(), 0.01)
    for _ in range(UPDATES):
        update(optimizer, model)
        with torch.no_grad():
            for weight in model.parameters():
                weight.clamp_(-0.1, 0.1)


@healthy
def in_half_precision(rank: int) -> None:
    model = DistributedDataParallel(net(), static_graph=True, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(UPDATES):
        x, y = batch()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@healthy
def two_models_take_turns(rank: int) -> None:
    one, other = ddp(), ddp(nn.Linear(6, 1))
    optimizers = sgd(one), sgd(other)
    for _ in range(UPDATES):
        update(optimizers[0], one)
        update(optimizers[1], other)


@healthy
def shards_the_optimizer(rank: int) -> None:
    model = ddp()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    for _ in range(UPDATES):
        update(optimizer, model)


@healthy
def shards_everything(rank: int) -> None:
    model = fully_shard(net())
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, model)


@healthy
def some_weights_rest_on_one_rank(rank: int) -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([net(), net()])

        def forward(self, x: Any) -> Any:
            return self.parts[self.number % 2](x)

    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    optimizer = sgd(model)
    for number in range(UPDATES):
        model.module.number = number + rank
        update(optimizer, model)


@healthy
def each_rank_has_its_own_model(rank: int) -> None:
    """An actor and a learner: the weights go from one to the other."""
    torch.manual_seed(rank)
    model = net()
    optimizer = sgd(model)
    for number in range(UPDATES):
        update(optimizer, model)
        if number % 5 == 4:
            for weight in model.parameters():
                dist.broadcast(weight.data, 0)


@healthy
def gathers_large_predictions(rank: int) -> None:
    model = ddp()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, model)
        with torch.no_grad():
            found = model.module(torch.randn(500, 6))
        dist.all_gather([torch.empty_like(found) for _ in range(RANKS)], found)


@faulty
def no_sync_in_the_last(rank: int) -> None:
    model = ddp()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        backward(model)
        with model.no_sync():
            backward(model)
        optimizer.step()


@faulty
def no_sync_before_short_windows(rank: int) -> None:
    """Five micro-batches an epoch: the fifth is a window of its own, and is not exchanged."""
    model = ddp()
    optimizer = sgd(model)
    for _ in range(UPDATES // 3):
        for micro in range(5):
            is_full = micro % 2 == 1
            with contextlib.nullcontext() if is_full else model.no_sync():
                backward(model)
            if is_full or micro == 4:
                optimizer.step()
                optimizer.zero_grad()


@faulty
def calls_the_model_inside(rank: int) -> None:
    model = ddp()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, model.module)


@faulty
def momentum_on_one_rank(rank: int) -> None:
    model = ddp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.0 if rank else 0.9)
    for _ in range(UPDATES):
        update(optimizer, model)


@faulty
def weights_loaded_on_one_rank(rank: int) -> None:
    model = ddp()
    if not rank:
        model.module.load_state_dict(net().state_dict())
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, model)


# -- samples


def train(loader: Any, model: nn.Module, epochs: int = 3) -> None:
    optimizer = sgd(model)
    for epoch in range(epochs):
        if isinstance(getattr(loader, "sampler", None), DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()


def data(rows: int = 64) -> TensorDataset:
    torch.manual_seed(0)
    return TensorDataset(torch.randn(rows, 6), torch.randn(rows, 1))


@healthy
def each_rank_has_its_part(rank: int) -> None:
    rows = data()
    train(DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows)), ddp())


@healthy
def a_seed_for_each_rank(rank: int) -> None:
    rows = data()
    torch.manual_seed(rank)
    train(DataLoader(rows, batch_size=8, shuffle=True), ddp())


@healthy
def the_whole_batch_in_each_step(rank: int) -> None:
    """A graph that fits: each rank computes all of it, and takes the loss of its own part."""
    model = ddp()
    optimizer = sgd(model)
    x, y = data()[:]
    for _ in range(UPDATES):
        optimizer.zero_grad()
        mse_loss(model(x)[rank::RANKS], y[rank::RANKS]).backward()
        optimizer.step()


@healthy
def ranks_share_a_sample(rank: int) -> None:
    """Sequence parallel: each rank computes a part of the same rows, and gathers the others'."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(6, 16), nn.Linear(16, 1)

        def forward(self, x: Any) -> Any:
            part = self.inner(x.chunk(RANKS)[rank])
            parts = [torch.empty_like(part) for _ in range(RANKS)]
            dist.all_gather(parts, part.detach())
            parts[rank] = part
            return self.outer(torch.cat(parts))

    train(DataLoader(data(), batch_size=8, shuffle=True), ddp(Shared()))


@healthy
def columns_on_both_ranks(rank: int) -> None:
    """Tensor parallel: the same samples, other weights; data parallel with no other rank."""
    torch.manual_seed(rank)
    alone, _ = dist.new_subgroups(group_size=1)
    model = DistributedDataParallel(net(), process_group=alone)
    optimizer = sgd(model)
    for x, y in DataLoader(data(), batch_size=2, shuffle=False):
        optimizer.zero_grad()
        part = model(x)
        whole = part.detach().clone()
        dist.all_reduce(whole)
        mse_loss(part + (whole - part.detach()), y).backward()
        optimizer.step()


@healthy
def a_stage_on_each_rank(rank: int) -> None:
    """A pipeline: activations go to the second rank, and their gradients come back."""
    stage = nn.Linear(6, 6)
    optimizer = sgd(stage)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        between = torch.empty(8, 6)
        if not rank:
            out = stage(batch()[0])
            dist.send(out.detach(), 1)
            dist.recv(between, 1)
            out.backward(between)
        else:
            dist.recv(between, 0)
            stage(between.requires_grad_()).square().mean().backward()
            dist.send(between.grad, 0)
        optimizer.step()


@faulty
def both_ranks_draw_the_same(rank: int) -> None:
    train(DataLoader(data(), batch_size=8, shuffle=True), ddp())


@faulty
def both_ranks_make_the_same(rank: int) -> None:
    model = ddp()
    torch.manual_seed(0)
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, model)


# -- two processes


class OnRanks(Plain):
    """Collectives are written down, as under `steptime run`."""

    records_calls = True


def run_rank(rank: int, store: str, acts: list[tuple[str, str]]) -> None:
    torch.set_num_threads(1)
    late.Visiting = OnRanks
    dist.init_process_group(
        "gloo", init_method=f"file://{store}/group", rank=rank, world_size=RANKS
    )
    for name, folder in acts:
        torch.manual_seed(17 * rank)
        visit = late.Visit(folder)
        visit.begin()
        globals()[name](rank)
        visit.end()
        dist.barrier()
        Path(calls_file(folder, torch.multiprocessing.current_process().pid)).unlink(True)
    dist.destroy_process_group()


def main(store: str, out: str, *names: str) -> None:
    chosen = [act.__name__ for act in (*HEALTHY, *FAULTY) if not names or act.__name__ in names]
    acts = [(name, str(new_run(Path(store)))) for name in chosen]
    torch.multiprocessing.spawn(run_rank, (store, acts), nprocs=RANKS)
    Path(out).write_text(json.dumps({n: found_in(Path(folder), n) for n, folder in acts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
