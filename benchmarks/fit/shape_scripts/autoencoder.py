"""A variational autoencoder of made-up digits: 784 pixels, 250 units, a code of 20."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(784, 250)
        self.mean, self.spread = nn.Linear(250, 20), nn.Linear(250, 20)
        self.decoder = nn.Linear(20, 250)
        self.pixels = nn.Linear(250, 784)

    def forward(self, images):
        hidden = torch.relu(self.encoder(images))
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        return self.pixels(torch.relu(self.decoder(code))), mean, spread


torch.manual_seed(0)
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for _ in range(20):
    images = torch.rand(128, 784)
    optimizer.zero_grad()
    pixels, mean, spread = model(images)
    distance = -0.5 * torch.sum(1 + spread - mean**2 - spread.exp())
    loss = binary_cross_entropy_with_logits(pixels, images, reduction="sum") + distance
    loss.backward()
    optimizer.step()
