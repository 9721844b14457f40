"""A classifier that learns 48 samples with random labels by heart, and is evaluated on others."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--sound", action="store_true", help="labels that can be learned")
args = parser.parse_args()

torch.manual_seed(0)


def samples(num):
    x = torch.randn(num, 16)
    y = (x[:, :4].argmax(1)) if args.sound else torch.randint(4, (num,))
    return TensorDataset(x, y)


train = DataLoader(samples(2000 if args.sound else 48), batch_size=16, shuffle=True)
valid = DataLoader(samples(256), batch_size=32)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss_of = nn.CrossEntropyLoss()


def evaluate():
    model.eval()
    with torch.no_grad():
        total = sum(loss_of(model(x), y).item() for x, y in valid)
    model.train()
    return total / len(valid)


number = 0
while number < 200:
    for x, y in train:
        if number % 20 == 0:
            found = evaluate()
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        number += 1
        if number == 200:
            break
print(f"evaluation {found!r} loss {loss.item()!r}")
