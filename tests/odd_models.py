"""Models that change something when they are called: buffers, weights, attributes, settings.

`ODD` makes each of them with its inputs. `steptime.count` must leave all of that as it was.
"""

from __future__ import annotations

import random
import threading
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint


@dataclass
class Odd:
    """What is counted, how, and the modules whose training goes on afterwards."""

    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    modules: tuple[nn.Module, ...]
    loss: Any = None


def one(model: nn.Module, *inputs: Any, loss: Any = None) -> Odd:
    return Odd(model, inputs, (model,), loss)


def rows(num: int = 4, width: int = 4) -> torch.Tensor:
    return torch.randn(num, width)


ODD: dict[str, Callable[[], Odd]] = {}


def odd(function: Callable[[], Odd]) -> Callable[[], Odd]:
    ODD[function.__name__] = function
    return function


# -- statistics, weights and random numbers


def normed() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2)
    )


@odd
def batch_norm() -> Odd:
    return one(normed(), rows())


@odd
def batch_norm_in_a_lambda() -> Odd:
    model, x, y = normed(), rows(), torch.tensor([0, 1, 0, 1])
    return Odd(lambda: F.cross_entropy(model(x), y), (), (model,))


HIDDEN: dict[str, Any] = {}


def call_hidden(name: str, x: torch.Tensor) -> torch.Tensor:
    """Call a method of a model that is only found when it is called."""
    out: torch.Tensor = HIDDEN[name]().forward(x)
    return out


@odd
def batch_norm_by_its_forward() -> Odd:
    model = normed()
    name = str(len(HIDDEN))
    HIDDEN[name] = lambda: model
    return Odd(partial(call_hidden, name), (rows(),), (model,))


@odd
def running_instance_norm() -> Odd:
    return one(nn.InstanceNorm1d(3, affine=True, track_running_stats=True), torch.randn(2, 3, 5))


@odd
def spectral_norm() -> Odd:
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))
    return one(nn.Sequential(model, nn.Linear(3, 2)), rows())


@odd
def old_spectral_norm() -> Odd:
    return one(nn.utils.spectral_norm(nn.Linear(4, 3)), rows())


@odd
def weight_norm() -> Odd:
    return one(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), rows())


@odd
def embedding_that_renormalizes_its_rows() -> Odd:
    model = nn.Embedding(10, 4, max_norm=0.1)
    return one(nn.Sequential(model, nn.Linear(4, 2)), torch.arange(6))


class Clamped(nn.Linear):
    """A critic that clips its weights in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data.clamp_(-0.01, 0.01)
        with torch.no_grad():
            self.bias.mul_(0.5)
        return super().forward(x)


@odd
def clamped_weights() -> Odd:
    return one(Clamped(4, 2), rows())


class Rebound(nn.Linear):
    """It gives its weights other memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data = self.weight.data / self.weight.data.norm()
        return super().forward(x)


@odd
def rebound_weights() -> Odd:
    return one(Rebound(4, 2), rows())


class Drawing(nn.Module):
    """It draws from every source of random numbers, and from some of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.own = random.Random(1)
        self.of_numpy = {"new": np.random.default_rng(1), "old": np.random.RandomState(1)}
        self.of_torch = torch.Generator().manual_seed(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = random.random() + np.random.rand() + self.own.random()
        scale += self.of_numpy["new"].random() + self.of_numpy["old"].rand()
        noise = torch.randn(x.shape, generator=self.of_torch)
        return F.dropout(self.layer(x) * scale + noise + torch.rand(4))


@odd
def random_numbers() -> Odd:
    return one(Drawing(), rows())


# -- what modules hold in Python


class Holding(nn.Module):
    """It keeps lists, caches, counts and buffers that it rebinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("queue", torch.randn(8, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))
        self.calls, self.seen, self.cache = 0, [rows()], {"old": rows()}
        self.plain = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(x) + self.mean
        self.mean = 0.9 * self.mean + 0.1 * out.detach().mean(0)
        self.queue[int(self.at) : int(self.at) + 2] = out[:2].detach()
        self.at[0] = (self.at + 2) % 8
        self.calls += 1
        self.seen.append(out)
        self.cache |= {"new": out, "old": 1}
        self.plain += 1
        self.seen[0].mul_(2)
        self.late = out  # an attribute that was not there
        return out


@odd
def caches_and_queues() -> Odd:
    return one(Holding(), rows())


class ByHand(nn.Module):
    """It makes layers and weights when it is called for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "second"):
            self.second = nn.Linear(4, 4)
            self.scale = nn.Parameter(torch.randn(4))
        out: torch.Tensor = self.second(self.first(x)) * self.scale
        return out


@odd
def layers_made_at_the_first_call() -> Odd:
    return one(ByHand(), rows())


class Carrying(nn.Module):
    """Its hidden state goes from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, num_layers=2, dropout=0.5)
        self.hidden: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, hidden = self.lstm(x, self.hidden)
        self.hidden = tuple(part.detach() for part in hidden)
        return out


@odd
def hidden_state() -> Odd:
    return one(Carrying(), torch.randn(5, 2, 4))


class Toggling(nn.Module):
    """It changes flags, and torch's settings, and does not change them back."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2)
        self.two.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.two.eval()
        self.one.requires_grad_(False)
        self.two.requires_grad_()
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.set_autocast_enabled("cpu", True)
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
        out = self.two(self.one(x)).float()
        torch.set_autocast_enabled("cpu", False)
        self.one.forward = partial(nn.Linear.forward, self.one)
        self.register_forward_hook(lambda *given: None)
        torch.set_grad_enabled(True)
        return out


@odd
def flags_and_settings() -> Odd:
    return one(Toggling(), rows())


@odd
def hooks_of_all_kinds() -> Odd:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].weight.register_hook(lambda gradient: 2 * gradient)
    model[0].register_forward_hook(lambda own, given, out: setattr(own, "last", out))
    model[1].register_full_backward_hook(lambda own, of_in, of_out: None)
    return one(model, rows())


@odd
def an_optimizer_at_each_gradient() -> Odd:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    model.weight.register_post_accumulate_grad_hook(lambda own: optimizer.step())
    return one(model, rows())


# -- gradients and graphs


@odd
def gradients_that_are_there() -> Odd:
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2))
    model(torch.arange(3)).sum().backward()
    x = torch.arange(5)
    return one(model, x)


@odd
def an_input_with_a_gradient() -> Odd:
    x = rows().requires_grad_()
    x.grad = torch.ones(4, 4)
    return one(nn.Linear(4, 2), x)


@odd
def an_input_that_is_changed_in_place() -> Odd:
    class Greedy(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.mul_(2).clone())

    return one(Greedy(4, 2), rows())


@odd
def a_batch_that_is_changed() -> Odd:
    class Taking(nn.Linear):
        def forward(self, batch: Any, more: Any) -> torch.Tensor:
            batch["seen"] = more.seen = super().forward(batch["x"])
            batch["names"].append("b")
            more.kept[0] = None
            return (more.seen - batch["wanted"]).pow(2).mean() + more.scale.sum()

    batch = UserDict(x=rows(), wanted=rows(4, 2), names=["a"])
    more = SimpleNamespace(kept=[rows()], scale=rows().exp_())
    return one(Taking(4, 2), batch, more)


@odd
def packed_sequences() -> Odd:
    model = nn.GRU(4, 3)
    packed = nn.utils.rnn.pack_sequence([rows(3), rows(2)])
    return Odd(lambda x: model(x)[0].data, (packed,), (model,))


@odd
def its_own_backward() -> Odd:
    model, x = nn.Linear(4, 2), rows()

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    return Odd(step, (), (model,))


@odd
def gradient_penalty() -> Odd:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def penalty(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (slope.norm(dim=1) - 1).pow(2).mean()

    return Odd(penalty, (rows(),), (model,))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = normed(), reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return out


@odd
def checkpoints() -> Odd:
    return one(Checkpointed(reentrant=False), rows())


@odd
def reentrant_checkpoints() -> Odd:
    return one(Checkpointed(reentrant=True), rows().requires_grad_())


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


@odd
def a_function_with_its_own_gradient() -> Odd:
    model = nn.Linear(4, 2)
    return Odd(lambda x: Squared.apply(model(x)), (rows(),), (model,))


@odd
def two_losses() -> Odd:
    class Both(nn.Linear):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(x), self.weight.norm()

    return one(Both(4, 2), rows(), loss=lambda output: output[0].sum() + output[1])


# -- other tensors


@odd
def a_sparse_graph() -> Odd:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.register_buffer("edges", torch.eye(4).to_sparse())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(self.edges, self.layer(x))

    return one(Graph(), rows())


@odd
def a_sparse_buffer_that_is_changed() -> Odd:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("edges", torch.eye(4).to_sparse().coalesce())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.edges.mul_(2.0)
            return torch.sparse.mm(self.edges, self.layer(x))

    return one(Growing(), rows())


@odd
def tied_and_complex() -> Odd:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.words.weight
            self.phase = nn.Parameter(torch.randn(4, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head((self.words(x) * self.phase).abs())
            return out

    return one(Tied(), torch.arange(5))


@odd
def scripted() -> Odd:
    return one(torch.jit.script(normed()), rows())


class Counting(nn.Module):
    """It counts its calls, which TorchScript does in C++."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 4), 0
        self.last = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last = self.layer(x + self.last).mean(0).detach()
        return self.layer(x) * self.calls + self.last


@odd
def scripted_attributes() -> Odd:
    return one(torch.jit.script(Counting()), rows())


@odd
def flags_on_weights() -> Odd:
    model = nn.Linear(4, 4)
    model.weight.main_grad = torch.zeros(4, 4)

    def note(gradient: torch.Tensor) -> None:
        model.weight.main_grad.add_(gradient)
        model.weight.was_added = True

    model.weight.register_hook(note)
    return one(model, rows())


@odd
def quantization_aware() -> Odd:
    from torch.ao.quantization import FakeQuantize, default_observer

    observed = FakeQuantize(observer=default_observer)
    return one(nn.Sequential(nn.Linear(4, 4), observed, nn.Linear(4, 2)), rows())


class Picture(torch.Tensor):
    """A subclass without a dispatch of its own."""


@odd
def a_plain_subclass() -> Odd:
    return one(nn.Linear(4, 2), rows().as_subclass(Picture))


@odd
def strided_nested() -> Odd:
    model = nn.Linear(4, 2)
    parts = [rows(2), rows(3)]

    def call() -> torch.Tensor:
        return model(torch.nested.nested_tensor(parts)).to_padded_tensor(0.0).sum()

    return Odd(call, (), (model,))


class Shifted(nn.Linear):
    """It has a buffer that was made for inference, and writes to one."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        with torch.inference_mode():
            self.register_buffer("shift", torch.ones(4))
            self.register_buffer("sums", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            self.sums += 1
        return super().forward(x) + self.shift


@odd
def inference_buffers() -> Odd:
    return one(Shifted(), rows())


# -- ways to call


@odd
def an_ensemble_by_vmap() -> Odd:
    models = [nn.Linear(4, 2) for _ in range(3)]

    def call(x: torch.Tensor) -> torch.Tensor:
        weights, buffers = torch.func.stack_module_state(models)
        every = partial(torch.func.functional_call, models[0])
        return torch.vmap(lambda w, b, x: every((w, b), (x,)), (0, 0, None))(weights, buffers, x)

    return Odd(call, (rows(),), tuple(models))


@odd
def a_thread() -> Odd:
    model = normed()

    def call(x: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: found.append(model(x)))
        thread.start()
        thread.join()
        return found[0]

    return Odd(call, (rows(),), (model,))


@odd
def attention_with_a_mask() -> Odd:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    mask = torch.tensor([[False, False, True], [False, False, False]])
    model = nn.TransformerEncoder(layer, 2)
    return Odd(partial(model, src_key_padding_mask=mask), (torch.randn(2, 3, 8),), (model,))


@odd
def half_precision() -> Odd:
    model = normed()

    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            out: torch.Tensor = model(x)
        return out

    return Odd(call, (rows(),), (model,))


@odd
def cached_parametrizations() -> Odd:
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))

    def call(x: torch.Tensor) -> torch.Tensor:
        with nn.utils.parametrize.cached():
            out: torch.Tensor = model(model(x))
        return out

    return Odd(call, (rows(),), (model,))
