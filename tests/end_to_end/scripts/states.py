"""Training in many ways; writes a digest of each way's every bit to found.json."""

from __future__ import annotations

import copy
import gc
import hashlib
import inspect
import io
import json
import os
import pickle
import random
import signal
import sys
import threading
import warnings
import weakref

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

torch.set_num_threads(1)


def digest(*values) -> str:
    """A hash of tensors, containers and plain values, bit by bit."""
    found = hashlib.sha256()

    def add(value) -> None:
        if isinstance(value, torch.Tensor):
            value = value.detach().to_dense().contiguous()
            found.update(f"{value.dtype}{tuple(value.shape)}".encode())
            found.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, dict):
            for key in value:
                found.update(repr(key).encode())
                add(value[key])
        elif isinstance(value, (list, tuple)):
            for item in value:
                add(item)
        else:
            found.update(repr(value).encode())

    for value in values:
        add(value)
    return found.hexdigest()[:16]


def chance() -> str:
    """A digest of the random state: torch, Python, numpy."""
    name, keys, *rest = numpy.random.get_state()
    return digest(torch.get_rng_state(), random.getstate(), name, keys.tolist(), rest)


def seed(number: int = 0) -> None:
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


class Net(nn.Module):
    """Dropout draws, BatchNorm keeps statistics: any extra call would show."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x)))
        return self.head(self.drop(x.flatten(1)))


class Images(Dataset):
    """Augments with all three random generators."""

    def __init__(self, size: int = 48) -> None:
        self.images = torch.randn(size, 1, 8, 8)
        self.labels = torch.randint(0, 3, (size,))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index):
        noise = torch.randn(1, 8, 8) * random.random() * float(numpy.random.rand())
        return self.images[index] + noise, self.labels[index]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))


def inputs():
    return torch.randn(16, 8), torch.randn(16, 1)


def everything(model, optimizer=None, losses=()):
    """All that a user could look at after training, and the random state."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    state = {} if optimizer is None else optimizer.state_dict()
    return [
        [float(loss).hex() for loss in losses],
        digest(model.state_dict()),
        digest(gradients),
        digest(state),
        chance(),
    ]


# -- ways to train


def train_from_loader(num_workers: int):
    seed()
    loader = DataLoader(
        Images(), batch_size=16, shuffle=True, num_workers=num_workers, drop_last=True
    )
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            losses.append(functional.cross_entropy(model(x), y).item())
    return everything(model, optimizer, losses)


def train_in_process():
    return train_from_loader(0)


def train_with_workers():
    return train_from_loader(2)


def train_with_moving_average():
    seed()
    model = Net()
    target = copy.deepcopy(model)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(4):
        x, y = torch.randn(16, 1, 8, 8), torch.randint(0, 3, (16,))
        with torch.no_grad():
            teacher = target(x)
        loss = functional.cross_entropy(model(x), y) + (model(x) - teacher).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(model)
        with torch.no_grad():
            for mine, theirs in zip(target.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)
        losses.append(loss.item())
        target.train(not target.training)
    late = copy.deepcopy(model).eval()
    with torch.no_grad():
        model.head.weight.zero_()
    losses.append(late(x).sum().item())
    return [
        everything(model, optimizer, losses),
        digest(target.state_dict(), averaged.state_dict()),
    ]


def train_with_checkpointed_activations():
    found = []
    for use_reentrant in (True, False):
        seed()
        model, (x, y) = small(), inputs()
        x.requires_grad_()
        optimizer = torch.optim.AdamW(model.parameters())
        losses = []
        for _ in range(3):
            out = checkpoint(model, x, use_reentrant=use_reentrant)
            loss = functional.mse_loss(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append(everything(model, optimizer, losses))
    return found


def train_with_scaler():
    seed()
    model, (x, y) = small(), inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    losses = []
    for number in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.mse_loss(model(x), y) * (float("inf") if number == 2 else 1.0)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return [everything(model, optimizer, losses), scaler.state_dict()]


def train_with_closure():
    seed()
    model, (x, y) = small(), inputs()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(2)]
    return everything(model, optimizer, losses)


def train_in_one_step():
    seed()
    model, (x, y) = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)), inputs()
    endless = {"tolerance_grad": 0, "tolerance_change": 0, "lr": 0.1}
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=130, max_eval=150, **endless)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y) + 0 * torch.rand(())
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return everything(model, optimizer, losses)


class Doubled(torch.autograd.Function):
    """Runs a backward of its own inside the backward."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            inner.square().sum().backward()
        return 2 * gradient + 0 * inner.grad


def train_with_gradients_of_gradients():
    seed()
    model, (x, y) = small(), inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        x = x.detach().requires_grad_()
        out = model(Doubled.apply(x))
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = functional.mse_loss(out, y) + slope.pow(2).mean()
        optimizer.zero_grad()
        torch.autograd.backward([loss], retain_graph=True)
        optimizer.step()
        losses.append(loss.item())
    return everything(model, optimizer, losses)


class Careful(torch.optim.Adam):
    """A subclass whose step calls the parent's."""

    def step(self, closure=None):
        return super().step(closure)


def train_with_hooks_of_their_own():
    seed()
    seen = []
    model, (x, y) = small(), inputs()
    optimizer = Careful(model.parameters())
    optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    model.register_forward_hook(lambda *_: seen.append("forward"))
    model[0].register_full_backward_hook(lambda *_: seen.append("backward"))
    everywhere = nn.modules.module.register_module_forward_hook(
        lambda module, *_: seen.append(type(module).__name__)
    )
    losses = []
    for _ in range(2):
        loss = nn.MSELoss()(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    everywhere.remove()
    return [everything(model, optimizer, losses), seen]


# -- what others do with a model


def script_and_trace():
    seed()
    x, _ = inputs()
    found = []
    for make in (torch.jit.script, lambda model: torch.jit.trace(model, x)):
        seed(1)
        model = small()
        model.eval() if make is not torch.jit.script else model.train()
        compiled = make(model)
        optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            compiled(x).pow(2).mean().backward()
            optimizer.step()
        found.append([everything(compiled, optimizer), str(compiled.graph)])
    return found


def transform_and_export():
    seed()
    model, (x, _) = small().eval(), inputs()
    graph = torch.fx.symbolic_trace(model)
    exported = torch.export.export(model, (x,))
    parameters = dict(model.named_parameters())

    def loss(parameters, sample):
        return torch.func.functional_call(model, parameters, (sample,)).sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    return [
        [str(node) for node in graph.graph.nodes],
        [node.target.__name__ for node in exported.graph.nodes if callable(node.target)],
        digest(graph(x), per_sample),
    ]


def save_and_pickle():
    seed()
    model, (x, y) = small(), inputs()
    optimizer = torch.optim.Adam(model.parameters())
    functional.mse_loss(model(x), y).backward()
    optimizer.step()
    whole = io.BytesIO()
    torch.save(model, whole)
    torch.save({"model": model.state_dict(), "optimizer": optimizer}, "checkpoint.pt")
    torch.save(model, "model.pt")
    with open("functions.pickle", "wb") as file:
        pickle.dump([nn.Module.__call__, torch.Tensor.item, torch.save], file)
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    pieces = [model, optimizer, loader, model.forward, nn.Module.__call__]
    pieces += [torch.save, nn.utils.clip_grad_norm_, torch.autograd.backward]
    pieces += [torch.distributed.all_reduce, nn.CrossEntropyLoss(), torch.Tensor.backward]
    return [
        hashlib.sha256(whole.getvalue()).hexdigest(),
        [type(pickle.loads(pickle.dumps(piece))).__name__ for piece in pieces],
        [type(copy.deepcopy(piece)).__name__ for piece in pieces],
        pickle.loads(pickle.dumps(torch.Tensor.item)) is torch.Tensor.item,
    ]


class Tracked(torch.Tensor):
    """A subclass that knows torch's public functions by identity."""

    seen: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(torch.overrides.resolve_name(func) or func.__name__)
        if func is torch.Tensor.item:
            return 42
        if func is torch.Tensor.to:
            return "moved"
        return super().__torch_function__(func, types, args, kwargs or {})


def use_a_tensor_subclass():
    seed()
    Tracked.seen = []
    x = torch.randn(4, 8).as_subclass(Tracked)
    model = small()
    loss = model(x).pow(2).mean()
    loss.backward()
    values = [x[0, 0].item(), x.to("cpu"), float(x[0, 0]), repr(x[0, 0]), bool(x[0, 0] > 0)]
    values += [x.tolist(), type(x.cpu()).__name__, x.numpy().shape, int(loss)]
    return [values, Tracked.seen]


def watch_functions_and_operators():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seed()
    names = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(torch.overrides.resolve_name(func) or func.__name__)
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    model, (x, y) = small(), inputs()
    optimizer = torch.optim.Adam(model.parameters())
    for mode in (Functions, Operators):
        with mode():
            loss = functional.mse_loss(model(x.to("cpu")), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            names += [loss.item(), str(loss), float(loss)]
    return [everything(model, optimizer), names]


def count_flops_and_saved_tensors():
    from torch.utils.flop_counter import FlopCounterMode

    seed()
    model, (x, y) = small(), inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    packed, unpacked, flops = [], [], []
    for _ in range(3):
        counter = FlopCounterMode(display=False)
        with (
            counter,
            torch.autograd.graph.saved_tensors_hooks(
                lambda t: (packed.append(tuple(t.shape)), t)[1],
                lambda t: (unpacked.append(tuple(t.shape)), t)[1],
            ),
        ):
            loss = functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        flops.append(counter.get_total_flops())
    functional.mse_loss(model(x), y).backward()  # outside: their hooks are gone
    return [everything(model, optimizer), packed, unpacked, flops]


def make_things_on_another_device():
    with torch.device("meta"):
        found = [str(torch.empty(2).device), str(small()[0].weight.device)]
        found.append(str(small()(torch.empty(3, 8)).shape))
    torch.set_default_device("meta")
    found += [str(nn.Linear(2, 2).weight.device), str(torch.ones(2).to("meta").device)]
    torch.set_default_device(None)
    return [*found, str(torch.ones(1).device)]


def is_the_guests(callback):
    """The one entry the guest makes in a list of Python's (docs/explanation/guest.md)."""
    return "steptime" in callback.__module__


def look_at_what_is_there():
    seed()
    model, (x, y) = small(), inputs()
    optimizer = torch.optim.Adam(model.parameters())
    functional.mse_loss(model(x), y).backward()
    optimizer.step()
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    functions = [nn.Module.__call__, torch.Tensor.backward, torch.Tensor.item, torch.save]
    functions += [nn.utils.clip_grad_norm_, torch.autograd.grad, DataLoader.__iter__]
    in_python = [f for f in functions if f is not torch.Tensor.item]
    return [
        [sorted(vars(thing)) for thing in (model, model[0], optimizer, loader, x)],
        [(f.__name__, f.__doc__) for f in functions],
        [(f.__qualname__, f.__module__) for f in in_python],
        [str(inspect.signature(f)) for f in in_python],
        torch.save is torch.serialization.save,
        torch.distributed.all_reduce is torch.distributed.distributed_c10d.all_reduce,
        [inspect.isroutine(f) for f in functions],
        sys.excepthook is sys.__excepthook__,
        sys.displayhook is sys.__displayhook__,
        [thread.name for thread in threading.enumerate()],
        sorted(os.listdir("/proc/self/fd")),
        [str(signal.getsignal(number)).split(" at ")[0] for number in range(1, 32)],
        [(f[0], f[2].__name__) for f in warnings.filters],
        (gc.isenabled(), gc.get_threshold()),
        [callback.__module__ for callback in gc.callbacks if not is_the_guests(callback)],
        (sys.gettrace(), sys.getprofile(), threading.gettrace(), sys.getrecursionlimit()),
        sys.getswitchinterval() <= 0.005,  # ours asks for the lock sooner where nobody else does
        [path for path in sys.path if path],
        sys.argv[1:],
        [name for name in sys.modules if "torch._dynamo" in name][:1],
        torch.is_grad_enabled(),
        torch.get_num_threads(),
    ]


class Stream(IterableDataset):
    """A generator that must be closed when its loader's iterator is let go."""

    closed = 0

    def __iter__(self):
        try:
            for number in range(100):
                yield torch.full((8,), float(number))
        finally:
            Stream.closed += 1


def let_things_go():
    seed()
    gc.collect()
    gc.disable()
    model, (x, y) = small(), inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = TensorDataset(x, y)
    loader = DataLoader(dataset, batch_size=4)
    for a, b in loader:
        loss = functional.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
    criterion = nn.MSELoss()
    criterion(model(a), b).backward()
    iterator = iter(loader)
    next(iterator)
    out = model(a)
    out.sum().backward()
    things = (model, model[0], optimizer, dataset, loader, iterator, a, loss, criterion, out)
    alive = [weakref.ref(thing) for thing in things]
    del model, optimizer, dataset, loader, iterator, a, b, loss, criterion, things, x, y, out
    flow = iter(DataLoader(Stream(), batch_size=4))
    next(flow)
    del flow
    found = [ref() is None for ref in alive]
    gc.enable()
    return [found, Stream.closed]


class Lazy:
    """What a model may return: it computes its loss when asked, and draws for it."""

    def __init__(self, out) -> None:
        self.out = out
        self.asked = 0

    @property
    def loss(self):
        self.asked += 1
        return functional.dropout(self.out, 0.5).pow(2).mean()


class LazyMap(dict):
    def values(self):
        raise RuntimeError("nobody should ask")


class Odd(nn.Module):
    """Returns objects of the user's own, a subclass of Tensor among them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small()

    def forward(self, x, kind):
        return kind(self.inner(x))


def return_odd_things():
    seed()
    Tracked.seen = []
    model, (x, _) = Odd(), inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    asked = []
    for _ in range(3):
        lazy = model(x, Lazy)
        mapped = model(x, lambda out: LazyMap(out=out))["out"]
        tracked = model(x, lambda out: out.as_subclass(Tracked))
        nothing = model(x, lambda out: None)
        optimizer.zero_grad()
        (lazy.loss + mapped.sum() + tracked.mean().as_subclass(torch.Tensor)).backward()
        optimizer.step()
        asked.append([lazy.asked, nothing])
    return [everything(model, optimizer), asked, Tracked.seen]


def many_threads():
    """Hogwild in threads, one at a time so that the result is fixed."""
    seed()
    model, (x, y) = small().eval(), inputs()
    losses = []

    def work() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    return everything(model, None, losses)


WAYS = (
    train_in_process,
    train_with_workers,
    train_with_moving_average,
    train_with_checkpointed_activations,
    train_with_scaler,
    train_with_closure,
    train_in_one_step,
    train_with_gradients_of_gradients,
    train_with_hooks_of_their_own,
    script_and_trace,
    transform_and_export,
    save_and_pickle,
    use_a_tensor_subclass,
    watch_functions_and_operators,
    count_flops_and_saved_tensors,
    make_things_on_another_device,
    look_at_what_is_there,
    let_things_go,
    return_odd_things,
    many_threads,
)

if __name__ == "__main__":
    found = {}
    for way in [one for one in WAYS if one.__name__ in sys.argv[1:]] or WAYS:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = way()
        found[way.__name__] = [result, sorted({str(warning.message) for warning in said})]
    with open("found.json", "w") as file:
        json.dump(found, file, default=str, indent=1)
