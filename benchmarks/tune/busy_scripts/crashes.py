"""A training that ends with an error after a few steps, as written."""

import torch
from _models import text, transformer
from _pace import read_options, steps
from torch import nn

FEW = 12


def main() -> None:
    options = read_options(__doc__)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = transformer(2, 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for number in steps(options.steps):
        if number == FEW:
            raise FileNotFoundError("shard-0012.bin")
        tokens = text(number, 8, 64)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
