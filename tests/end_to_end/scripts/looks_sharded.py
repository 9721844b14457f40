"""Trains models cut over two ranks past the update whose operators are counted; for torchrun.

Once every parameter is cut and gathered before use (FSDP), once every product is cut (tensor
parallel); the argument says which.
"""

from __future__ import annotations

import json
import os
import sys

import _leave  # noqa: F401
import torch
from states import chance, digest, seed
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

BATCH, WIDTH, INNER = 8, 16, 32


def cut(model: nn.Module, way: str) -> nn.Module:
    mesh = init_device_mesh("cpu", (2,))
    if way == "tensor_parallel":
        return parallelize_module(model, mesh, {"0": ColwiseParallel(), "3": RowwiseParallel()})
    from torch.distributed.fsdp import fully_shard

    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


way = sys.argv[1]
distributed.init_process_group("gloo")
rank = distributed.get_rank()
seed()
model = cut(
    nn.Sequential(nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Dropout(0.2), nn.Linear(INNER, WIDTH)),
    way,
)
seed(rank if way == "fsdp" else 0)
x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)
losses = []
for _ in range(16):
    optimizer.zero_grad()
    loss = functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
pieces = [parameter.to_local() for parameter in model.parameters()]
with open(f"{rank}.json", "w") as file:
    json.dump({"result": digest(pieces, losses) + chance(), "pid": os.getpid()}, file)
distributed.destroy_process_group()
