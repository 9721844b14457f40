"""A small training in ways that a profiler meets; prints what it ended with."""

import math
import os
import sys

import torch
from torch import nn

torch.manual_seed(0)
WAY = sys.argv[1]
NUM_STEPS = {"short": 3, "ends_inside": 7}.get(WAY, 40)

model = nn.Sequential(
    nn.Embedding(50, 32), nn.Flatten(), nn.Linear(128, 64), nn.LayerNorm(64), nn.Linear(64, 50)
)
DEVICE = "cuda" if WAY == "cuda" else "cpu"
model.to(DEVICE)
if WAY == "compiled":
    model = torch.compile(model, backend="aot_eager")
if WAY == "ranks":
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randint(50, (3200, 4)), torch.randint(50, (3200,)))
loader = torch.utils.data.DataLoader(
    data, batch_size=16, shuffle=True, num_workers=1 if WAY == "workers" else 0
)


def loss_of(inputs, targets):
    return nn.functional.cross_entropy(model(inputs.to(DEVICE)), targets.to(DEVICE))


def evaluate():
    model.eval()
    with torch.no_grad():
        model(data.tensors[0][:64])
    model.train()


def train():
    losses = []
    for step, (inputs, targets) in enumerate(loader):
        if step == NUM_STEPS:
            break
        if WAY == "own_profiler_later" and step == 6:
            own = torch.profiler.profile()
            own.start()
        loss = loss_of(inputs, targets)
        if WAY == "fails" and step == 7:
            raise ValueError("a mistake of the script's own")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if WAY == "own_profiler_later" and step == 7:
            own.stop()
            assert any(row.key == "aten::addmm" for row in own.key_averages())
        if WAY == "evaluates" and step == 6:
            evaluate()
        if WAY == "leaves" and step == 6:
            os._exit(7)
    return losses


if WAY == "own_profiler":
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=20, warmup=1, active=2)):
        losses = train()
else:
    losses = train()
assert all(map(math.isfinite, losses))
print(f"{losses[-1]:.9f}")
if WAY == "ranks":
    torch.distributed.destroy_process_group()
