"""Models of which torch's operators show only a part, with closed forms of all that they compute.

Kernels that are launched around the dispatcher, threads that nobody watches, operators without a
formula: a count of them is a lower bound, and the proof of completeness must fail for each.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations

from counted_layers import Calls, matrix, mm
from counted_models import Planted

BATCH, IN, MID, OUT = 9, 10, 14, 6


class NumpyLinear(torch.autograd.Function):
    """A product by NumPy, with gradients by NumPy."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = (one.detach().numpy() for one in ctx.saved_tensors)
        dy = gradient.numpy()
        return torch.from_numpy(dy @ weight), torch.from_numpy(dy.T @ x)


class RawLinear(torch.autograd.Function):
    """Writes into memory that torch gave, as a kernel of one's own does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return written(x.detach().double().numpy() @ weight.detach().double().numpy().T)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = (one.detach().numpy() for one in ctx.saved_tensors)
        return written(gradient.numpy() @ weight), written(gradient.numpy().T @ x)


def written(values: Any) -> torch.Tensor:
    """A tensor whose elements a foreign function has written."""
    values = values.astype("float32")
    out = torch.empty(values.shape)
    ctypes.memmove(out.data_ptr(), values.ctypes.data, values.nbytes)
    return out


class NumpyGradients(torch.autograd.Function):
    """The forward is torch's, the gradients are NumPy's."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    backward = NumpyLinear.backward


class RawAttention(torch.autograd.Function):
    """Scores and weighted values by NumPy: no matrix of the model takes part."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(query, value)
        made, values = query.detach().numpy(), value.detach().numpy()
        return torch.from_numpy(made @ made.swapaxes(1, 2) @ values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made, values = (one.detach().numpy() for one in ctx.saved_tensors)
        dy, scores = gradient.numpy(), made @ made.swapaxes(1, 2)
        slope = dy @ values.swapaxes(1, 2)
        slope = slope + slope.swapaxes(1, 2)
        return torch.from_numpy(slope @ made), torch.from_numpy(scores.swapaxes(1, 2) @ dy)


def between(function: Callable[..., torch.Tensor]) -> Planted:
    """A function's product between two of torch's."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(function(torch.relu(self.body(x)), self.weight)))

    model = Calls(run, body=nn.Linear(IN, MID), weight=matrix(MID, MID), head=nn.Linear(MID, OUT))
    first, own, last = mm(BATCH, IN, MID), mm(BATCH, MID, MID), mm(BATCH, MID, OUT)
    forward = first + own + last
    return Planted(model, (torch.randn(BATCH, IN),), forward, 2 * forward - first)


def numpy_linear() -> Planted:
    return between(NumpyLinear.apply)


def raw_linear() -> Planted:
    return between(RawLinear.apply)


def numpy_gradients() -> Planted:
    return between(NumpyGradients.apply)


def custom_operator() -> Planted:
    """A registered operator has no formula: nobody knows what it computes."""

    @torch.library.custom_op("partly_seen::linear", mutates_args=())
    def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    linear.register_autograd(NumpyLinear.backward, setup_context=keep)
    return between(linear)


def numpy_head() -> Planted:
    """Nothing of torch's comes behind it."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return NumpyLinear.apply(self.body(x), self.weight)

    first, last = mm(BATCH, IN, MID), mm(BATCH, MID, OUT)
    model = Calls(run, body=nn.Linear(IN, MID), weight=matrix(OUT, MID))
    return Planted(model, (torch.randn(BATCH, IN),), first + last, first + 2 * last)


def numpy_tied_head() -> Planted:
    """The table is looked up by torch, and multiplied by NumPy."""
    words, vocabulary = 11, 30

    def run(self: Any, at: torch.Tensor) -> torch.Tensor:
        scores = NumpyLinear.apply(torch.tanh(self.layer(self.table(at))), self.table.weight)
        return F.cross_entropy(scores, at)

    layer, head = mm(words, MID, MID), mm(words, MID, vocabulary)
    model = Calls(run, table=nn.Embedding(vocabulary, MID), layer=nn.Linear(MID, MID))
    at = torch.randint(0, vocabulary, (words,))
    return Planted(model, (at,), layer + head, 2 * (layer + head))


def numpy_normed() -> Planted:
    """Torch normalizes the weights, NumPy multiplies them."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(NumpyLinear.apply(x, self.layer.weight))

    model = Calls(run, layer=parametrizations.weight_norm(nn.Linear(IN, OUT, bias=False)))
    one = mm(BATCH, IN, OUT)
    return Planted(model, (torch.randn(BATCH, IN),), one, 2 * one)


def raw_attention() -> Planted:
    """All matrices are met; what is missing are products of activations."""
    seq = 8

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        made = self.enter(x)
        return self.leave(RawAttention.apply(made, made))

    products, scores = mm(BATCH * seq, IN, IN), BATCH * 2 * mm(seq, IN, seq)
    model = Calls(run, enter=nn.Linear(IN, IN), leave=nn.Linear(IN, IN))
    x = torch.randn(BATCH, seq, IN)
    return Planted(model, (x,), 2 * products + scores, 3 * products + 2 * scores)


def in_a_thread(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(function(x)))
    thread.start()
    thread.join()
    return found[0]


def threaded() -> Planted:
    """The body runs in a thread, the head in this one."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.head(in_a_thread(self.body, x))

    body, head = mm(BATCH, IN, MID), mm(BATCH, MID, OUT)
    model = Calls(run, body=nn.Linear(IN, MID), head=nn.Linear(MID, OUT))
    return Planted(model, (torch.randn(BATCH, IN),), body + head, body + 2 * head)


def half_threaded() -> Planted:
    """One layer is called here and in a thread: one of its two products is seen."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * in_a_thread(self.layer, x + 1)

    one = mm(BATCH, IN, MID)
    return Planted(
        Calls(run, layer=nn.Linear(IN, MID)), (torch.randn(BATCH, IN),), 2 * one, 2 * one
    )


def computed_before() -> Planted:
    """The body has run before the count begins; the backward goes through it."""
    body, head = nn.Linear(IN, MID), nn.Linear(MID, OUT)
    made = torch.relu(body(torch.randn(BATCH, IN)))
    first, last = mm(BATCH, IN, MID), mm(BATCH, MID, OUT)
    return Planted(lambda: head(made), (), first + last, first + 2 * last)


def bilinear() -> Planted:
    """An operator of torch's that has no formula takes the matrix."""
    model = nn.Bilinear(IN, MID, OUT)
    forward = mm(BATCH, IN, MID * OUT) + 2 * BATCH * MID * OUT
    inputs = (torch.randn(BATCH, IN), torch.randn(BATCH, MID))
    return Planted(model, inputs, forward, forward)


def solved() -> Planted:
    """A linear system: about two thirds of a cube, and no formula."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(self.weight + 3 * torch.eye(IN), x.T).T

    cube = 2 * IN**3 // 3
    model = Calls(run, weight=matrix(IN, IN))
    return Planted(model, (torch.randn(BATCH, IN),), cube + mm(IN, IN, BATCH), 2 * cube)


PARTLY_SEEN: dict[str, Callable[[], Planted]] = {
    made.__name__: made
    for made in (
        *(numpy_linear, raw_linear, numpy_gradients, custom_operator, numpy_head, numpy_tied_head),
        *(numpy_normed, raw_attention, threaded, half_threaded, computed_before, bilinear, solved),
    )
}
