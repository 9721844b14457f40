"""A model called in pieces: encoder, decoder and loss module, each slow; no module holds all."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def compute_for(seconds):
    """Keep a core busy, as arithmetic does: what sleeps is no arithmetic."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Encoder(nn.Linear):
    def forward(self, x):
        compute_for(0.010)
        return torch.relu(super().forward(x))


class Decoder(nn.Linear):
    def forward(self, z):
        compute_for(0.010)
        return super().forward(z)


class ReconstructionLoss(nn.Module):
    def forward(self, output, target):
        compute_for(0.010)
        return (output - target).pow(2).mean()


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(200, 32)), batch_size=8, shuffle=True)
encoder, decoder, criterion = Encoder(32, 8), Decoder(8, 32), ReconstructionLoss()
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-3)

for (x,) in loader:
    z = encoder(x)
    z = z + 0.01 * torch.randn_like(z)
    output = decoder(z)
    loss = criterion(output, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
