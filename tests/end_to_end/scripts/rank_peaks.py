"""Trains on two real gloo ranks with DDP and with FSDP2, and writes the peak of torch's allocator.

    python rank_peaks.py FOLDER

The ranks are forks of one process that has imported torch. Each writes `rank-N.json`: by case, the
bytes of the highest instant of the last step. A profiler does not see what gloo's own thread frees,
so whoever waits for a collective gives that thread time to let go of its tensors first. What it
frees last all the same is counted too much, never too little: the least of three trainings counts.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

NUM_RANKS, STEPS, REPETITIONS = 2, 4, 3


def make():
    blocks = (nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in range(3))
    return nn.Sequential(*blocks)


def sharded(model):
    for block in model:
        fully_shard(block)
    return fully_shard(model)


CASES = {"ddp": DistributedDataParallel, "fsdp2": sharded}


def train(wrap):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        model, batch = wrap(make()), torch.randn(64, 256)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for number in range(STEPS):
            with record_function("looked_at" if number == STEPS - 1 else "other"):
                optimizer.zero_grad()
                output = model(batch)
                loss = output.square().mean()
                loss.backward()
                optimizer.step()
    return peak_of(prof.profiler.kineto_results.events())


def peak_of(events):
    step = next(e for e in events if e.name() == "looked_at")
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        if step.start_ns() <= event.start_ns() <= step.end_ns():
            peak = max(peak, held)
    return peak


def let_go_after_waiting():
    wait = dist.Work.wait

    def wait_longer(work, *args, **kwargs):
        done = wait(work, *args, **kwargs)
        time.sleep(0.03)
        return done

    dist.Work.wait = wait_longer


def run_rank(rank, folder):
    torch.set_num_threads(1)
    let_go_after_waiting()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=NUM_RANKS
    )
    found = {name: [] for name in CASES}
    for _ in range(REPETITIONS):
        for name, wrap in CASES.items():
            gc.collect()
            found[name].append(train(wrap))
    peaks = {name: min(told) for name, told in found.items()}
    (folder / f"rank-{rank}.json").write_text(json.dumps(peaks))
    dist.barrier()
    os._exit(0)  # gloo's thread may still free its last collective


def main(folder):
    children = []
    for rank in range(NUM_RANKS):
        pid = os.fork()
        if pid == 0:
            try:
                run_rank(rank, folder)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    sys.exit(max(map(bool, codes)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
