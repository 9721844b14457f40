"""Trains for a moment with one planted ailment: ailing.py ACT [ARGUMENT]."""

import gc
import sys
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []


def train(num_steps, *, seconds=0.0):
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        time.sleep(seconds)


def grow():
    """Half a second of steps, 8 MiB more each."""
    for _ in range(50):
        kept.append(b"x" * (8 << 20))
        train(1, seconds=0.01)


def collect():
    """Two collections a step, in a process that has collected before."""
    for _ in range(10):
        gc.collect()
    for _ in range(20):
        train(1)
        gc.collect()
        gc.collect()


def detect():
    """Anomaly detection around the backward alone, in a run of a few steps."""
    for _ in range(5):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        with torch.autograd.detect_anomaly(check_nan=False):
            loss.backward()
        optimizer.step()


def determine():
    torch.use_deterministic_algorithms(mode=True)
    train(30, seconds=0.02)


def trace():
    sys.settrace(lambda *_: None)
    train(5)


def profile(num_steps):
    """A profiler around the first steps of thirty."""
    with torch.profiler.profile():
        train(int(num_steps))
    train(30 - int(num_steps), seconds=0.01)


def broken(x):
    x = model(x) * 2
    torch._dynamo.graph_break()
    return x.pow(2).mean()


def scaled(x, factor):
    return (model(x) * factor).pow(2).mean()


def compile_badly():
    """A break in one function; another is compiled again for each number."""
    first, second = (torch.compile(f, backend="eager", dynamic=False) for f in (broken, scaled))
    for number in range(4):
        loss = first(torch.randn(8, 4)) + second(torch.randn(8, 4), 1 + number)
        loss.backward()
        optimizer.step()


class Hungry(torch.nn.Module):
    """Asks for more memory than any machine has."""

    def forward(self, x):
        return x + torch.empty(1 << 50)


class HungryBackward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 1

    @staticmethod
    def backward(context, gradient):
        return torch.empty(1 << 50)


class HungryRows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.empty(1 << 50)


def fail(place):
    """Three steps, and then too much is asked for."""
    train(3)
    if place == "forward":
        Hungry()(torch.randn(8, 4))
    elif place == "backward":
        HungryBackward.apply(model(torch.randn(8, 4)).mean()).backward()
    elif place == "worker":
        next(iter(torch.utils.data.DataLoader(HungryRows(), num_workers=1)))
    elif place == "nowhere":
        raise ValueError("not for want of memory")


def leave(code):
    """An exit by plan after an exception that was caught."""
    train(3)
    try:
        fail("nowhere")
    except ValueError:
        sys.exit(int(code))


def fail_in_child():
    """The exception of a rank that torch.multiprocessing started."""
    torch.multiprocessing.spawn(fail_as_rank, nprocs=1)


def fail_as_rank(rank):
    fail("forward")


if __name__ == "__main__":
    gc.disable()
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
