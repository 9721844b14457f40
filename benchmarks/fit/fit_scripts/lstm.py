"""A recurrent classifier of long sequences; no block is repeated, and the cells keep it all."""

import sys

import torch
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
BATCH, TIME, WIDTH = 256, 120, 96


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(500, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, tokens):
        states, _ = self.lstm(self.tokens(tokens))
        return self.head(states.amax(1))


torch.manual_seed(0)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
tokens, labels = torch.randint(0, 500, (4 * BATCH, TIME)), torch.randint(0, 4, (4 * BATCH,))
for step in range(STEPS):
    chosen = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(tokens[chosen]), labels[chosen])
    loss.backward()
    optimizer.step()
print(f"{loss.item():.4f}")
