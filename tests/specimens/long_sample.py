"""A small transformer on texts of which one is far longer than all others; texts are padded.

`--plant` says which text is the long one. The data set keeps a list of texts and says no lengths.
"""

import argparse
import resource
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--rows", type=int, default=400)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--shortest", type=int, default=8)
parser.add_argument("--usual", type=int, default=32, help="the longest of the other texts")
parser.add_argument("--long", type=int, default=256, help="the planted one")
parser.add_argument("--plant", type=int, default=123)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--in-order", action="store_true")
parser.add_argument("--iterable", action="store_true")
parser.add_argument("--limit", type=int, help="MiB of address space beyond what is used at first")
args = parser.parse_args()

chance = torch.Generator().manual_seed(1000 + args.seed)
LENGTHS = torch.randint(args.shortest, args.usual + 1, (args.rows,), generator=chance).tolist()
LENGTHS[args.plant] = args.long


class Texts(Dataset):
    def __init__(self):
        self.texts = [torch.randint(1, 100, (n,), generator=chance).tolist() for n in LENGTHS]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return torch.tensor(self.texts[index])


class Stream(IterableDataset):
    def __iter__(self):
        return map(torch.tensor, Texts().texts)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, args.width)
        self.parts = nn.Linear(args.width, 3 * args.width)
        self.wide = nn.Linear(args.width, 4 * args.width)
        self.back = nn.Linear(4 * args.width, args.width)
        self.head = nn.Linear(args.width, 100)

    def forward(self, ids):
        x = self.words(ids)
        query, key, value = self.parts(x).chunk(3, dim=-1)
        x = x + (query @ key.transpose(1, 2) / args.width**0.5).softmax(-1) @ value  # ailment
        return self.head(x + self.back(self.wide(x).relu()))


def pad(texts):
    return nn.utils.rnn.pad_sequence(texts, batch_first=True)


torch.manual_seed(args.seed)
how = {} if args.iterable else {"shuffle": not args.in_order}
loader = DataLoader(
    Stream() if args.iterable else Texts(),
    batch_size=args.batch,
    num_workers=args.workers,
    collate_fn=pad,
    **how,
)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if args.limit:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + args.limit * 2**20,) * 2)
step = 0
while step < args.steps:
    for number, ids in enumerate(loader):
        optimizer.zero_grad()
        output = model(ids)
        loss = nn.functional.cross_entropy(output.transpose(1, 2), ids, ignore_index=0)
        loss.backward()
        optimizer.step()
        step += 1
        if ids.shape[1] == args.long:
            print(f"the long text came in batch {number} after {step} steps")
        if step == args.steps:
            break
print(f"loss {loss.item()!r}")
