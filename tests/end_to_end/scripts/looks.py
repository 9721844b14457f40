"""Trains in many ways past the update whose operators are counted, each in a child of its own.

Writes a digest of each way's every bit to found.json, and who trained it to pids.json.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import warnings

import torch
from states import Doubled, Net, digest, everything, inputs, seed, small
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)

NUM_UPDATES = 16


def train(model, loss_of, optimizer=None, *, step=None):
    """Losses, weights, gradients, optimizer's and random state after some updates."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for number in range(NUM_UPDATES):
        optimizer.zero_grad()
        loss = loss_of(number)
        (step or torch.Tensor.backward)(loss)
        optimizer.step()
        losses.append(loss.item())
    return everything(model, optimizer, losses)


def images():
    return torch.randn(16, 1, 8, 8), torch.randint(0, 3, (16,))


# -- ways in which operators are counted


def dropout_and_batch_norm():
    seed()
    model, (x, y) = Net(), images()
    return train(model, lambda _: functional.cross_entropy(model(x), y))


class Attends(nn.Module):
    def __init__(self, *, is_causal: bool, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.project = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 20)
        self.is_causal, self.dropout = is_causal, dropout

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        q, k, v = (
            part.reshape(*part.shape[:2], 2, 8).transpose(1, 2)
            for part in self.project(x).chunk(3, -1)
        )
        x = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.is_causal, dropout_p=self.dropout
        )
        return self.out(x.transpose(1, 2).flatten(2))


def tokens():
    return torch.randint(0, 20, (4, 12))


def attention():
    found = []
    seed()
    model = nn.ModuleList(
        [Attends(is_causal=c, dropout=d) for c in (True, False) for d in (0, 0.1)]
    )
    data = tokens()

    def loss_of(_):
        logits = sum(part(data) for part in model)
        return functional.cross_entropy(logits.flatten(0, 1), data.flatten())

    found.append(train(model, loss_of))
    return found


def transformer_layers():
    seed()
    embed = nn.Embedding(20, 16)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(embed, nn.TransformerEncoder(layer, 2), nn.Linear(16, 20))
    data = tokens()
    return train(
        model, lambda _: functional.cross_entropy(model(data).flatten(0, 1), data.flatten())
    )


class PartlyFrozen(nn.Module):
    """A frozen transformer in eval mode inside a training model: its fast path asks for modes."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.frozen = nn.TransformerEncoder(layer, 2).requires_grad_(requires_grad=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        self.frozen.eval()
        return self.head(self.frozen(x).mean(1))


def frozen_transformer():
    seed()
    model, x, y = PartlyFrozen(), torch.randn(8, 5, 16), torch.randint(0, 3, (8,))
    return train(model, lambda _: functional.cross_entropy(model(x), y))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 16, num_layers=2, dropout=0.2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(32, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, data, lengths):
        x = nn.utils.rnn.pack_padded_sequence(
            self.embed(data), lengths, batch_first=True, enforce_sorted=False
        )
        x, _ = self.lstm(x)
        x, _ = nn.utils.rnn.pad_packed_sequence(x, batch_first=True)
        return self.head(self.gru(x)[0][:, -1])


def lstm_and_embedding():
    seed()
    model, data, y = Recurrent(), tokens(), torch.randint(0, 3, (4,))
    lengths = torch.tensor([12, 3, 7, 5])
    return train(model, lambda _: functional.cross_entropy(model(data, lengths), y))


def sparse_embedding():
    seed()
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True))
    optimizer = torch.optim.SparseAdam(list(model.parameters()))
    data = torch.randint(0, 50, (30,))
    return train(model, lambda _: model(data).pow(2).mean(), optimizer)


def autocast_to_bfloat16():
    seed()
    model, (x, y) = Net(), images()

    def loss_of(_):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return functional.cross_entropy(model(x), y)

    return train(model, loss_of)


def checkpointed_without_reentering():
    seed()
    model, (x, y) = small(), inputs()
    part = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.BatchNorm1d(8))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.rest = part, model

        def forward(self, x):
            return self.rest(checkpoint(self.part, x, use_reentrant=False))

    whole = Whole()
    return train(whole, lambda _: functional.mse_loss(whole(x), y))


def double_backward():
    seed()
    model, (x, y) = small(), inputs()

    def loss_of(_):
        data = x.detach().requires_grad_()
        out = model(data)
        (slope,) = torch.autograd.grad(out.sum(), data, create_graph=True)
        return functional.mse_loss(out, y) + slope.pow(2).mean()

    return train(model, loss_of)


def per_sample_gradients_inside():
    """Functorch's transforms inside the model's call, and hooks of per-sample gradients."""
    seed()
    inner = small().eval()
    (x, y), norms = inputs(), []

    class PerSample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            self.head = nn.Linear(1, 1)

        def forward(self, x):
            parameters = {k: v.detach() for k, v in self.inner.named_parameters()}

            def loss(parameters, sample):
                return functional_call(self.inner, parameters, (sample,)).sum()

            gradients = vmap(grad(loss), (None, 0))(parameters, x)
            norms.append(sum(g.pow(2).sum().item() for g in gradients.values()))
            return self.head(self.inner(x))

    model = PerSample()

    def each_sample(module, grad_input, grad_output):
        norms.append(torch.einsum("n...i->n", grad_output[0].pow(2)).sum().item())

    model.head.register_full_backward_hook(each_sample)
    return [train(model, lambda _: functional.mse_loss(model(x), y)), norms]


def functions_of_their_own():
    seed()
    model, (x, y) = small(), inputs()

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x):
            return Doubled.apply(self.inner(Doubled.apply(x)))

    whole = Whole()
    x.requires_grad_()
    return train(whole, lambda _: functional.mse_loss(whole(x), y))


def views_and_in_place():
    """Aliases, views of views, writes into leaves' views, buffers written in place."""
    seed()

    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x):
            x = (x @ self.weight).mul_(1.5)
            view = x[:, 2:6].T
            view.mul_(2).add_(1)
            x.t()[0].zero_()
            self.seen.lerp_(x.detach().mean(0), 0.1)
            self.seen[3:5] += x.detach()[0, :2]
            split = x.split(4, dim=1)
            return torch.cat([split[1], split[0].clone().sub_(1)], 1).masked_fill_(x > 9, 0)

    model, (x, _) = InPlace(), inputs()
    aliases = []

    def loss_of(_):
        out = model(x)
        aliases.append([out._is_view(), out._version, out.is_contiguous(), model.seen._version])
        return out.pow(2).mean()

    return [train(model, loss_of), aliases]


def hooks_on_everything():
    """The user's hooks on tensors, saved tensors and gradients see what they saw."""
    seed()
    model, (x, y) = small(), inputs()
    seen = []
    for parameter in model.parameters():
        parameter.register_hook(lambda g: seen.append(digest(g)))
        parameter.register_post_accumulate_grad_hook(lambda p: seen.append(digest(p.grad)))
    model.register_forward_pre_hook(lambda module, args: seen.append(digest(args[0])))

    def loss_of(_):
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: (seen.append(digest(t)), t.clone())[1], lambda t: t
        ):
            return functional.mse_loss(model(x), y)

    return [train(model, loss_of), seen]


def closures():
    seed()
    model, (x, y) = small(), inputs()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(NUM_UPDATES)]
    return everything(model, optimizer, losses)


def an_error_inside():
    """What a failing operator says, and with which traceback, and training after it."""
    import traceback

    seed()
    model, (x, y) = small(), inputs()
    said = []

    def loss_of(number):
        try:
            model(x[:, :5])
        except RuntimeError as error:
            frames = traceback.extract_tb(error.__traceback__)
            said.append([str(error), [(f.name, f.lineno) for f in frames]])
        return functional.mse_loss(model(x), y)

    return [train(model, loss_of), said]


def a_mode_left_open():
    """A mode entered in the model's call and left after it stays on meanwhile."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    class Opens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small()
            self.open = []

        def forward(self, x):
            if not self.open:
                self.open.append(Names())
                self.open[0].__enter__()
            return self.inner(x)

    seed()
    model, (x, y) = Opens(), inputs()

    def loss_of(_):
        loss = functional.mse_loss(model(x), y)
        model.open.pop().__exit__(None, None, None)
        return loss

    return [train(model, loss_of), names]


COUNTED = (
    dropout_and_batch_norm,
    attention,
    transformer_layers,
    frozen_transformer,
    lstm_and_embedding,
    sparse_embedding,
    autocast_to_bfloat16,
    checkpointed_without_reentering,
    double_backward,
    per_sample_gradients_inside,
    functions_of_their_own,
    views_and_in_place,
    hooks_on_everything,
    closures,
    an_error_inside,
    a_mode_left_open,
)


# -- ways in which they may not be


def checkpointed_by_reentering():
    seed()
    model, (x, y) = small(), inputs()
    x.requires_grad_()

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=True)

    whole = Whole()
    return train(whole, lambda _: functional.mse_loss(whole(x), y))


def products():
    """`prod` has another formula for its gradient under a mode: other bits."""
    seed()
    model, (x, y) = small(), inputs()
    return train(model, lambda _: functional.mse_loss((model(x) + 1.3).prod(), y.sum()))


def filled_with_a_value_that_trains():
    seed()
    model, (x, y) = small(), inputs()
    mask = torch.rand(16, 1) > 0.5

    def loss_of(_):
        out = model(x)
        return functional.mse_loss(out.masked_fill(mask, out.mean()), y)

    return train(model, loss_of)


def smoothed_labels_with_weights():
    seed()
    model, (x, y) = Net(), images()
    y[::3] = -100
    weight = torch.rand(3)
    return train(
        model,
        lambda _: functional.cross_entropy(model(x), y, weight=weight, label_smoothing=0.1),
    )


def inside_a_mode_of_their_own():
    from torch.utils.flop_counter import FlopCounterMode

    seed()
    model, (x, y) = small(), inputs()
    flops = []

    def loss_of(_):
        counter = FlopCounterMode(display=False)
        with counter:
            loss = functional.mse_loss(model(x), y)
        flops.append(counter.get_total_flops())
        return loss

    return [train(model, loss_of), flops]


class Tagged(torch.Tensor):
    """A subclass with behaviour of its own."""


def a_tensor_subclass():
    seed()
    model, (x, y) = small(), inputs()
    x = x.as_subclass(Tagged)
    return train(model, lambda _: functional.mse_loss(model(x).as_subclass(torch.Tensor), y))


def scripted():
    seed()
    model, (x, y) = torch.jit.script(small()), inputs()
    return train(model, lambda _: functional.mse_loss(model(x), y))


def compiled():
    seed()
    model, (x, y) = torch.compile(small(), backend="eager"), inputs()
    return train(model, lambda _: functional.mse_loss(model(x), y))


def too_few_updates():
    seed()
    model, (x, y) = small(), inputs()
    functional.mse_loss(model(x), y).backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()
    return everything(model, optimizer)


ABSTAINED = (
    checkpointed_by_reentering,
    products,
    filled_with_a_value_that_trains,
    smoothed_labels_with_weights,
    inside_a_mode_of_their_own,
    a_tensor_subclass,
    scripted,
    compiled,
    too_few_updates,
)


def run(way) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = [way(), torch._C._len_torch_dispatch_stack()]
    result.append(sorted({str(warning.message) for warning in said}))
    with open(f"{way.__name__}.json", "w") as file:
        json.dump({"result": result, "pid": os.getpid()}, file, default=str)


if __name__ == "__main__":
    torch.optim.SGD([torch.zeros(1)])  # imports what takes each child a second else
    for way in COUNTED + ABSTAINED:
        child = multiprocessing.get_context("fork").Process(target=run, args=(way,))
        child.start()
        child.join()
        assert child.exitcode == 0, way.__name__
