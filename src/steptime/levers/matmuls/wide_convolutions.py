"""Convolutions over rows of one channel, with kernels as wide as the rows, as one matmul.

A classifier of texts (Kim, 2014) slides `nn.Conv2d(1, filters, (words, width))` along sentences of
word vectors. Such a kernel moves in one direction only, and convolutions of one channel are slow on
a CPU. One matmul gives each word's product with each row of each filter; sums of these, shifted
against each other, are the same result.

Source: Kim, Convolutional Neural Networks for Sentence Classification (2014), whose layers they
are. The form is our own; x1.2 to x1.6 for forward and backward of a layer in float32, x2 with
oneDNN's matmuls and x2.6 to x4.4 in bf16, measured on an EPYC with two threads.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.owners import put_forward

LEAST_WIDTH = 16
"""Narrower kernels are those of pictures."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device != "cpu":
        return f"It has not been tested on {facts.device}."
    if facts.uses_compile:
        return "The script compiles its model, and compiled code calls no module."
    if facts.widest_kernel is not None and facts.widest_kernel < LEAST_WIDTH:
        return f"No convolution of one channel has a kernel of {LEAST_WIDTH} columns or more."
    return None


@cache
def make_sum(torch: Any) -> Any:
    """Return the sum of products that are shifted against each other, with its gradient.

    It takes products (rows, words, kernel, filters) and returns (rows, words - kernel + 1,
    filters), in float32 where the products are of 16 bits.
    """

    class Sum(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, products: Any) -> Any:
            ctx.shape, ctx.dtype = products.shape, products.dtype
            num = products.shape[1] - products.shape[2] + 1
            dtype = torch.float32 if products.dtype.itemsize < 4 else products.dtype
            total = products[:, :num, 0].to(dtype, copy=True)
            for at in range(1, products.shape[2]):
                total += products[:, at : at + num, at]
            return total

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            num, found = gradient.shape[1], gradient.new_zeros(ctx.shape, dtype=ctx.dtype)
            for at in range(ctx.shape[2]):
                found[:, at : at + num, at] = gradient
            return found

    return Sum.apply


def convolve(torch: Any, layer: Any, x: Any) -> Any:
    """Return what a layer returns for rows (rows, 1, words, width)."""
    functional, weight, padding = torch.nn.functional, layer.weight, layer.padding[0]
    words = functional.pad(x[:, 0], (0, 0, padding, padding)) if padding else x[:, 0]
    rows = weight[:, 0].transpose(0, 1).flatten(0, 1)  # (kernel * filters, width)
    products = functional.linear(words, rows).unflatten(2, (weight.shape[2], weight.shape[0]))
    total = make_sum(torch)(products)
    if layer.bias is not None:
        total = total + layer.bias
    return total.to(products.dtype).transpose(1, 2).contiguous().unsqueeze(3)


def apply(settings: Settings, session: Session) -> Undo:
    """Compute such convolutions by matmuls from their next call on."""
    torch = session.torch
    owner, tensor = torch.nn.Conv2d, torch.Tensor
    original, is_tracing = owner.forward, torch.jit.is_tracing
    is_compiling = torch.compiler.is_compiling
    is_transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)

    def is_wide(self: Any, x: Any) -> bool:
        if type(self) is not owner or self.in_channels != 1 or type(x) is not tensor:
            return False
        (num, width), padding = self.kernel_size, self.padding
        is_plain = self.stride == self.dilation == (1, 1) and self.padding_mode == "zeros"
        if not is_plain or type(padding) is not tuple or padding[1] or width < LEAST_WIDTH:
            return False
        if x.dim() != 4 or x.shape[1] != 1 or x.shape[3] != width or not x.is_cpu:
            return False
        is_seen = is_compiling() or is_tracing() or is_transformed()
        return bool(x.shape[2] + 2 * padding[0] >= num and not is_seen)

    def forward(self: Any, input: Any) -> Any:  # noqa: A002  # torch's own name
        return convolve(torch, self, input) if is_wide(self, input) else original(self, input)

    return put_forward(owner, forward)


LEVER = Lever(
    name="wide_convolutions",
    title="Compute convolutions with kernels as wide as their rows by one matmul.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when=(
        "A model has an `nn.Conv2d` of one channel whose kernel is as wide as its input, as text "
        f"classifiers have, of at least {LEAST_WIDTH} columns, without stride and dilation."
    ),
    applies=applies,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: (
        "words = F.pad(x[:, 0], (0, 0, padding, padding))  # x: (rows, 1, words, width)\n"
        "rows = conv.weight[:, 0].transpose(0, 1).flatten(0, 1)\n"
        "products = F.linear(words, rows).unflatten(2, (kernel, filters))\n"
        "num = products.shape[1] - kernel + 1\n"
        "total = sum(products[:, k : k + num, k] for k in range(kernel)) + conv.bias\n"
        "y = total.transpose(1, 2).unsqueeze(3)  # in place of conv(x)"
    ),
    costs="Memory for the products, as many as the result has numbers times the kernel's rows.",
    source="https://arxiv.org/abs/1408.5882",
)
