"""Every fourth step begins with a rollout: the model is called without gradients, step by step."""

import json
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, DATA, WIDTH, ACTIONS, LENGTH = 60, 32, 16, 24, 4, 10

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(DATA, WIDTH), nn.Tanh(), nn.Linear(WIDTH, ACTIONS))
optimizer = torch.optim.Adam(policy.parameters(), 0.01)
work = []
for step in range(STEPS):
    num_rolled = 0
    if step % 4 == 0:
        seen, state = [], torch.randn(8, DATA)
        with torch.no_grad():
            for _ in range(LENGTH):
                seen.append(state)
                state = state + 0.1 * policy(state).repeat(1, DATA // ACTIONS)
        states = torch.cat(seen)
        num_rolled = len(states)
    loss = policy(states[torch.randperm(len(states))[:ROWS]]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    trained = 2 * ROWS * (2 * DATA * WIDTH + 3 * WIDTH * ACTIONS)
    work.append(trained + 2 * num_rolled * WIDTH * (DATA + ACTIONS))
Path("work.json").write_text(json.dumps(work))
