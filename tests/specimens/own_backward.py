"""Gradients and updates written by hand, without autograd: nothing that ends a step is seen."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(320, 16)
loader = DataLoader(TensorDataset(x, x @ torch.randn(16, 1)), batch_size=16, shuffle=True)
w1, w2 = 0.1 * torch.randn(16, 32), 0.1 * torch.randn(32, 1)

for x, y in loader:
    hidden = x @ w1
    active = hidden.clamp(min=0)
    error = 2 * (active @ w2 - y) / len(x)
    grad_w2 = active.T @ error
    grad_w1 = x.T @ ((error @ w2.T) * (hidden > 0))
    w1 -= 0.05 * grad_w1
    w2 -= 0.05 * grad_w2
print(f"error {error.abs().mean().item()!r}")
