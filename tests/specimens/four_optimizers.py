"""Four networks with an optimizer each, trained one after another on each batch of one loader."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(200, 16), torch.randint(4, (200,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
models = [nn.Linear(16, 4) for _ in range(4)]
makers = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
optimizers = [make(model.parameters(), lr=1e-3) for make, model in zip(makers, models, strict=True)]

for x, y in loader:
    for model, optimizer in zip(models, optimizers, strict=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
print(f"loss {loss.item()!r}")
