"""Textbook loop whose data set reads each sample slowly, in process or with `--num-workers N`."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SlowImages(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):  # ailment
        time.sleep(0.010)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(16, generator=generator), index % 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(SlowImages(), batch_size=4, shuffle=True, num_workers=args.num_workers)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item()!r}")


if __name__ == "__main__":
    main()
