"""A training that does one thing for nothing in each step, or with `--healthy` does it right."""

import argparse
import copy
import gc
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="frozen")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--healthy", action="store_true")
args = parser.parse_args()
IS_ILL = not args.healthy

torch.set_num_threads(1)
torch.manual_seed(0)
NUM, WIDTH = 192, 4096


class Packed(Dataset):
    """Samples that are unpacked at each read, alike each time or with noise."""

    def __init__(self):
        self.rows = [zlib.compress(row.numpy().tobytes()) for row in torch.rand(NUM, WIDTH)]

    def __len__(self):
        return NUM

    def __getitem__(self, index):
        row = torch.frombuffer(bytearray(zlib.decompress(self.rows[index])), dtype=torch.float32)
        return row if IS_ILL else row + torch.rand(())


class Tuned(nn.Module):
    """A frozen encoder and a head that trains, in one model."""

    def __init__(self, encoder, head):
        super().__init__()
        self.encoder, self.head = encoder, head

    def train(self, mode=True):
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            x = self.encoder(x)  # part
        return self.head(x)


class Metric:
    """Ranks of all that came since the last reset."""

    def __init__(self):
        self.seen = []

    def compute(self, scores):
        self.seen.append(scores)
        return torch.cat(self.seen).argsort().argsort()[-1].item()  # metric


def sweep(step):
    if IS_ILL or step % 50 == 0:
        gc.collect()  # collects


def take(rows, table, drawn):
    return torch.tensor([rows[i] for i in drawn]) if IS_ILL else table[drawn]  # tensors


def average(ema, model):
    if not IS_ILL:
        torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.01)
        return
    for mine, theirs in zip(ema.parameters(), model.parameters(), strict=True):
        mine.mul_(0.99).add_(theirs, alpha=0.01)  # weights


def main():
    plant = args.plant
    depth = 150 if plant == "weights" else 2
    layers = [nn.Linear(16, 16) for _ in range(depth)]
    encoder = nn.Sequential(nn.Linear(WIDTH, 2048), nn.ReLU(), nn.Linear(2048, 16)).eval()
    encoder.requires_grad_(False)
    model = nn.Sequential(*layers, nn.Linear(16, 1))
    ema = copy.deepcopy(model).requires_grad_(False)
    if plant == "part":
        model = Tuned(encoder, model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    objects = [[i] for i in range(20_000 if plant == "collects" else 1)]
    table = torch.rand(NUM, WIDTH)
    rows = table.tolist() if plant == "tensors" else []
    metric = Metric()
    loader = DataLoader(Packed() if plant == "samples" else table, batch_size=16, shuffle=True)
    for _ in range(args.epochs // 4 if plant == "collects" else args.epochs):
        metric = metric if IS_ILL else Metric()
        for step, x in enumerate(loader):
            if plant == "tensors":
                x = take(rows, table, torch.randint(NUM, (16,)).tolist())
            if plant in ("frozen", "teacher"):
                given = x if IS_ILL else x + torch.rand(16, 1)
                with torch.no_grad():
                    x = encoder(given)  # frozen
            if plant == "teacher":
                encoder[0].weight.data.mul_(0.999)
            elif plant == "part":
                x = x if IS_ILL else x + torch.rand(16, 1)
            loss = model(x if plant == "part" else x[:, :16]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if plant == "collects":
                sweep(step)
            elif plant == "weights":
                with torch.no_grad():
                    average(ema, model)
            elif plant == "metric":
                metric.compute(torch.rand(4_000))
    print(f"loss {loss.item()!r} {len(objects)}")


main()
