"""A small training in which some weights learn nothing, or the graph of each update is kept."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="nothing")
parser.add_argument("--updates", type=int, default=60)
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)
        self.spare = nn.Linear(16, 4)
        self.layers = [self.spare]
        if args.plant in ("unregistered_weights", "unregistered_but_held"):
            del self.spare

    def forward(self, x):
        x = torch.tanh(self.body(x))
        if args.plant == "no_gradient":
            return self.head(x)
        return self.head(x) + self.layers[0](x) * (args.plant != "zero_gradient")


torch.manual_seed(0)
model = Net()
held = [*model.body.parameters(), *model.head.parameters()]
if args.plant not in ("unused_gradient", "unregistered_weights"):
    held += model.layers[0].parameters()
optimizer = torch.optim.AdamW(held, lr=1e-3)
rarely = torch.optim.SGD(model.spare.parameters(), lr=1e-3) if args.plant == "rarely" else None
total, best, state = 0.0, None, torch.zeros(16, 4)

for _ in range(args.updates):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    logits = model(x)
    if args.plant == "carried_state":
        state = logits + 0.5 * state
        logits = state
    loss = nn.functional.cross_entropy(logits, y)
    if args.plant == "carried_state":
        loss.backward(retain_graph=True)
        with torch.no_grad():
            for weight in held:  # as old scripts do: torch's check of versions does not see it
                weight.data.sub_(0.01 * weight.grad)
        optimizer.param_groups[0]["lr"] = 0.0
    else:
        loss.backward()
    if args.plant != "carried_state":
        optimizer.step()
    if args.plant == "growing_graph":
        total += loss
    if args.plant == "best_loss" and (best is None or loss < best):
        best = loss
print(f"loss {loss.item()!r} total {float(total)!r}")
