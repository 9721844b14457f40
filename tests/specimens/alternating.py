"""Five steps of the discriminator to one of the generator, twelve times."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
generator_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-5)

for _ in range(12):
    for _ in range(5):
        critic_optimizer.zero_grad()
        fake = generator(torch.randn(16, 4)).detach()
        loss = critic(fake).mean() - critic(torch.randn(16, 8)).mean()
        loss.backward()
        critic_optimizer.step()
        for p in critic.parameters():
            p.data.clamp_(-0.01, 0.01)
    generator_optimizer.zero_grad()
    (-critic(generator(torch.randn(16, 4))).mean()).backward()
    generator_optimizer.step()
print(f"loss {loss.item()!r}")
