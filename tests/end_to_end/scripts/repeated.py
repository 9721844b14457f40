"""Trains a model that repeats a block, some checkpointed, and saves it; graphs run as they are."""

import _leave  # noqa: F401
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.compiler.set_stance(force_backend="aot_eager")  # whoever compiles: no C++ compiler runs


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(torch.tanh(self.mix(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.blocks = nn.ModuleList(Block(8) for _ in range(4))

    def forward(self, x):
        x = self.entry(x)
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)
        return self.head(x)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, shapes = Net(), []
    model.blocks[2].register_forward_hook(lambda *three: shapes.append(tuple(three[2].shape)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item()!r}")
    model.eval()
    with torch.no_grad():
        print(f"evaluation {model(torch.ones(2, 4)).sum().item()!r} {shapes}")
    model.blocks[2]._forward_hooks.clear()
    torch.save((model, optimizer.state_dict()), "repeated.pt")


if __name__ == "__main__":
    main()
