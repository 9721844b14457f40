"""A critic with a gradient penalty: gradients of gradients in each step."""

import json
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, DATA, WIDTH = 40, 32, 16, 24

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(DATA, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
optimizer = torch.optim.Adam(critic.parameters(), 0.01)
for _ in range(STEPS):
    real, made = torch.randn(ROWS, DATA), torch.randn(ROWS, DATA)
    between = torch.lerp(real, made, torch.rand(ROWS, 1)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = (slope.norm(2, dim=1) - 1).square().mean()
    loss = critic(made).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
FIRST, SECOND = 2 * ROWS * DATA * WIDTH, 2 * ROWS * WIDTH
FORWARD = 3 * (FIRST + SECOND)
SLOPE = FIRST + SECOND  # for the input alone
# Each of two calls: the weights, and what reaches the first layer. The slope: both of its products
# for both factors (the ones that it begins with need none), then back through the call to the
# first layer's weights and to the input.
BACKWARD = 2 * (FIRST + 2 * SECOND) + (2 * FIRST + SECOND) + 2 * FIRST
Path("work.json").write_text(json.dumps([FORWARD + SLOPE + BACKWARD] * STEPS))
