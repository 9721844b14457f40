"""Textbook loop whose two workers start anew in each of 8 short epochs, and start slowly."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.020)
        return super().forward(x)


def open_archive(worker):
    time.sleep(0.200)


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 16), torch.randint(4, (40,)))
    loader = DataLoader(
        data, batch_size=8, shuffle=True, num_workers=2, worker_init_fn=open_archive
    )
    model = Net(16, 4)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        for x, y in loader:  # ailment
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item()!r}")


if __name__ == "__main__":
    main()
