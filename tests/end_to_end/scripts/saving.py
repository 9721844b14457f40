"""Saves in every way that is watched, and says what each took by its own clock."""

import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed.checkpoint as checkpoint
from safetensors.torch import save_file
from torch import nn

clock, spent, folder = time.perf_counter, {}, tempfile.mkdtemp()
model = nn.Linear(256, 256)
optimizer = torch.optim.Adam(model.parameters())


def saved(kind, act):
    began = clock()
    found = act()
    spent.setdefault(kind, []).append(clock() - began)
    return found


def path(name):
    return os.path.join(folder, name)


for step in range(60):
    model(torch.ones(4, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    weights = {"model": model.state_dict()}
    if step == 20:
        saved("torch", lambda: torch.save(state, path("a.pt")))  # noqa: B023
        saved("safetensors", lambda: save_file(weights["model"], path("a.safetensors")))  # noqa: B023
        saved("distributed", lambda: checkpoint.save(weights, checkpoint_id=path("dcp")))  # noqa: B023
    if step == 30:
        late = saved("staging", lambda: checkpoint.async_save(weights, checkpoint_id=path("late")))  # noqa: B023
late.result()
assert sorted(os.listdir(folder)) == ["a.pt", "a.safetensors", "dcp", "late"]
sys.stdout.write(json.dumps(spent) + "\n")
