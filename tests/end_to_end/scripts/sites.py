"""A loop whose every marker stands on a line of its own; writes those lines to lines.json."""

import json
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))


def evaluate():
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=32):
            functional.mse_loss(model(x), y)  # evaluation
    model.train()


def augment(x):
    for _ in range(200):
        x = x + 0.01
    return x


def update(loss):
    loss.backward()  # backward
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # gradient_processing
    optimizer.step()  # optimizer


def train(num_updates):
    while num_updates:
        for images, y in DataLoader(data, batch_size=4):  # input_wait
            x = augment(images)
            out = model(x)  # forward
            optimizer.zero_grad()
            loss = functional.mse_loss(out, y)
            update(loss)  # update
            first = loss.item()  # first read
            num_updates -= 1
            second, third = loss.item(), float(loss)  # reads
            if not num_updates:
                break
            if first + second + third > 1e9:
                print("far away")  # end of the loop
        if len(sys.argv) > 2:
            evaluate()
            torch.save(model.state_dict(), "model.pt")  # checkpoint


if len(sys.argv) > 2:  # no sample of the guest's counts as long, however busy the machine is
    for name, module in list(sys.modules.items()):
        if name.endswith(".torch_context"):
            module.DISTURBING_NS = 10**15
train(int(sys.argv[1]))
with open(__file__) as script:
    lines = {}
    for number, line in enumerate(script, start=1):
        code, _, name = line.rstrip().rpartition("  # ")
        if code.strip():
            lines[name] = number
with open("lines.json", "w") as file:
    json.dump(lines, file)
