"""A discriminator makes three updates for each one of the generator."""

import json
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, NOISE, WIDTH, DATA = 80, 32, 8, 24, 16

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(NOISE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, DATA))
critic = nn.Sequential(nn.Linear(DATA, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
of_generator = torch.optim.SGD(generator.parameters(), 0.01)
of_critic = torch.optim.SGD(critic.parameters(), 0.01)
MAKE = (2 * ROWS * NOISE * WIDTH, 2 * ROWS * WIDTH * DATA)
JUDGE = (2 * ROWS * DATA * WIDTH, 2 * ROWS * WIDTH)
work = []
for step in range(STEPS):
    made = generator(torch.randn(ROWS, NOISE))
    if step % 4 < 3:
        loss = critic(made.detach()).mean() - critic(torch.randn(ROWS, DATA)).mean()
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        work.append(sum(MAKE) + 2 * (2 * JUDGE[0] + 3 * JUDGE[1]))
    else:
        of_generator.zero_grad()
        (-critic(made).mean()).backward()
        of_generator.step()
        work.append(2 * MAKE[0] + 3 * MAKE[1] + 3 * sum(JUDGE))
Path("work.json").write_text(json.dumps(work))
