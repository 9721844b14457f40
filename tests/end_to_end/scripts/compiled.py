"""What dynamo makes of a script: graphs, breaks and losses of each case, to found.json."""

from __future__ import annotations

import json
import logging
import tempfile

import torch
import torch._dynamo
from torch import distributed, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
BACKEND = "aot_eager"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.layers(x)).squeeze(-1)


class Broken(nn.Module):
    """Has a graph break of its own between two calls of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Net()

    def forward(self, x):
        hidden = self.inner(x)
        torch._dynamo.graph_break()
        return self.inner(x) + hidden


def make(cls=Net):
    torch.manual_seed(1)
    model = cls()
    return model, torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))


torch.manual_seed(0)
X, Y = torch.randn(32, 8), torch.randn(32)


def train(call, model, optimizer, step=None, num=3):
    losses = []
    for _ in range(num):
        optimizer.zero_grad()
        loss = functional.mse_loss(call(X).squeeze(), Y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        (step or optimizer.step)()
        losses.append(loss.item())
    return losses


def a_model():
    model, optimizer = make()
    return train(torch.compile(model, backend=BACKEND), model, optimizer)


def a_model_in_place():
    model, optimizer = make()
    model.compile(backend=BACKEND)
    return train(model, model, optimizer)


def a_container_in_place():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    model.compile(backend=BACKEND)
    return train(model, model, torch.optim.SGD(model.parameters(), lr=0.1))


def a_model_in_a_model_in_place():
    model, optimizer = make()
    model.layers.compile(backend=BACKEND)
    return train(model, model, optimizer)


def a_model_with_a_break():
    model, optimizer = make(Broken)
    return train(torch.compile(model, backend=BACKEND), model, optimizer)


def a_model_with_hooks():
    model, optimizer = make()
    model.register_forward_hook(lambda module, args, out: out * 1)
    return train(torch.compile(model, backend=BACKEND), model, optimizer)


def a_function_that_calls_the_model():
    model, optimizer = make()

    def call(x):
        return model(x) * 1

    return train(torch.compile(call, backend=BACKEND), model, optimizer)


def a_loss_function():
    model, optimizer = make()
    criterion = nn.MSELoss()
    loss_of = torch.compile(lambda x, y: criterion(model(x), y), backend=BACKEND)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(X, Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def a_function_with_backward_and_clipping():
    model, optimizer = make()

    @torch.compile(backend=BACKEND)
    def run(x, y):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    losses = []
    for _ in range(3):
        losses.append(run(X, Y).item())
        optimizer.step()
    return losses


def a_compiled_optimizer_step():
    model, optimizer = make()
    return train(model, model, optimizer, torch.compile(optimizer.step, backend=BACKEND))


def a_function_that_steps():
    model, optimizer = make()

    @torch.compile(backend=BACKEND)
    def step():
        optimizer.step()

    # Until all that is looked at once in a while has been looked at within the function.
    return train(model, model, optimizer, step, num=60)


def a_parallel_model_that_steps():
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        model, optimizer = make()
        parallel = nn.parallel.DistributedDataParallel(model)

        @torch.compile(backend=BACKEND)
        def step():
            optimizer.zero_grad()
            loss = functional.mse_loss(parallel(X), Y)
            loss.backward()
            optimizer.step()
            return loss

        losses = [step().item() for _ in range(3)]
        distributed.destroy_process_group()
    return losses


def scalar_reads():
    @torch.compile(backend=BACKEND)
    def read(x):
        total = x.sum().item()
        first = float(x[0, 0])
        if x.mean() > 0:
            return x + total
        return (x * first).to(torch.float64)

    return [read(X).sum().item() for _ in range(3)]


def copies():
    @torch.compile(backend=BACKEND, fullgraph=True)
    def move(x):
        return x.to("cpu").to(torch.float64).cpu() + x.to(X)

    return [move(X).sum().item() for _ in range(2)]


def checkpointed_activations():
    model, optimizer = make()
    call = torch.compile(lambda x: checkpoint(model, x, use_reentrant=False), backend=BACKEND)
    return train(call, model, optimizer)


def other_shapes_and_modes():
    model, _ = make()
    call = torch.compile(model, backend=BACKEND)
    losses = [call(X[:size]).sum().item() for size in (32, 16, 8)]
    model.eval()
    with torch.no_grad():
        losses.append(call(X).sum().item())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses.append(call(X).sum().item())
    return losses


CASES = (
    a_model,
    a_model_in_place,
    a_container_in_place,
    a_model_in_a_model_in_place,
    a_model_with_a_break,
    a_model_with_hooks,
    a_function_that_calls_the_model,
    a_loss_function,
    a_function_with_backward_and_clipping,
    a_compiled_optimizer_step,
    a_function_that_steps,
    a_parallel_model_that_steps,
    scalar_reads,
    copies,
    checkpointed_activations,
    other_shapes_and_modes,
)

if __name__ == "__main__":
    counters = torch._dynamo.utils.counters
    found = {}
    for case in CASES:
        torch._dynamo.reset()
        counters.clear()
        losses = [value.hex() for value in case()]
        found[case.__name__] = {
            "losses": losses,
            "graphs": counters["stats"].get("unique_graphs", 0),
            "breaks": sum(counters["graph_break"].values()),
            "frames": dict(counters["frames"]),
            "recompiles": sum(counters["recompile_limit"].values()),
            "inline_calls": len(counters["inline_call"]),
        }
    with open("found.json", "w") as file:
        json.dump(found, file, indent=1)
