"""Trains in the way that is named, for so many steps; writes a digest of the weights."""

import hashlib
import json
import os
import sys
from pathlib import Path

import _leave  # noqa: F401
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def small(size=8, out=1):
    return nn.Sequential(nn.Linear(size, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, out))


def make_loader(batch_size=16, num_workers=0):
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    return DataLoader(data, batch_size=batch_size, shuffle=True, num_workers=num_workers)


def endless(loader):
    while True:
        yield from loader


def train(model, batches, num_steps, accumulate=1):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(num_steps):
        for _ in range(accumulate):
            x, y = next(batches)
            functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [model]


def plain(num_steps):
    return train(small(), endless(make_loader()), num_steps)


def workers(num_steps):
    return train(small(), endless(make_loader(num_workers=2)), num_steps)


def accumulation(num_steps):
    return train(small(), endless(make_loader()), num_steps, accumulate=5)


def left_on(num_steps):
    torch.autograd.set_detect_anomaly(True)
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(num_steps):
        optimizer.zero_grad(set_to_none=False)
        x = torch.randn(16, 8, requires_grad=True)
        checkpoint(model, x, use_reentrant=False).square().mean().backward()
        optimizer.step()
    return [model]


def no_loader(num_steps):
    def batches():
        while True:
            yield torch.randn(5, 8), torch.randn(5, 1)

    return train(small(), batches(), num_steps)


def tokens(num_steps):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 8)
            self.head = nn.Linear(8, 1)

        def forward(self, numbers, *, scale):
            return scale * self.head(self.table(numbers).mean(1))

    model = Reader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.randint(0, 20, (4, 7)), scale=2.0).square().mean().backward()
        optimizer.step()
    return [model]


def gan(num_steps):
    maker, judge = small(4, 8), small(8, 1)
    of_maker = torch.optim.Adam(maker.parameters(), lr=0.001)
    of_judge = torch.optim.SGD(judge.parameters(), lr=0.001)
    batches = endless(make_loader())
    for _ in range(num_steps):
        (real, _), noise = next(batches), torch.randn(16, 4)
        of_judge.zero_grad()
        loss = functional.softplus(-judge(real)) + functional.softplus(judge(maker(noise).detach()))
        loss.mean().backward()
        of_judge.step()
        of_maker.zero_grad()
        functional.softplus(-judge(maker(noise))).mean().backward()
        of_maker.step()
    return [maker, judge]


def closure(num_steps):
    model, batches = small(), endless(make_loader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(num_steps):
        x, y = next(batches)

        def close(x=x, y=y):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        if number % 2:
            optimizer.step(closure=close)
        else:
            optimizer.step(close)
    return [model]


def evaluating(num_steps):
    model, batches, held_out = small(), endless(make_loader()), make_loader(batch_size=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(num_steps):
        model.eval()
        with torch.no_grad():
            for x, y in held_out:
                functional.mse_loss(model(x), y)
        model.train()
        x, y = next(batches)
        functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [model]


def images(num_steps):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    model.append(nn.Linear(8 * 36, 1))
    data = TensorDataset(torch.randn(64, 3, 8, 8), torch.randn(64, 1))
    return train(model, endless(DataLoader(data, batch_size=16, shuffle=True)), num_steps)


def compiled(num_steps):
    model = small()
    train(torch.compile(model, backend="eager"), endless(make_loader()), num_steps)
    return [model]


def ranks(num_steps):
    torch.distributed.init_process_group("gloo")
    net = small()
    model = nn.parallel.DistributedDataParallel(net)
    train(model, endless(make_loader()), num_steps)
    torch.distributed.barrier()
    del model  # freed after its group, torch may wait for ever
    torch.distributed.destroy_process_group()
    return [net]


WAYS = (
    plain,
    left_on,
    workers,
    accumulation,
    no_loader,
    tokens,
    gan,
    closure,
    evaluating,
    images,
    compiled,
    ranks,
)

if __name__ == "__main__":
    torch.manual_seed(0)
    models = {way.__name__: way for way in WAYS}[sys.argv[1]](int(sys.argv[2]))
    found = hashlib.sha256()
    for model in models:
        for tensor in model.state_dict().values():
            found.update(tensor.numpy().tobytes())
    found.update(torch.get_rng_state().numpy().tobytes())
    name = f"digest-{os.environ.get('RANK', '0')}.json"
    Path(name).write_text(json.dumps(found.hexdigest()))
