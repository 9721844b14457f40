"""Twelve models for the forecast of memory: what they are, a batch, and a loss.

Each is written from scratch, small enough for many trainings on one core, and large enough that
activations, states and workspaces all count. Where `checkpoints` is true, each block is computed
again in the backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Training:
    """A model, what it is called with, and the loss of what it returns."""

    model: nn.Module
    batch: tuple[Any, ...]
    loss: Callable[[torch.Tensor], torch.Tensor]


class Chain(nn.Module):
    """Blocks one after another, each of them computed again in the backward, if that is wanted."""

    def __init__(self, blocks: list[nn.Module], *, checkpoints: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.checkpoints = checkpoints

    def forward(self, x: torch.Tensor, *others: Any) -> torch.Tensor:
        for block in self.blocks:
            if self.checkpoints:
                x = checkpoint(block, x, *others, use_reentrant=False)
            else:
                x = block(x, *others)
        return x


def classify(labels: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda output: F.cross_entropy(output.flatten(0, -2), labels.flatten())


# -- transformers


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, *, kv_heads: int, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.is_causal = heads, kv_heads, is_causal
        size = width // heads
        self.queries = nn.Linear(width, heads * size)
        self.keys_values = nn.Linear(width, 2 * kv_heads * size)
        self.out = nn.Linear(heads * size, width)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        source = x if memory is None else memory
        batch, length, _ = x.shape
        q = self.queries(x).view(batch, length, self.heads, -1).transpose(1, 2)
        kv = self.keys_values(source).view(batch, source.shape[1], 2, self.kv_heads, -1)
        k, v = kv.permute(2, 0, 3, 1, 4)
        if self.kv_heads != self.heads:
            k, v = (one.repeat_interleave(self.heads // self.kv_heads, 1) for one in (k, v))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(found.transpose(1, 2).reshape(batch, length, -1))


class Gated(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner), nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention, perhaps attention to a second sequence, and a network for each position."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        is_causal: bool = False,
        crosses: bool = False,
        drop: float = 0.0,
        inner: nn.Module | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        kv_heads = kv_heads or heads
        self.norms = nn.ModuleList(norm(width) for _ in range(3 if crosses else 2))
        self.attention = Attention(width, heads, kv_heads=kv_heads, is_causal=is_causal)
        self.cross = (
            Attention(width, heads, kv_heads=kv_heads, is_causal=False) if crosses else None
        )
        self.inner = inner or nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(drop)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.drop(self.attention(self.norms[0](x)))
        if self.cross is not None:
            x = x + self.drop(self.cross(self.norms[2](x), memory))
        return x + self.drop(self.inner(self.norms[1](x)))


class Language(nn.Module):
    """Tokens to logits of tokens; the last matrix may be that of the first."""

    def __init__(self, vocab: int, width: int, length: int, body: nn.Module, *, ties: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.body, self.norm = body, nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        if ties:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.body(self.tokens(tokens) + self.places(places))))


def _language(blocks: list[nn.Module], *, checkpoints: bool, ties: bool = True) -> Training:
    vocab, width, length, batch = 1000, 128, 128, 4
    body = Chain(blocks, checkpoints=checkpoints)
    tokens = torch.randint(vocab, (batch, length))
    model = Language(vocab, width, length, body, ties=ties)
    return Training(model, (tokens,), classify(torch.randint(vocab, (batch, length))))


def gpt(*, checkpoints: bool) -> Training:
    blocks: list[nn.Module] = [Block(128, 4, is_causal=True, drop=0.1) for _ in range(3)]
    return _language(blocks, checkpoints=checkpoints)


def llama(*, checkpoints: bool) -> Training:
    blocks: list[nn.Module] = [
        Block(128, 8, kv_heads=2, is_causal=True, inner=Gated(128, 344), norm=nn.RMSNorm)
        for _ in range(3)
    ]
    return _language(blocks, checkpoints=checkpoints, ties=False)


class Experts(nn.Module):
    """Each position goes to two of the experts, whichever a router takes."""

    def __init__(self, width: int, num: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, num)
        self.experts = nn.ModuleList(Gated(width, 2 * width) for _ in range(num))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1)
        weights, chosen = self.router(flat).softmax(-1).topk(2, -1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            given = expert(flat[rows]) * weights[rows, places, None]
            out = out.index_add(0, rows, given.to(out.dtype))
        return out.view_as(x)


def mixture_of_experts(*, checkpoints: bool) -> Training:
    blocks: list[nn.Module] = [
        Block(128, 4, is_causal=True, inner=Experts(128, 4)) for _ in range(2)
    ]
    return _language(blocks, checkpoints=checkpoints)


def lora(*, checkpoints: bool) -> Training:
    """A frozen language model with small trained matrices beside each of its own."""
    training = gpt(checkpoints=checkpoints)
    training.model.requires_grad_(False)
    for module in list(training.model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and child is not training.model.head:
                setattr(module, name, Adapted(child, 8))
    return training


class Adapted(nn.Module):
    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(x))


class Translation(nn.Module):
    """An encoder, and a decoder that attends to it; a mask hides the padding."""

    def __init__(self, vocab: int, width: int, *, checkpoints: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True), 2
        )
        blocks: list[nn.Module] = [
            Block(width, 4, is_causal=True, crosses=True, drop=0.1) for _ in range(2)
        ]
        self.decoder = Chain(blocks, checkpoints=checkpoints)
        self.head = nn.Linear(width, vocab)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self.tokens(source), src_key_padding_mask=source == 0)
        return self.head(self.decoder(self.tokens(target), memory))


def translation(*, checkpoints: bool) -> Training:
    vocab, batch = 800, 4
    source, target = torch.randint(vocab, (batch, 96)), torch.randint(vocab, (batch, 64))
    source[:, 80:] = 0
    model = Translation(vocab, 128, checkpoints=checkpoints)
    return Training(model, (source, target), classify(torch.randint(vocab, (batch, 64))))


class VisionTransformer(nn.Module):
    def __init__(self, width: int, *, checkpoints: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        blocks: list[nn.Module] = [Block(width, 4, drop=0.1) for _ in range(4)]
        self.body = Chain(blocks, checkpoints=checkpoints)
        self.head = nn.Linear(width, 100)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.body(x)[:, 0])


def vision_transformer(*, checkpoints: bool) -> Training:
    model = VisionTransformer(128, checkpoints=checkpoints)
    return Training(model, (torch.randn(8, 3, 64, 64),), classify(torch.randint(100, (8,))))


# -- convolutions


class Residual(nn.Module):
    def __init__(self, taken: int, given: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(taken, given, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(given, given, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(given) for _ in range(2))
        self.short = (
            nn.Identity()
            if taken == given and stride == 1
            else nn.Sequential(
                nn.Conv2d(taken, given, 1, stride, bias=False), nn.BatchNorm2d(given)
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)), inplace=True)
        return F.relu(self.norms[1](self.second(y)) + self.short(x), inplace=True)


def resnet(*, checkpoints: bool) -> Training:
    blocks: list[nn.Module] = [
        Residual(a, b, s) for a, b, s in ((32, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2))
    ]
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(True)),
        nn.MaxPool2d(3, 2, 1),
        Chain(blocks, checkpoints=checkpoints),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)),
    )
    return Training(model, (torch.randn(4, 3, 96, 96),), classify(torch.randint(100, (4,))))


class Inverted(nn.Module):
    """Widens, filters each channel alone, weighs channels, and narrows."""

    def __init__(self, taken: int, given: int, stride: int) -> None:
        super().__init__()
        inner = 4 * taken
        self.filters = nn.Sequential(
            *(nn.Conv2d(taken, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.Hardswish()),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            *(nn.BatchNorm2d(inner), nn.Hardswish()),
        )
        self.weigh = nn.Sequential(
            *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, inner // 4, 1), nn.ReLU()),
            *(nn.Conv2d(inner // 4, inner, 1), nn.Hardsigmoid()),
        )
        self.narrow = nn.Sequential(nn.Conv2d(inner, given, 1, bias=False), nn.BatchNorm2d(given))
        self.adds = taken == given and stride == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.filters(x)
        y = self.narrow(y * self.weigh(y))
        return x + y if self.adds else y


def mobile_convnet(*, checkpoints: bool) -> Training:
    blocks: list[nn.Module] = [
        Inverted(a, b, s) for a, b, s in ((16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1))
    ]
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()),
        Chain(blocks, checkpoints=checkpoints),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 100)),
    )
    return Training(model, (torch.randn(4, 3, 96, 96),), classify(torch.randint(100, (4,))))


def _double(taken: int, given: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(taken, given, 3, padding=1), nn.GroupNorm(4, given), nn.SiLU()),
        *(nn.Conv2d(given, given, 3, padding=1), nn.GroupNorm(4, given), nn.SiLU()),
    )


class UNet(nn.Module):
    """Halves an image twice, doubles it twice, and adds what it knew before."""

    def __init__(self, widths: tuple[int, int, int], *, checkpoints: bool) -> None:
        super().__init__()
        a, b, c = widths
        self.down = nn.ModuleList([_double(3, a), _double(a, b), _double(b, c)])
        self.widen = nn.ModuleList([nn.ConvTranspose2d(c, b, 2, 2), nn.ConvTranspose2d(b, a, 2, 2)])
        self.up = nn.ModuleList([_double(2 * b, b), _double(2 * a, a)])
        self.head = nn.Conv2d(a, 3, 1)
        self.checkpoints = checkpoints

    def run(self, part: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(part, x, use_reentrant=False) if self.checkpoints else part(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.run(self.down[0], x)
        second = self.run(self.down[1], F.max_pool2d(first, 2))
        x = self.run(self.down[2], F.max_pool2d(second, 2))
        x = self.run(self.up[0], torch.cat([self.widen[0](x), second], 1))
        x = self.run(self.up[1], torch.cat([self.widen[1](x), first], 1))
        return self.head(x)


def u_net(*, checkpoints: bool) -> Training:
    image = torch.randn(2, 3, 64, 64)
    model = UNet((16, 32, 64), checkpoints=checkpoints)
    return Training(model, (image,), lambda output: F.mse_loss(output.float(), image))


# -- recurrent


class Recurrent(nn.Module):
    """Tokens to logits through recurrent layers."""

    def __init__(
        self, kind: type[nn.RNNBase], vocab: int, width: int, *, checkpoints: bool
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        layers: list[nn.Module] = [First(kind(width, width, batch_first=True)) for _ in range(2)]
        self.body = Chain(layers, checkpoints=checkpoints)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.tokens(tokens)))


class First(nn.Module):
    """A layer without its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def _recurrent(kind: type[nn.RNNBase], length: int, *, checkpoints: bool) -> Training:
    vocab, batch = 500, 8
    model = Recurrent(kind, vocab, 128, checkpoints=checkpoints)
    labels = torch.randint(vocab, (batch, length))
    return Training(model, (torch.randint(vocab, (batch, length)),), classify(labels))


def lstm(*, checkpoints: bool) -> Training:
    return _recurrent(nn.LSTM, 48, checkpoints=checkpoints)


def gru(*, checkpoints: bool) -> Training:
    return _recurrent(nn.GRU, 32, checkpoints=checkpoints)


# -- graphs


class GraphAttention(nn.Module):
    """Each node takes a weighted mean of its neighbours, with weights of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.values = nn.Linear(width, width)
        self.scores = nn.Linear(2 * width // heads, 1)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        values = self.values(x).view(len(x), self.heads, -1)
        pairs = torch.cat([values[source], values[target]], -1)
        weights = F.leaky_relu(self.scores(pairs), 0.2).exp()
        given = (weights * values[source]).flatten(1)
        sums = torch.zeros_like(x, dtype=given.dtype).index_add(0, target, given)
        whole = torch.zeros(len(x), self.heads, 1, dtype=weights.dtype).index_add(
            0, target, weights
        )
        mixed = (sums.view(len(x), self.heads, -1) / (whole + 1e-6)).flatten(1)
        return F.elu(self.norm(x + mixed))


class GraphNet(nn.Module):
    def __init__(self, taken: int, width: int, *, checkpoints: bool) -> None:
        super().__init__()
        self.first = nn.Linear(taken, width)
        layers: list[nn.Module] = [GraphAttention(width, 4) for _ in range(3)]
        self.body = Chain(layers, checkpoints=checkpoints)
        self.head = nn.Linear(width, 7)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.first(x), edges))


def graph_network(*, checkpoints: bool) -> Training:
    num, degree = 600, 8
    edges = torch.stack([torch.randint(num, (num * degree,)) for _ in range(2)])
    model = GraphNet(100, 64, checkpoints=checkpoints)
    return Training(model, (torch.randn(num, 100), edges), classify(torch.randint(7, (num,))))


MODELS: dict[str, Callable[..., Training]] = {
    one.__name__: one
    for one in (
        *(gpt, llama, mixture_of_experts, lora, translation, vision_transformer),
        *(resnet, mobile_convnet, u_net, lstm, gru, graph_network),
    )
}
"""Small models of the kinds that people train, by name; `make(checkpoints=...)` plants one."""
