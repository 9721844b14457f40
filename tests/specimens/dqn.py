"""DQN: each action is chosen by the network that trains, and every fourth step makes an update."""

import random
import time

import gymnasium  # before torch, as such scripts do
import torch
from torch import nn

STEPS, LEARNS_AFTER, LEARNS_EVERY, BATCH = 160, 32, 4, 32
SIZE, ACTIONS = 4, 2


class Walk(gymnasium.Env):
    """A state that drifts; the action pushes it."""

    def reset(self, *, seed=None):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.zeros(SIZE)
        return self.state, {}

    def step(self, action):
        time.sleep(0.003)
        noise = torch.randn(SIZE, generator=self.generator)
        self.state = 0.9 * self.state + 0.1 * noise + 0.05 * (2.0 * action - 1.0)
        return self.state, -float(self.state.abs().sum()), False, False, {}


def make_network():
    return nn.Sequential(nn.Linear(SIZE, 16), nn.ReLU(), nn.Linear(16, ACTIONS))


torch.manual_seed(0)
random.seed(0)
environment, network, target = Walk(), make_network(), make_network()
target.load_state_dict(network.state_dict())
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
buffer = []
state, _ = environment.reset(seed=7)

for step in range(STEPS):
    if random.random() < 0.2:
        action = random.randrange(ACTIONS)
    else:
        action = int(network(state).argmax())  # with gradients that nobody uses
    following, reward, *_ = environment.step(action)
    buffer.append((state, action, reward, following))
    state = following
    if step < LEARNS_AFTER or step % LEARNS_EVERY:
        continue
    time.sleep(0.002)  # drawing from the buffer
    drawn = random.sample(buffer, BATCH)
    states, actions, rewards, followings = zip(*drawn, strict=True)
    with torch.no_grad():
        best = torch.tensor(rewards) + 0.95 * target(torch.stack(followings)).max(1).values
    chosen = network(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])[:, 0]
    loss = nn.functional.mse_loss(chosen, best)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        target.load_state_dict(network.state_dict())
        print(f"step {step} loss {loss.item()!r}")
