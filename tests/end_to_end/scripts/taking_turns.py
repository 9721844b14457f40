"""Two networks that step in turn, batches made by hand, all in functions called in a loop."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
optimizers = [torch.optim.SGD(part.parameters(), lr=0.01) for part in (critic, generator)]


def teach_critic():
    loss = critic(torch.randn(4, 8)).mean() - critic(generator(torch.randn(4, 4)).detach()).mean()
    loss.backward()
    optimizers[0].step()


def teach_generator():
    loss = critic(generator(torch.randn(4, 4))).mean()
    loss.backward()
    optimizers[1].step()


for _ in range(int(sys.argv[1])):
    teach_critic()
    teach_generator()
