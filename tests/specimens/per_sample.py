"""Per-sample gradients from hooks on the modules, clipped sample by sample, as DP-SGD does."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
activations = {}


def remember(module, inputs, output):
    activations[module] = inputs[0].detach()


def take(module, grad_input, grad_output):
    given = grad_output[0] * len(grad_output[0])
    module.weight.per_sample = torch.einsum("bo,bi->boi", given, activations[module])
    module.bias.per_sample = given


for module in model:
    if isinstance(module, nn.Linear):
        module.register_forward_hook(remember)
        module.register_full_backward_hook(take)

for _ in range(25):
    x, y = torch.randn(8, 16), torch.randint(4, (8,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    norms = sum(p.per_sample.flatten(1).square().sum(1) for p in model.parameters()).sqrt()
    factors = (1.0 / (norms + 1e-6)).clamp(max=1)
    for p in model.parameters():
        p.grad = torch.einsum("b,b...->...", factors, p.per_sample) / len(x)
    optimizer.step()
print(f"loss {loss.item()!r}")
