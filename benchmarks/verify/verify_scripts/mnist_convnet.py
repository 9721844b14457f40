"""Trains the convolutional network of PyTorch's MNIST example on a part of MNIST.

The same layers and optimizer (Adadelta, its learning rate falling by epochs); the images come from
the four files of MNIST in a folder. It prints the loss on a part of the test images every so often.
"""

import argparse
import contextlib
import gzip
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = functional.relu(self.conv2(functional.relu(self.conv1(x))))
        x = self.dropout1(functional.max_pool2d(x, 2)).flatten(1)
        return self.fc2(self.dropout2(functional.relu(self.fc1(x))))


def read(folder, name):
    path = next(Path(folder).glob(f"{name}*"))
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    head = 16 if "images" in name else 8
    values = torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=head).copy())
    return values.view(-1, 1, 28, 28).float() / 255 if "images" in name else values.long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--num-train", type=int, default=4000)
    parser.add_argument("--num-test", type=int, default=500)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    x, y = read(args.data, "train-images"), read(args.data, "train-labels")
    x, y = x[: args.num_train], y[: args.num_train]
    test_x, test_y = read(args.data, "t10k-images"), read(args.data, "t10k-labels")
    test_x, test_y = test_x[: args.num_test], test_y[: args.num_test]
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, args.steps)
    order = torch.randperm(len(x))
    for step in range(1, args.steps + 1):
        at = (step - 1) * args.batch % (len(x) - args.batch + 1)
        if at < args.batch:
            order = torch.randperm(len(x))
        rows = order[at : at + args.batch]
        cast = torch.autocast("cpu", torch.bfloat16) if args.bf16 else contextlib.nullcontext()
        with cast:
            loss = functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % args.every == 0:
            model.eval()
            with torch.no_grad():
                loss = functional.cross_entropy(model(test_x), test_y).item()
            print(f"step {step} test loss {loss:.6f}", flush=True)
            model.train()


if __name__ == "__main__":
    main()
