"""A language model that saves all it has after each step: the step is not the whole loop."""

import os
import tempfile

import torch
from _models import text, transformer
from _pace import read_options, steps
from torch import nn


def main() -> None:
    options = read_options(__doc__)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = transformer(4, 256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    with tempfile.TemporaryDirectory() as folder:
        for number in steps(options.steps):
            tokens = text(number, 4, 128)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.remedy):
                logits = model(tokens[:, :-1])
            flat = logits.float().flatten(0, 1)
            loss = nn.functional.cross_entropy(flat, tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, os.path.join(folder, "last.pt"))


if __name__ == "__main__":
    main()
