"""Further models whose work is known in closed form: made, tied and frozen weights, mixing, images.

As in `counted_models.py`; each of them is whole, so the proof of completeness must hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint_sequential

from counted_layers import Calls, matrix, mm
from counted_models import Planted

# -- weights that are made, tied, shared, frozen, quantized

BATCH, IN, MID, OUT = 9, 10, 14, 6


def tied_autoencoder() -> Planted:
    """One matrix there and back."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.weight) @ self.weight.T

    one = mm(BATCH, IN, MID)
    return Planted(Calls(run, weight=matrix(IN, MID)), (torch.randn(BATCH, IN),), 2 * one, 3 * one)


def tied_embedding() -> Planted:
    """The table of the words is the last layer: the lookup is no work."""
    words, vocabulary = 11, 30

    def run(self: Any, at: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.tanh(self.layer(self.table(at))), self.table.weight)

    layer, head = mm(words, MID, MID), mm(words, MID, vocabulary)
    model = Calls(run, table=nn.Embedding(vocabulary, MID), layer=nn.Linear(MID, MID))
    at = torch.randint(0, vocabulary, (words,))
    return Planted(model, (at,), layer + head, 2 * (layer + head))


def siamese() -> Planted:
    """One layer meets two inputs."""

    def run(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) - self.layer(y)).square()

    one = mm(BATCH, IN, MID)
    inputs = (torch.randn(BATCH, IN), torch.randn(BATCH, IN))
    return Planted(Calls(run, layer=nn.Linear(IN, MID)), inputs, 2 * one, 2 * one)


def merged_lora() -> Planted:
    """The low rank is added to the frozen matrix before the product."""
    rank = 3

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.base + self.up @ self.down)

    merge, product = mm(MID, rank, IN), mm(BATCH, IN, MID)
    base = matrix(MID, IN).requires_grad_(False)
    model = Calls(run, base=base, up=matrix(MID, rank), down=matrix(rank, IN))
    return Planted(model, (torch.randn(BATCH, IN),), merge + product, product + 2 * merge)


def weight_normed() -> Planted:
    model = parametrizations.weight_norm(nn.Linear(IN, MID))
    one = mm(BATCH, IN, MID)
    return Planted(model, (torch.randn(BATCH, IN),), one, one)


def spectral_normed() -> Planted:
    """One power iteration: two products with a vector, a third one and a dot for the norm."""
    model = parametrizations.spectral_norm(nn.Linear(IN, MID))
    one = mm(BATCH, IN, MID)
    return Planted(model, (torch.randn(BATCH, IN),), one + 3 * mm(MID, IN, 1) + 2 * MID, one)


def hypernetwork() -> Planted:
    """A layer makes the weights of another, for each row its own."""

    def run(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = self.make(y).view(BATCH, IN, OUT)
        return torch.bmm(x[:, None], weights)

    make, use = mm(BATCH, MID, IN * OUT), BATCH * mm(1, IN, OUT)
    model = Calls(run, make=nn.Linear(MID, IN * OUT))
    inputs = (torch.randn(BATCH, IN), torch.randn(BATCH, MID))
    return Planted(model, inputs, make + use, make + use)


def frozen_body() -> Planted:
    """Nothing below the head has a gradient."""
    body = nn.Conv2d(3, 8, 3, padding=1, bias=False).requires_grad_(False)
    model = nn.Sequential(body, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, OUT))
    convolution, head = 2 * BATCH * 8 * 36 * 27, mm(BATCH, 8 * 36, OUT)
    return Planted(model, (torch.randn(BATCH, 3, 6, 6),), convolution + head, head)


def unused_branch() -> Planted:
    """A matrix that this step does not use has no gradient, and nothing to meet."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)

    model = Calls(run, used=nn.Linear(IN, OUT), unused=nn.Linear(IN, OUT))
    one = mm(BATCH, IN, OUT)
    return Planted(model, (torch.randn(BATCH, IN),), one, one)


class Rounds(torch.autograd.Function):
    """Rounds weights; the gradient passes through."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor) -> torch.Tensor:
        return (weight * 8).round() / 8

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def quantized() -> Planted:
    """Weights are rounded by a function of the script's own."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.relu(F.linear(x, Rounds.apply(self.a))), Rounds.apply(self.b))

    model = Calls(run, a=matrix(MID, IN), b=matrix(OUT, MID))
    first, second = mm(BATCH, IN, MID), mm(BATCH, MID, OUT)
    return Planted(model, (torch.randn(BATCH, IN),), first + second, first + 2 * second)


class OwnLinear(torch.autograd.Function):
    """A product with gradients by hand, of torch's operators."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.T @ x


def own_linear() -> Planted:
    """By hand, the input has a gradient even if nobody asks for it."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return OwnLinear.apply(torch.relu(OwnLinear.apply(x, self.a)), self.b)

    model = Calls(run, a=matrix(MID, IN), b=matrix(OUT, MID))
    forward = mm(BATCH, IN, MID) + mm(BATCH, MID, OUT)
    return Planted(model, (torch.randn(BATCH, IN),), forward, 2 * forward)


class Reverses(torch.autograd.Function):
    """Returns what it takes; the gradient changes its sign."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


def reversed_gradient() -> Planted:
    """An adversarial head behind a function that computes nothing."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.head(Reverses.apply(self.body(x)))

    body, head = mm(BATCH, IN, MID), mm(BATCH, MID, OUT)
    model = Calls(run, body=nn.Linear(IN, MID), head=nn.Linear(MID, OUT))
    return Planted(model, (torch.randn(BATCH, IN),), body + head, body + 2 * head)


def ensemble() -> Planted:
    """Three models at once, by `torch.func`."""
    from torch.func import functional_call, stack_module_state, vmap

    models = [nn.Linear(IN, OUT, bias=False) for _ in range(3)]
    stacked, buffers = stack_module_state(models)

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        def one(weights: Any, held: Any) -> torch.Tensor:
            return functional_call(models[0], (weights, held), (x,))

        return vmap(one)({"weight": self.weights}, buffers)

    work = 3 * mm(BATCH, IN, OUT)
    model = Calls(run, weights=nn.Parameter(stacked["weight"].detach().clone()))
    return Planted(model, (torch.randn(BATCH, IN),), work, work)


# -- attention, mixing, images


def attention_by_hand() -> Planted:
    """Scores and weighted values as products of matrices."""
    seq, heads, width = 8, 2, 12

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.enter(x).view(BATCH, seq, 3, heads, width // heads).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key).softmax(-1)
        return self.leave(torch.einsum("bhqk,bkhd->bqhd", scores, value).reshape(x.shape))

    products = mm(BATCH * seq, width, 4 * width)
    scores = 2 * mm(BATCH * seq, width, seq)
    model = Calls(run, enter=nn.Linear(width, 3 * width), leave=nn.Linear(width, width))
    spared = mm(BATCH * seq, width, 3 * width)
    forward = products + scores
    return Planted(model, (torch.randn(BATCH, seq, width),), forward, 2 * forward - spared)


def encoder_layer() -> Planted:
    """A layer of torch's own, in training; the first products have no gradient of their input."""
    seq, width, wide = 8, 12, 20
    model = nn.TransformerEncoderLayer(width, 2, wide, dropout=0.0, batch_first=True)
    tokens = BATCH * seq
    forward = (
        mm(tokens, width, 4 * width) + 2 * mm(tokens, width, wide) + 2 * mm(tokens, width, seq)
    )
    spared = mm(tokens, width, 3 * width)
    return Planted(model, (torch.randn(BATCH, seq, width),), forward, 2 * forward - spared)


def mixer() -> Planted:
    """Layers over places and over channels in turn."""
    places = 8

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.channels(torch.tanh(self.places(x.mT).mT))

    first, second = mm(BATCH * IN, places, places), mm(BATCH * places, IN, OUT)
    model = Calls(run, places=nn.Linear(places, places), channels=nn.Linear(IN, OUT))
    x = torch.randn(BATCH, places, IN)
    return Planted(model, (x,), first + second, first + 2 * second)


def state_space() -> Planted:
    """A scan whose matrix only multiplies elements; it meets no product, and none is missing."""
    seq, states = 7, 4

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        taken, held = self.enter(x), torch.zeros(BATCH, MID, states)
        given = []
        for one in taken.unbind(1):
            held = held * torch.exp(-self.decay.exp()) + one[..., None]
            given.append(held.sum(-1))
        return self.leave(torch.stack(given, 1))

    enter, leave = mm(BATCH * seq, IN, MID), mm(BATCH * seq, MID, OUT)
    parts = {"enter": nn.Linear(IN, MID), "leave": nn.Linear(MID, OUT)}
    model = Calls(run, decay=matrix(MID, states), **parts)
    return Planted(model, (torch.randn(BATCH, seq, IN),), enter + leave, enter + 2 * leave)


def unet() -> Planted:
    """Down, up by a transposed convolution, and out over both."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        down = torch.relu(self.down(x))
        up = self.up(torch.relu(self.below(down)))
        return self.out(torch.cat([down, up], 1))

    down, below = 2 * BATCH * 8 * 64 * 27, 2 * BATCH * 16 * 16 * 8 * 4
    up, out = 2 * BATCH * 16 * 16 * 8 * 4, 2 * BATCH * 2 * 64 * 16
    model = Calls(
        run,
        down=nn.Conv2d(3, 8, 3, padding=1),
        below=nn.Conv2d(8, 16, 2, stride=2),
        up=nn.ConvTranspose2d(16, 8, 2, stride=2),
        out=nn.Conv2d(16, 2, 1),
    )
    forward = down + below + up + out
    return Planted(model, (torch.randn(BATCH, 3, 8, 8),), forward, 2 * forward - down)


def video() -> Planted:
    """Three dimensions, then one."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.line(torch.relu(self.cube(x)).mean((3, 4)))

    cube, line = 2 * 2 * 4 * 64 * 3 * 27, 2 * 2 * 5 * 4 * 4 * 3
    parts = {"cube": nn.Conv3d(3, 4, 3, padding=1), "line": nn.Conv1d(4, 5, 3, padding=1)}
    x = torch.randn(2, 3, 4, 4, 4)
    return Planted(Calls(run, **parts), (x,), cube + line, cube + 2 * line)


def segments() -> Planted:
    """Checkpoints of `checkpoint_sequential`: all but the last segment run again."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(IN, IN), nn.Tanh()) for _ in range(4)))

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpoint_sequential(self.body, 2, x, use_reentrant=False)

    one = mm(BATCH, IN, IN)
    return Planted(Calls(run, body=model), (torch.randn(BATCH, IN),), 4 * one, 7 * one, 2 * one)


def contrastive() -> Planted:
    """Two towers, and a product of what they made."""

    def run(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = F.normalize(self.a(x), dim=1) @ F.normalize(self.b(y), dim=1).T
        return F.cross_entropy(scores, torch.arange(BATCH))

    first, second, pairs = mm(BATCH, IN, OUT), mm(BATCH, MID, OUT), mm(BATCH, OUT, BATCH)
    model = Calls(run, a=nn.Linear(IN, OUT), b=nn.Linear(MID, OUT))
    inputs = (torch.randn(BATCH, IN), torch.randn(BATCH, MID))
    return Planted(model, inputs, first + second + pairs, first + second + 2 * pairs)


def gradient_penalty() -> Planted:
    """The slope of a critic is part of its loss: products of gradients, and their gradients."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.critic(x).sum(), x, create_graph=True)
        return slope.square().sum()

    first, second = mm(BATCH, IN, MID), mm(BATCH, MID, 1)
    layers = (nn.Linear(IN, MID, bias=False), nn.Tanh(), nn.Linear(MID, 1, bias=False))
    model = Calls(run, critic=nn.Sequential(*layers))
    # Forward, and the slope: of the input alone. Backward through the slope: both factors of its
    # first product, of its second one the matrix alone; then the first layer's matrix and input.
    backward = (first + second) + 2 * first + second + 2 * first
    return Planted(model, (torch.randn(BATCH, IN),), first + second, backward)


def complex_layer() -> Planted:
    """A multiply-accumulate of complex numbers is four."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).abs()

    model = Calls(run, weight=nn.Parameter(torch.randn(IN, OUT, dtype=torch.complex64)))
    one = 4 * mm(BATCH, IN, OUT)
    return Planted(model, (torch.randn(BATCH, IN, dtype=torch.complex64),), one, one)


WHOLE: dict[str, Callable[[], Planted]] = {
    made.__name__: made
    for made in (
        *(tied_autoencoder, tied_embedding, siamese, merged_lora, weight_normed, spectral_normed),
        *(hypernetwork, frozen_body, unused_branch, quantized, own_linear, reversed_gradient),
        *(ensemble, attention_by_hand, encoder_layer, mixer, state_space, unet, video, segments),
        *(contrastive, gradient_penalty, complex_layer),
    )
}
