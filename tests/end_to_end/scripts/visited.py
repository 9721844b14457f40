"""Trains before, during and after a visit of the guest: `visited.py WAY OUT`.

What it finds goes to OUT: the bits of all losses and weights, and what the visit left behind.
"""

import functools
import gc
import hashlib
import json
import multiprocessing.util
import sys
import threading
import time
import weakref
from pathlib import Path

import torch
import torch.optim.optimizer as optimizers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

OURS = "steptime.guest"
SEEN = []
HANDLED = {torch.Tensor.item: "item", torch.Tensor.to: "to"}  # made before any visit

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in HANDLED:
            SEEN.append(HANDLED[func])
        return super().__torch_function__(func, types, args, kwargs or {})


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))


def train(num_epochs=2, *, num_workers=0, clip=None):
    losses = []
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=num_workers)
    for _ in range(num_epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            (clip or nn.utils.clip_grad_norm_)(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item().hex())
    Logged(torch.ones(1)).item()
    return losses


def bits():
    parts = [*model.state_dict().values(), torch.get_rng_state()]
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


def is_code(value):
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))


def namespaces():
    """Each function and class in torch's modules and classes, by where it is."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("torch", "socket", "subprocess", "multiprocessing"):
            continue
        for key, value in list(vars(module).items()):
            if is_code(value):
                found[f"{name}.{key}"] = value
            if isinstance(value, type):
                inner = {k: v for k, v in vars(value).items() if is_code(v)}
                found |= {f"{name}.{key}.{k}": v for k, v in inner.items()}
    return found


def registries():
    return {
        "gc": len(gc.callbacks),
        "finders": [type(one).__name__ for one in sys.meta_path],
        "finalizers": len(multiprocessing.util._finalizer_registry),
        "before_step": len(optimizers._global_optimizer_pre_hooks),
        "after_step": len(optimizers._global_optimizer_post_hooks),
        "threads": threading.active_count(),
        "tracer": sys.gettrace() is not None,
    }


def is_ours(value):
    value = getattr(value, "__func__", value)
    names = getattr(value, "__globals__", None)
    return isinstance(names, dict) and str(names.get("__name__", "")).startswith(OURS)


def sizes(folder):
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def visited(folder, found):
    """What is to be found out about two visits; the second one leaves nothing that is held."""
    from steptime.guest.late import Visit

    before, known = namespaces(), registries()
    first = Visit(str(folder / "first"))
    first.begin()
    from torch.nn.utils import clip_grad_norm_ as held

    found["hooked"] = sum(map(is_ours, namespaces().values()))
    found["losses"] += train(clip=held) + train(1, num_workers=1)
    torch.save(model.state_dict(), folder / "model.pt")
    first.end()
    after = namespaces()
    found["changed"] = [name for name, value in before.items() if after.get(name) is not value]
    found["left"] = [name for name, value in after.items() if is_ours(value)]
    found["registries"] = [known, registries()]
    found["held_is_ours"] = is_ours(held)
    written, until = sizes(folder / "first"), time.perf_counter() + 0.3
    found["losses"] += train(clip=held)
    while time.perf_counter() < until:  # longer than the guest waits between two writes
        held(model.parameters(), 1e9)
    found["wrote_later"] = sizes(folder / "first") != written

    second = Visit(str(folder / "second"))
    second.begin()
    context = weakref.ref(second.context)
    found["losses"] += train()
    second.end(ValueError("what the cell raised"))
    gc.collect()
    found["context_lives"] = context() is not None
    again = namespaces()
    found["changed_again"] = [name for name in before if again.get(name) is not before[name]]
    found["registries"].append(registries())


def bare(folder, found):
    from torch.nn.utils import clip_grad_norm_ as held

    found["losses"] += train(clip=held) + train(1, num_workers=1)
    torch.save(model.state_dict(), folder / "model.pt")
    found["losses"] += train(clip=held)
    found["losses"] += train()


def compiled(folder, found, *, is_visited):
    """Compile before a visit and in one, and use both in it and after it."""
    from steptime.guest.late import Visit

    visit = Visit(str(folder / "first"))
    x, graphs = torch.ones(4, 8), []

    def use(*functions):
        for function in functions:
            for _ in range(3):
                optimizer.zero_grad()
                loss = function(x).square().mean()
                loss.backward()
                optimizer.step()
                found["losses"].append(loss.item().hex())
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    early = torch.compile(model, backend="eager")
    use(early)
    if is_visited:
        visit.begin()
    late = torch.compile(Model(), backend="eager")
    use(early, late)
    if is_visited:
        visit.end()
    use(early, late)
    found["graphs"] = graphs


WAYS = {
    "visited": visited,
    "bare": bare,
    "compiled": functools.partial(compiled, is_visited=True),
    "compiled_bare": functools.partial(compiled, is_visited=False),
}

if __name__ == "__main__":
    folder = Path(sys.argv[2])
    for name in ("first", "second"):
        (folder / name).mkdir(parents=True)
    found = {"losses": train() + train(1, num_workers=1)}
    torch.save(model.state_dict(), folder / "before.pt")
    WAYS[sys.argv[1]](folder, found)
    found["losses"] += train(1)
    found |= {"bits": bits(), "seen": SEEN}
    (folder / "found.json").write_text(json.dumps(found))
