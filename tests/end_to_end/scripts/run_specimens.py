"""Runs scripts one after the other and notes every bit they leave behind.

    run_specimens.py NUM_RANKS FILE SCRIPT...

Writes one JSON object to FILE: what each script printed, digests of the parameters, gradients
and state of its optimizers and of its buffers, and the random state. With two ranks or more
each is a forked process and writes FILE with its rank in front. Planted waits are skipped.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import runpy
import socket
import sys
import time
import traceback

import torch
from states import chance, digest, seed
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

optimizers: dict = {}
buffers: list = []
namespaces: list = []  # nothing that a script left is freed before the end


def keep_optimizer(optimizer, args, kwargs) -> None:
    optimizers[id(optimizer)] = optimizer


def keep_module(module, name, buffer) -> None:
    buffers.append((module, name))


keep_optimizer._torchdynamo_disable = True  # so that a compiled step still calls it


def run(script: str):
    optimizers.clear()
    buffers.clear()
    seed()
    torch.autograd.set_detect_anomaly(False)  # a specimen may have left it on
    sys.argv = [script]
    if (folder := os.path.dirname(script)) not in sys.path:
        sys.path.append(folder)  # what a specimen imports stands beside it
    said, failure = io.StringIO(), None
    with contextlib.redirect_stdout(said):
        try:
            namespaces.append(runpy.run_path(script, run_name="__main__"))
        except Exception:
            failure = traceback.format_exc()
    trained = []
    for optimizer in optimizers.values():
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        trained.append([digest(parameters), digest(gradients), digest(optimizer.state_dict())])
    kept = [module._buffers.get(name) for module, name in buffers]
    return {
        "said": said.getvalue(),
        "failure": failure,
        "trained": trained,
        "buffers": digest(kept),
        "chance": chance(),
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_all(file: str, scripts: list[str], ports: list[int]) -> None:
    found = {}
    for script, port in zip(scripts, ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        found[os.path.basename(script).removesuffix(".py")] = run(script)
    with open(file, "w") as out:
        json.dump(found, out, indent=1)


def fork_ranks(num_ranks: int, file: str, scripts: list[str], ports: list[int]) -> None:
    def work(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        run_all(f"{rank}-{file}", scripts, ports)

    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=work, args=(rank,)) for rank in range(num_ranks)]
    for child in children:
        child.start()
    for child in children:
        child.join()


def main() -> None:
    torch.set_num_threads(1)
    time.sleep = lambda seconds: None
    register_optimizer_step_post_hook(keep_optimizer)
    register_module_buffer_registration_hook(keep_module)
    num_ranks, file, *scripts = sys.argv[1:]
    ports = [free_port() for _ in scripts]
    if int(num_ranks) > 1:
        fork_ranks(int(num_ranks), file, scripts, ports)
    else:
        run_all(file, scripts, ports)


if __name__ == "__main__":
    main()
