"""Actor-critic: rollouts without gradients in the loop, two optimizers step after one backward."""

import time

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)


def environment_step(state, action):
    time.sleep(0.004)
    state = 0.9 * state + 0.1 * torch.randn(4) + 0.05 * (2.0 * action - 1.0)
    return state, float(-state.abs().sum())


state = torch.zeros(4)
for update in range(25):
    states, actions, rewards = [], [], []
    with torch.no_grad():
        for _ in range(5):
            action = Categorical(logits=actor(state)).sample()
            states.append(state)
            actions.append(action)
            state, reward = environment_step(state, action)
            rewards.append(reward)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0) + critic(state)

    states, actions = torch.stack(states), torch.stack(actions)
    values = critic(states).squeeze(-1)
    advantages = returns - values
    log_probs = Categorical(logits=actor(states)).log_prob(actions)
    loss = -(log_probs * advantages.detach()).mean() + 0.5 * advantages.pow(2).mean()

    actor_optimizer.zero_grad()
    critic_optimizer.zero_grad()
    loss.backward()
    actor_optimizer.step()
    critic_optimizer.step()
    if update % 5 == 0:
        print(f"update {update} return {returns[0].item()!r} loss {loss.item()!r}")
