"""Three loaders: labeled and unlabeled data each step, validation each epoch; all fetch slowly."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __init__(self, size, seconds):
        self.x = torch.randn(size, 16)
        self.y = torch.randint(4, (size,))
        self.seconds = seconds

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return self.x[index], self.y[index]


torch.manual_seed(0)
labeled = DataLoader(Slow(24, 0.005), batch_size=2, shuffle=True)
unlabeled = DataLoader(Slow(48, 0.002), batch_size=4, shuffle=True)
validation = DataLoader(Slow(8, 0.010), batch_size=4)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(3):
    model.train()
    for (x, y), (u, _) in zip(labeled, unlabeled, strict=True):
        supervised = F.cross_entropy(model(x), y)
        consistency = F.mse_loss(model(u), model(u + 0.1 * torch.randn_like(u)))
        loss = supervised + 0.1 * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(model(x), y).item() for x, y in validation]
    print(f"epoch {epoch} loss {loss.item()!r} validation {sum(losses)!r}")
