"""One of two gloo ranks: gradients transformed under DDP, and as shards of FSDP2.

Run by test_gradient_ranks.py as `python gradient_ranks.py RANK STORE`; rank 0 prints the largest
difference from one process with the whole batch, a JSON object by name.
"""

import copy
import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from steptime.methods import gradients as g

TRANSFORMS = {
    "znorm": g.ZNorm(),
    "damped_znorm": g.DampedZNorm(),
    "centralize": g.Centralize(),
    "unit_norm": g.UnitNorm(),
    "unit_rms": g.UnitRms(),
    "clip_norm": g.ClipNorm(0.05),
    "clip_value": g.ClipValue(0.01),
    "clip_adaptive": g.ClipAdaptive(),
}


def make():
    torch.manual_seed(0)
    # 7 rows over two ranks: the shards differ in size, and the last bias is on one of them alone.
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def gradients(model, inputs, transform):
    model(inputs).square().mean().backward()
    g.transform_gradients(model.parameters(), transform)
    grads = [one.grad for one in model.parameters()]
    return [one.full_tensor() if hasattr(one, "full_tensor") else one for one in grads]


def worst(found, expected):
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


def main():
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{sys.argv[2]}")
    torch.manual_seed(1)
    inputs = torch.randn(8, 6, dtype=torch.float64)
    own = inputs.chunk(2)[rank]
    mesh = init_device_mesh("cpu", (2,))
    differences = {}
    for name, transform in TRANSFORMS.items():
        expected = gradients(make(), inputs, transform)
        wrapped = DistributedDataParallel(make())
        differences[f"ddp {name}"] = worst(gradients(wrapped, own, transform), expected)
        del wrapped  # freed after its group, torch may wait for ever
        sharded = copy.deepcopy(make())
        fully_shard(sharded, mesh=mesh)
        differences[f"fsdp2 {name}"] = worst(gradients(sharded, own, transform), expected)
    if rank == 0:
        print(json.dumps(differences))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
