"""A critic with a gradient penalty steps twice for each step of the generator (WGAN-GP)."""

import json
from pathlib import Path

import torch
from torch import nn

ROUNDS, TURNS, ROWS, NOISE, DATA, WIDTH = 20, 2, 32, 8, 16, 24

torch.manual_seed(0)
maker = nn.Sequential(nn.Linear(NOISE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, DATA))
critic = nn.Sequential(nn.Linear(DATA, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
making = torch.optim.Adam(maker.parameters(), 0.01)
judging = torch.optim.Adam(critic.parameters(), 0.01)
for _ in range(ROUNDS):
    for _ in range(TURNS):
        real, made = torch.randn(ROWS, DATA), maker(torch.randn(ROWS, NOISE)).detach()
        between = torch.lerp(real, made, torch.rand(ROWS, 1)).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(2, dim=1) - 1).square().mean()
        loss = critic(made).mean() - critic(real).mean() + 10 * penalty
        judging.zero_grad()
        loss.backward()
        judging.step()
    making.zero_grad()
    (-critic(maker(torch.randn(ROWS, NOISE))).mean()).backward()
    making.step()
MAKE = 2 * ROWS * (NOISE * WIDTH + WIDTH * DATA)
FIRST, SECOND = 2 * ROWS * DATA * WIDTH, 2 * ROWS * WIDTH
# The critic's terms are those of gradient_penalty.py; the generator runs forward for it.
JUDGE = MAKE + 3 * (FIRST + SECOND) + (FIRST + SECOND)
JUDGE += 2 * (FIRST + 2 * SECOND) + (2 * FIRST + SECOND) + 2 * FIRST
# Its own step goes back through the critic, whose weights have gradients, too.
OWN = MAKE + FIRST + SECOND + 2 * (FIRST + SECOND) + 2 * MAKE - 2 * ROWS * NOISE * WIDTH
Path("work.json").write_text(json.dumps(([JUDGE] * TURNS + [OWN]) * ROUNDS))
