"""A small training in which one number goes wrong in update `--at`, in one of many ways.

It prints the first update whose loss, gradients or weights are not finite, as it finds by looking
at all of them.
"""

import argparse
import math

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="forward")
parser.add_argument("--at", type=int, default=12)
parser.add_argument("--updates", type=int, default=40)
parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
parser.add_argument("--loader", action="store_true", help="batches come from a DataLoader")
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()


class Spoiled(torch.autograd.Function):
    """Passes a value on, and spoils its gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * math.nan


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(16, 8)
        self.norm = nn.LayerNorm(8)
        self.queries = nn.Linear(8, 8)
        self.out = nn.Linear(8, 4)

    def forward(self, tokens, shift, is_bad):
        x = self.words(tokens) + shift
        mask = torch.zeros(tokens.shape[1], tokens.shape[1])
        if is_bad and args.plant == "mask":
            mask[0] = -math.inf
        if is_bad and args.plant == "masked_row":  # the loss leaves it out
            mask[1] = -math.inf
        x = x + torch.softmax(self.queries(x) @ x.transpose(1, 2) + mask, dim=-1) @ x
        if is_bad and args.plant == "forward":
            x = x * math.nan
        if is_bad and args.plant in ("backward", "loss_scale"):
            x = Spoiled.apply(x)
        if is_bad and args.plant == "overflow":
            x = (x.half() * 1e5).float()
        return self.out(self.norm(x)[:, 0])


class Sentences(torch.utils.data.Dataset):
    """Words and a label, by number."""

    def __len__(self):
        return 64

    def __getitem__(self, number):
        own = torch.Generator().manual_seed(number)
        words = torch.randint(16, (5,), generator=own)
        return number, words, torch.randint(4, (), generator=own)


def batches():
    """Numbers of the samples, words and labels, without end."""
    while not args.loader:
        yield None, torch.randint(16, (8, 5)), torch.randint(4, (8,))
    loader = torch.utils.data.DataLoader(
        Sentences(), batch_size=8, shuffle=True, num_workers=args.workers
    )
    while True:
        yield from loader


def wrong(model):
    """Whether any weight or gradient is not finite."""
    tensors = [t for p in model.parameters() for t in (p, p.grad) if t is not None]
    return not all(bool(torch.isfinite(t).all()) for t in tensors)


torch.manual_seed(0)
model = Net()
if args.optimizer == "adamw":
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
is_scaled = args.plant in ("loss_scale", "overflow_once")
scaler = torch.amp.GradScaler("cpu", enabled=is_scaled)
first_bad = None

endless = batches()
for update in range(1, args.updates + 1):
    numbers, tokens, labels = next(endless)
    is_bad = update == args.at or (update > args.at and args.plant == "loss_scale")
    shift = torch.zeros(8, 5, 8)
    if is_bad and args.plant == "data":
        shift[3] = math.nan
    if is_bad and args.plant == "embedding_row":
        with torch.no_grad():
            model.words.weight[int(tokens[0, 0])] = math.inf
    optimizer.zero_grad()
    logits = model(tokens, shift, is_bad)
    loss = nn.functional.cross_entropy(logits, labels)
    if is_bad and args.plant == "division":
        loss = loss / (labels > 9).sum()
    if is_bad and args.plant == "log":
        loss = loss * (1 + torch.log(logits - 9).mean())
    if is_bad and args.plant == "overflow_once":
        loss = loss * 1e37
    if args.plant == "spike" and args.at <= update < args.at + 4:
        loss = loss * 20
    scaler.scale(loss).backward()
    if is_bad and args.plant == "optimizer_state":
        optimizer.state[model.out.weight]["exp_avg"].fill_(math.nan)
    if args.plant == "clip":
        if is_bad:
            model.out.weight.grad[0, 0] = math.inf
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if args.plant == "learning_rate" and is_bad:
        optimizer.param_groups[0]["lr"] = 1e38
    scaler.step(optimizer)
    scaler.update()
    if first_bad is None and (wrong(model) or not math.isfinite(loss.detach())):
        first_bad = update
        if numbers is not None:
            print(f"its samples {numbers.tolist()}")
print(f"first bad update {first_bad}, last loss {loss.item()!r}")
