"""Trains a small convolutional network as scripts do, and writes what came of it.

Accumulation, clipping, dropout, an evaluation, an average of the weights, a checkpoint; with the
word `ranks`, DistributedDataParallel and a loss whose gradients overflow in fp16 at first.
"""

import copy
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import _leave  # noqa: F401
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Dropout(0.2),
        )  # fmt: skip
        self.head = nn.Linear(32 * 16, 10)

    def forward(self, images, labels):
        logits = self.head(self.features(images).flatten(1))
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def main(way, num_steps, factor):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if way == "ranks":
        torch.distributed.init_process_group("gloo")
    images, labels = torch.randn(64, 3, 8, 8), torch.randint(10, (64,))
    loader = DataLoader(TensorDataset(images, labels), batch_size=8, shuffle=True)
    net = Net()
    model = nn.parallel.DistributedDataParallel(net) if way == "ranks" else net
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    average, losses, norms, dtypes, batches = copy.deepcopy(net), [], [], set(), iter(loader)
    for _ in range(num_steps):
        optimizer.zero_grad()
        for part in range(2):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
                x, y = next(batches)
            with model.no_sync() if way == "ranks" and part == 0 else nullcontext():
                outputs = model(x, y)
                (outputs["loss"] * factor / 2).backward()
            dtypes.add(str(outputs["logits"].dtype))
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), factor).item() / factor)
        optimizer.step()
        losses.append(outputs["loss"].item())
        with torch.no_grad():
            for mean, new in zip(average.parameters(), net.parameters(), strict=True):
                mean.lerp_(new, 0.1)
    net.eval()
    with torch.no_grad():
        evaluation = net(images, labels)["loss"].item()
    torch.save((net, net.state_dict(), optimizer.state_dict()), f"checkpoint-{way}.pt")
    found = {"losses": losses, "norms": norms, "dtypes": sorted(dtypes), "evaluation": evaluation}
    found["weights"] = [p.double().sum().item() for p in net.parameters()]
    Path(f"found-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(found))
    if way == "ranks":
        torch.distributed.barrier()
        del model  # freed after its group, torch may wait for ever
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
