"""A small transformer on texts that are padded to one length, most of which is padding.

`--unmasked` lets padded positions into the mean, so that the result depends on how many there are.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--rows", type=int, default=512)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--length", type=int, default=96, help="to which texts are padded")
parser.add_argument("--longest", type=int, default=40)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--unmasked", action="store_true")
args = parser.parse_args()


class Texts(Dataset):
    def __init__(self):
        chance = torch.Generator().manual_seed(1)
        lengths = torch.randint(4, args.longest + 1, (args.rows, 1), generator=chance)
        self.mask = (torch.arange(args.length) < lengths).long()
        words = torch.randint(2, 100, (args.rows, args.length), generator=chance)
        self.ids = words * self.mask
        self.labels = (words[:, :4].sum(1) > 200).long()

    def __len__(self):
        return args.rows

    def __getitem__(self, index):
        fields = {"input_ids": self.ids, "attention_mask": self.mask, "labels": self.labels}
        return {name: tensor[index] for name, tensor in fields.items()}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Linear(args.width, 3 * args.width)
        self.wide = nn.Linear(args.width, 4 * args.width)
        self.back = nn.Linear(4 * args.width, args.width)
        self.norms = nn.ModuleList([nn.LayerNorm(args.width), nn.LayerNorm(args.width)])
        self.dropout = nn.Dropout(args.dropout)

    def forward(self, x, is_text):
        query, key, value = self.parts(self.norms[0](x)).chunk(3, dim=-1)
        scores = query @ key.transpose(1, 2) / args.width**0.5
        scores = scores.masked_fill(~is_text[:, None, :], float("-inf"))
        x = x + self.dropout(scores.softmax(-1) @ value)
        return x + self.dropout(self.back(self.wide(self.norms[1](x)).relu()))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, args.width)
        self.places = nn.Embedding(args.length, args.width)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(args.width, 2)

    def forward(self, input_ids, attention_mask):
        is_text = attention_mask.bool()
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        for layer in self.layers:
            x = layer(x, is_text)
        if args.unmasked:
            return self.head(x.mean(1))
        x = x * is_text[:, :, None]
        return self.head(x.sum(1) / is_text.sum(1, keepdim=True))


torch.manual_seed(0)
loader = DataLoader(Texts(), batch_size=16, shuffle=True)
model = Model()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0
while step < args.steps:
    for batch in loader:
        labels = batch.pop("labels")
        optimizer.zero_grad()
        loss = criterion(model(**batch), labels)
        loss.backward()
        optimizer.step()
        step += 1
        if step == args.steps:
            break
print(f"loss {loss.item()!r}")
