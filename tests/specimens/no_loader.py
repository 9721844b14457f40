"""No DataLoader: batches are cut by hand from one tensor; making them is slow."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
text = torch.randint(64, (10_000,))


def get_batch():
    time.sleep(0.010)
    starts = torch.randint(len(text) - 9, (8,))
    x = torch.stack([text[i : i + 8] for i in starts])
    y = torch.stack([text[i + 1 : i + 9] for i in starts])
    return x, y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, 32)
        self.head = nn.Linear(32, 64)

    def forward(self, x):
        time.sleep(0.020)
        return self.head(self.embedding(x))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(30):
    x, y = get_batch()
    logits = model(x)
    time.sleep(0.005)  # a costly loss
    loss = F.cross_entropy(logits.view(-1, 64), y.view(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item()!r}")
