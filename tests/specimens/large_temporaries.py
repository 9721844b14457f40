"""An autoencoder with a codebook whose distances are written out: 128 MiB for a moment."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS, CODES, WIDTH, STEPS = 1024, 512, 32, 20


class Codebook(nn.Module):
    """Replaces each row by the nearest code."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(CODES, WIDTH))

    def forward(self, x):
        with torch.no_grad():
            apart = (x[:, None] - self.codes[None]).pow(2).sum(-1)  # ailment
        nearest = self.codes[apart.argmin(1)]
        return x + (nearest - x).detach(), (nearest - x.detach()).pow(2).mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(16, WIDTH)
        self.codebook = Codebook()
        self.decode = nn.Linear(WIDTH, 16)

    def forward(self, x):
        coded, apart = self.codebook(self.encode(x))
        return self.decode(coded), apart


torch.manual_seed(0)
data = TensorDataset(torch.randn(ROWS * STEPS, 16))
loader = DataLoader(data, batch_size=ROWS, shuffle=True)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for (x,) in loader:
    optimizer.zero_grad()
    output, apart = model(x)
    loss = (output - x).pow(2).mean() + apart
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
