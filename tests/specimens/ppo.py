"""PPO: environments are stepped with the policy, then several epochs of updates follow."""

import time

import gymnasium  # before torch, as such scripts do
import torch
from torch import nn
from torch.distributions import Categorical

ITERATIONS, STEPS, ENVIRONMENTS, EPOCHS, MINIBATCHES = 8, 8, 4, 2, 2
SIZE, ACTIONS = 6, 2


class Walk(gymnasium.Env):
    """A state that drifts; the action pushes it."""

    def reset(self, *, seed=None):
        self.generator = torch.Generator().manual_seed(seed)
        self.state, self.num_steps = torch.zeros(SIZE), 0
        return self.state, {}

    def step(self, action):
        time.sleep(0.001)
        noise = torch.randn(SIZE, generator=self.generator)
        self.state = 0.9 * self.state + 0.1 * noise + 0.05 * (2.0 * float(action) - 1.0)
        self.num_steps += 1
        return self.state, -float(self.state.abs().sum()), self.num_steps % 20 == 0, False, {}


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(SIZE, 16), nn.Tanh(), nn.Linear(16, ACTIONS))
        self.critic = nn.Sequential(nn.Linear(SIZE, 16), nn.Tanh(), nn.Linear(16, 1))

    def act(self, states, actions=None):
        policy = Categorical(logits=self.actor(states))
        actions = policy.sample() if actions is None else actions
        return actions, policy.log_prob(actions), policy.entropy(), self.critic(states).flatten()


torch.manual_seed(0)
makers = [lambda: gymnasium.Wrapper(Walk())] * ENVIRONMENTS
environments = gymnasium.vector.SyncVectorEnv(makers)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
states = torch.stack(environments.reset(seed=7)[0])

for iteration in range(ITERATIONS):
    seen = []
    for _ in range(STEPS):
        with torch.no_grad():
            actions, log_probs, _, values = agent.act(states)
        following, rewards, *_ = environments.step(actions.numpy())
        seen.append((states, actions, log_probs, values, torch.tensor(rewards)))
        states = torch.stack(following)
    with torch.no_grad():
        returns, later = [], agent.critic(states).flatten()
        for *_, rewards in reversed(seen):
            later = rewards + 0.95 * later
            returns.insert(0, later)
    time.sleep(0.004)  # advantages, flattened batches
    joined = [torch.cat(values) for values in zip(*seen, strict=True)]
    old_states, old_actions, old_log_probs, old_values, _ = joined
    advantages = torch.cat(returns) - old_values

    for _ in range(EPOCHS):
        for part in torch.randperm(len(old_states)).chunk(MINIBATCHES):
            _, log_probs, entropy, values = agent.act(old_states[part], old_actions[part])
            ratio = (log_probs - old_log_probs[part]).exp()
            gain = torch.min(ratio, ratio.clamp(0.8, 1.2)) * advantages[part]
            error = (values - torch.cat(returns)[part]).square()
            loss = error.mean() - gain.mean() - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(f"iteration {iteration} loss {loss.item()!r}")
