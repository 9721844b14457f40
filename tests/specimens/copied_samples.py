"""Trains on a data set that keeps its samples as a list of dicts, which each worker copies.

With `--arrays` the same samples are in two arrays, which the workers share.
"""

import argparse

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, num: int) -> None:
        self.rows = [
            {"path": f"images/{i:08d}.jpg", "label": i + 1000} for i in range(num)
        ]  # ailment

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int):
        row = self.rows[index]
        return torch.full((4,), float(len(row["path"]))), row["label"] % 2


class Arrays(Dataset):
    def __init__(self, num: int) -> None:
        self.paths = numpy.array([f"images/{i:08d}.jpg".encode() for i in range(num)])
        self.labels = numpy.arange(num)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return torch.full((4,), float(len(self.paths[index]))), int(self.labels[index]) % 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--num", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--arrays", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    data = (Arrays if args.arrays else Records)(args.num)
    loader = DataLoader(data, batch_size=1000, shuffle=True, num_workers=args.workers)
    model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 0
    while steps < args.steps:
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == args.steps:
                break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
