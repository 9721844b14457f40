"""Two workers that compute all the time, for some seconds, while the training waits for them."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Busy(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
        return torch.ones(4)


torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
block = torch.ones(16 << 20)  # the workers share it
for _ in range(2):
    for x in DataLoader(Busy(), batch_size=4, num_workers=2):
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
