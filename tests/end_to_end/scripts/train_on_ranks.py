"""Trains with DDP or FSDP2, as people write it; with TRUTH, writes what torch's allocator held.

    torchrun --nproc_per_node 2 train_on_ranks.py ddp|views|no_sync|zero1|fsdp2
    TRUTH=FOLDER torchrun ...

The truth of a rank is the highest instant of its last step. A profiler does not see what gloo's own
thread frees: whoever waits for a collective gives it time, and the least of three trainings counts.
"""

import gc
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STEPS = 4


def make_model():
    blocks = (nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in range(3))
    return nn.Sequential(*blocks)


def spread(model, how):
    if how == "fsdp2":
        for block in model:
            fully_shard(block)
        return fully_shard(model)
    return DistributedDataParallel(model, gradient_as_bucket_view=how == "views")


def optimizer_of(model, how):
    if how == "zero1":
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(how, looked_at=None):
    data = TensorDataset(torch.randn(1024, 256))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    model = spread(make_model(), how)
    optimizer = optimizer_of(model, how)
    for number, (x,) in enumerate(loader):
        with looked_at(number) if looked_at else nullcontext():
            optimizer.zero_grad()
            if how == "no_sync":
                with model.no_sync():
                    model(x).square().mean().backward()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        if number == STEPS - 1:
            break
    dist.barrier()


# -- the truth


def look(number):
    return record_function("looked_at" if number == STEPS - 1 else "other")


def measure(how):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        train(how, look)
    events = prof.profiler.kineto_results.events()
    step = next(e for e in events if e.name() == "looked_at")
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        if step.start_ns() <= event.start_ns() <= step.end_ns():
            peak = max(peak, held)
    return peak


def wait_longer(wait):
    def waited(work, *args, **kwargs):
        done = wait(work, *args, **kwargs)
        time.sleep(0.03)
        return done

    return waited


def main(how):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = os.environ.get("TRUTH")
    if folder is None:
        train(how)
    else:
        dist.Work.wait = wait_longer(dist.Work.wait)
        peaks = [(gc.collect(), measure(how))[1] for _ in range(3)]
        Path(folder, f"{how}-{dist.get_rank()}.json").write_text(json.dumps(min(peaks)))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
