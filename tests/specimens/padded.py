"""Trains a small transformer on rows of unequal length, whose padding shows in one of six ways.

`--way` is one of: mask (attention_mask), labels (-100 where nothing is), token (a padding id that
the model finds itself), left (a mask, padding on the left), collator (a dictionary in a dictionary
in an object that is one, as a tokenizer returns it), packed (cu_seqlens, no padding). It prints a
line for each update: rows, width, used positions, positions of the loss.
"""

import argparse
import random
import zlib
from collections import UserDict

import _leave  # noqa: F401
import torch
from torch import nn
from torch.utils.data import DataLoader

VOCABULARY, PAD, IGNORED = 997, 3, -100
WAYS = ("mask", "labels", "token", "left", "collator", "packed")


class Encoding(UserDict):
    """What a tokenizer returns: it is no dict, and holds one."""


def read_rows(text, *, num, longest, seed):
    """Rows of token ids: of the paragraphs or lines of a text, or else of random lengths."""
    rng = random.Random(seed)
    if text is None:
        lengths = [min(longest, 2 + int(rng.expovariate(5 / longest))) for _ in range(num)]
        return [[rng.randrange(4, VOCABULARY) for _ in range(length)] for length in lengths]
    with open(text, encoding="utf-8", errors="replace") as file:
        whole = file.read().replace("\r", "")
    paragraphs = whole.split("\n\n" if "\n\n" in whole else "\n")
    words = [paragraph.split() for paragraph in paragraphs]
    rows = [[4 + zlib.crc32(one.encode()) % (VOCABULARY - 4) for one in row] for row in words]
    rows = [row[:longest] for row in rows if len(row) > 1]
    rng.shuffle(rows)
    return rows[:num]


def pad(rows, width, value, *, is_left=False):
    width = width or max(map(len, rows))
    fill = [[value] * (width - len(row)) for row in rows]
    pairs = zip(rows, fill, strict=True)
    return torch.tensor([rest + row if is_left else row + rest for row, rest in pairs])


def collate(rows, way, width):
    """A batch in the given way; each row is to be told again, one position later."""
    ids = pad(rows, width, PAD, is_left=way == "left")
    mask = pad([[1] * len(row) for row in rows], width, 0, is_left=way == "left")
    labels = pad(rows, width, IGNORED, is_left=way == "left")
    if way == "labels":
        return ids, labels
    if way == "token":
        return (ids,)
    if way == "packed":
        bounds = torch.tensor([0, *map(len, rows)]).cumsum(0).int()
        flat = torch.tensor([[one for row in rows for one in row]])
        return {"input_ids": flat, "cu_seqlens": bounds, "labels": flat.clone()}
    named = {"input_ids": ids, "attention_mask": mask}
    if way == "collator":
        return {"inputs": Encoding(named | {"labels": labels}), "weight": torch.ones(len(rows))}
    return named


class Model(nn.Module):
    def __init__(self, dim, layers, longest, way):
        super().__init__()
        self.way = way
        self.embedding = nn.Embedding(VOCABULARY, dim)
        self.positions = nn.Embedding(longest + 1, dim)
        layer = nn.TransformerEncoderLayer(dim, max(1, dim // 32), 4 * dim, 0.0, batch_first=True)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoder(layer, 1, enable_nested_tensor=False) for _ in range(layers)]
        )
        self.head = nn.Linear(dim, VOCABULARY)

    def forward(self, input_ids, attention_mask=None, cu_seqlens=None, labels=None):
        width = input_ids.shape[1]
        place = torch.arange(width)
        if cu_seqlens is not None:
            begins = cu_seqlens[:-1].repeat_interleave(cu_seqlens.diff())
            place = place - begins
            hidden = begins[:, None] != begins[None, :]
            masks = {"mask": hidden}
        else:
            used = input_ids != PAD if attention_mask is None else attention_mask.bool()
            masks = {"src_key_padding_mask": ~used}
        x = self.embedding(input_ids) + self.positions(place)
        for layer in self.layers:
            x = layer(x, **masks)
        return self.head(x)


def loss_of(model, batch, way):
    if way == "labels":
        ids, labels = batch
        logits = model(ids)
    elif way == "token":
        (ids,) = batch
        labels = ids.masked_fill(ids == PAD, IGNORED)
        logits = model(ids)
    else:
        named = batch["inputs"] if way == "collator" else batch
        logits = model(**named)
        labels = named.get("labels")
        if labels is None:
            labels = named["input_ids"].masked_fill(named["attention_mask"] == 0, IGNORED)
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED
    ), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=WAYS, default="mask")
    parser.add_argument("--text", help="a file whose paragraphs are the rows")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--rows", type=int, default=8, help="rows of a batch")
    parser.add_argument("--longest", type=int, default=32)
    parser.add_argument("--width", type=int, default=0, help="0: that of the longest row")
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--layers", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(0)
    num = args.updates * args.rows
    rows = read_rows(args.text, num=num, longest=args.longest, seed=0)
    loader = DataLoader(
        rows,
        batch_size=args.rows,
        shuffle=True,
        drop_last=True,
        collate_fn=lambda rows: (rows, collate(rows, args.way, args.width)),
    )
    model = Model(args.dim, args.layers, max(args.longest, args.width), args.way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for rows, batch in loader:
        optimizer.zero_grad()
        loss, labels = loss_of(model, batch, args.way)
        loss.backward()
        optimizer.step()
        trained = int((labels != IGNORED).sum())
        print("batch", len(rows), labels.shape[1], sum(map(len, rows)), trained)
    print(f"loss {loss.item()!r}")


if __name__ == "__main__":
    main()
