"""A frozen decoder with trained adapters of low rank beside its matrices, as LoRA has them."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

STEPS, BATCH, SEQ, WIDTH, HEADS, LAYERS, VOCAB, RANK = 70, 4, 16, 32, 2, 2, 64, 2
SIZES = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))


class Adapted(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False)
        self.down = nn.Linear(inputs, RANK, bias=False)
        self.up = nn.Linear(RANK, outputs, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.out, self.wide, self.narrow = (Adapted(*sizes) for sizes in SIZES)

    def forward(self, x):
        keys = self.keys(x).view(BATCH, SEQ, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*keys)
        x = x + self.out(mixed.transpose(1, 2).reshape(BATCH, SEQ, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(x)))


torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(VOCAB, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, VOCAB)
)
for name, weight in model.named_parameters():
    weight.requires_grad_(".down." in name or ".up." in name)
trained = [weight for weight in model.parameters() if weight.requires_grad]
optimizer = torch.optim.AdamW(trained, 0.001)
for _ in range(STEPS):
    words = torch.randint(0, VOCAB, (BATCH, SEQ))
    loss = functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# A token: each frozen weight forward and for the gradient of its input, each trained one a third
# time. The first matrix and its adapter begin the graph: their input needs no gradient.
frozen = LAYERS * sum(inputs * outputs for inputs, outputs in SIZES) + WIDTH * VOCAB
low = LAYERS * sum(RANK * (inputs + outputs) for inputs, outputs in SIZES)
first = WIDTH * 3 * WIDTH + WIDTH * RANK
attention = LAYERS * 12 * SEQ * WIDTH
work = BATCH * SEQ * (4 * frozen + 6 * low - 2 * first + attention)
Path("work.json").write_text(json.dumps([work] * STEPS))
facts = {
    "num_parameters": sum(weight.numel() for weight in model.parameters()),
    "num_trained": low,
    "tokens_per_step": BATCH * SEQ,
}
Path("facts.json").write_text(json.dumps(facts))
