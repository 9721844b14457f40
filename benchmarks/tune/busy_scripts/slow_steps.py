"""The same language model with seconds a step: few steps fit into a budget."""

import torch
from _models import text, transformer
from _pace import read_options, steps
from torch import nn


def main() -> None:
    options = read_options(__doc__)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = transformer(6, 384)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for number in steps(options.steps):
        tokens = text(number, 8, 192)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.remedy):
            logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
