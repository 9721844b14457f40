"""Textbook loop whose two workers start and stop in each of 6 short epochs, both slowly."""

import time
from multiprocessing.util import Finalize

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.020)
        return super().forward(x)


def open_archive(worker):
    time.sleep(0.150)
    Finalize(None, time.sleep, args=(0.050,), exitpriority=1)  # and it closes as slowly


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(48, 16), torch.randint(4, (48,)))
    loader = DataLoader(
        data, batch_size=8, shuffle=True, num_workers=2, worker_init_fn=open_archive
    )
    model = Net(16, 4)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        for x, y in loader:  # ailment
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item()!r}")


if __name__ == "__main__":
    main()
