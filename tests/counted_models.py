"""Models whose work is known in closed form: what they are, how to call them, and the forms.

Each form is written from the sizes alone. A product of (m, k) and (k, n) is 2 m k n FLOP;
`forward`, `backward` and `recomputed` are of `model(*inputs)` and the gradients of what it returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Planted:
    """One model with its closed form [FLOP]."""

    model: Callable[..., Any]
    inputs: tuple[Any, ...]
    forward: int
    backward: int
    recomputed: int = 0

    @property
    def total(self) -> int:
        return self.forward + self.backward + self.recomputed


# -- products and convolutions


def linear_stack() -> Planted:
    """The first layer has no gradient of its input."""
    batch, widths = 32, (48, 96, 64, 10)
    layers: list[nn.Module] = []
    for taken, given in itertools.pairwise(widths):
        layers += [nn.Linear(taken, given), nn.ReLU()]
    products = [2 * batch * a * b for a, b in itertools.pairwise(widths)]
    return Planted(
        nn.Sequential(*layers),
        (torch.randn(batch, widths[0]),),
        sum(products),
        2 * sum(products) - products[0],
    )


@dataclass(frozen=True)
class Conv:
    """Sizes of a convolution over a square image of `side`."""

    taken: int
    given: int
    kernel: int
    side: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    def module(self) -> nn.Conv2d:
        return nn.Conv2d(
            self.taken,
            self.given,
            self.kernel,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            bias=False,
        )

    @property
    def side_given(self) -> int:
        reach = self.dilation * (self.kernel - 1)
        return (self.side + 2 * self.padding - reach - 1) // self.stride + 1

    def flops(self, batch: int) -> int:
        taps = self.kernel**2 * self.taken // self.groups
        return 2 * batch * self.given * self.side_given**2 * taps


def convnet() -> Planted:
    """Groups, dilation, stride, and a depthwise convolution."""
    batch = 4
    convs = (
        Conv(3, 16, 3, 20, padding=1),
        Conv(16, 32, 3, 20, dilation=2, groups=4),
        Conv(32, 32, 5, 16, stride=2, padding=2, groups=32),
        Conv(32, 8, 1, 8),
    )
    layers: list[nn.Module] = []
    for conv in convs:
        layers += [conv.module(), nn.ReLU()]
    flops = [conv.flops(batch) for conv in convs]
    image = torch.randn(batch, 3, 20, 20)
    return Planted(nn.Sequential(*layers), (image,), sum(flops), 2 * sum(flops) - flops[0])


class Residual(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, convs: tuple[Conv, Conv], shortcut: Conv | None) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv.module() for conv in convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(conv.given) for conv in convs)
        self.shortcut = None if shortcut is None else shortcut.module()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        x = F.relu(self.norms[0](self.convs[0](x)))
        return F.relu(self.norms[1](self.convs[1](x)) + kept)


def resnet() -> Planted:
    """A stem, four blocks of which two halve the image, pooling, and a classifier."""
    batch, side, width = 2, 32, 16
    stem = Conv(3, width, 7, side, stride=2, padding=3)
    convs, blocks, side = [stem], [], stem.side_given // 2
    for given, stride in ((16, 1), (32, 2), (32, 1), (64, 2)):
        first = Conv(width, given, 3, side, stride=stride, padding=1)
        second = Conv(given, given, 3, first.side_given, padding=1)
        short = None if stride == 1 else Conv(width, given, 1, side, stride=stride)
        blocks.append(Residual((first, second), short))
        convs += [first, second, *([] if short is None else [short])]
        width, side = given, first.side_given
    head = nn.Linear(width, 10)
    model = nn.Sequential(
        stem.module(),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        head,
    )
    flops = [conv.flops(batch) for conv in convs] + [2 * batch * width * 10]
    image = torch.randn(batch, 3, 32, 32)
    return Planted(model, (image,), sum(flops), 2 * sum(flops) - flops[0])


# -- transformers

BATCH, SEQ, HIDDEN, HEADS, LAYERS, VOCAB = 2, 32, 64, 8, 3, 96
TOKENS = BATCH * SEQ
MLP = 2 * 2 * TOKENS * HIDDEN * 4 * HIDDEN
"""Both matrices of four times the width."""


def square(seq: int = SEQ, keys: int = SEQ) -> int:
    """Scores and weighted values of all heads, nothing masked."""
    return 4 * BATCH * seq * keys * HIDDEN


class Block(nn.Module):
    """Attention and an MLP, with `kv_heads` keys and values."""

    def __init__(self, kv_heads: int = HEADS) -> None:
        super().__init__()
        self.kv_heads, self.width = kv_heads, HIDDEN // HEADS
        self.first, self.second = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.keys = nn.Linear(HIDDEN, 2 * kv_heads * self.width)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, _ = x.shape
        normed = self.first(x)
        query = self.query(normed).view(batch, seq, HEADS, self.width).transpose(1, 2)
        keys = self.keys(normed).view(batch, seq, 2, self.kv_heads, self.width)
        key, value = keys.permute(2, 0, 3, 1, 4)
        grouped = {"enable_gqa": True} if self.kv_heads != HEADS else {}
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, **grouped)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, HIDDEN))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """A decoder that returns its loss; `reentrant` checkpoints its blocks that way."""

    def __init__(self, kv_heads: int = HEADS, *, reentrant: bool | None = None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.tokens = nn.Embedding(VOCAB, HIDDEN)
        self.places = nn.Parameter(torch.zeros(SEQ, HIDDEN))
        self.blocks = nn.ModuleList(Block(kv_heads) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.tokens(words) + self.places
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.view(-1, VOCAB), words.view(-1))


def block_flops(kv_heads: int = HEADS) -> int:
    projections = 2 * TOKENS * HIDDEN * (2 * HIDDEN + 2 * HIDDEN * kv_heads // HEADS)
    return projections + square() + MLP


def words() -> tuple[torch.Tensor]:
    return (torch.randint(0, VOCAB, (BATCH, SEQ)),)


def gpt_flops(kv_heads: int = HEADS) -> int:
    return LAYERS * block_flops(kv_heads) + 2 * TOKENS * HIDDEN * VOCAB


def gpt() -> Planted:
    """Attention over the whole square, though it is causal."""
    return Planted(Gpt(), words(), gpt_flops(), 2 * gpt_flops())


def gqa() -> Planted:
    """Four query heads share a key: projections shrink, attention does not."""
    return Planted(Gpt(2), words(), gpt_flops(2), 2 * gpt_flops(2))


def gpt_checkpointed() -> Planted:
    """Without reentry: stops before the product that saves the last tensor, the MLP's second."""
    again = LAYERS * (block_flops() - MLP // 2)
    return Planted(Gpt(reentrant=False), words(), gpt_flops(), 2 * gpt_flops(), again)


def gpt_checkpointed_reentrant() -> Planted:
    """With reentry every block runs again as a whole."""
    again = LAYERS * block_flops()
    return Planted(Gpt(reentrant=True), words(), gpt_flops(), 2 * gpt_flops(), again)


def gpt_compiled() -> Planted:
    """The work of the model as it is written; nothing is compiled to count it."""
    return Planted(torch.compile(Gpt()), words(), gpt_flops(), 2 * gpt_flops())


class Autocast(nn.Module):
    """Its model in bf16."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(words)


def gpt_autocast() -> Planted:
    return Planted(Autocast(Gpt()), words(), gpt_flops(), 2 * gpt_flops())


class Crossing(nn.Module):
    """Attention to another sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return self.mix(x, memory, memory, need_weights=False)[0]


def cross_attention() -> Planted:
    """Inputs need gradients, as those of an encoder and of a layer below do."""
    keys = 3 * SEQ
    inputs = (torch.randn(BATCH, SEQ, HIDDEN), torch.randn(BATCH, keys, HIDDEN))
    forward = 2 * BATCH * HIDDEN**2 * (2 * SEQ + 2 * keys) + square(SEQ, keys)
    for one in inputs:
        one.requires_grad_()
    return Planted(Crossing(), inputs, forward, 2 * forward)


# -- recurrent


class Outputs(nn.Module):
    """A recurrent layer without its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def recurrent(kind: Any, *, gates: int, is_fused: bool, bidirectional: bool) -> Planted:
    """One layer. Unfused, the input has no gradient, nor has the first state."""
    steps, batch, taken, width = 6, 5, 12, 16
    ways = 2 if bidirectional else 1
    model = Outputs(kind(taken, width, bidirectional=bidirectional))
    x = torch.randn(steps, batch, taken, requires_grad=is_fused)
    by_input = 2 * steps * batch * gates * width * taken
    by_state = 2 * batch * gates * width * width
    forward = ways * (by_input + steps * by_state)
    spared = 0 if is_fused else ways * (by_input + by_state)
    return Planted(model, (x,), forward, 2 * forward - spared)


def lstm() -> Planted:
    return recurrent(nn.LSTM, gates=4, is_fused=True, bidirectional=False)


def lstm_bidirectional() -> Planted:
    return recurrent(nn.LSTM, gates=4, is_fused=True, bidirectional=True)


def gru() -> Planted:
    return recurrent(nn.GRU, gates=3, is_fused=False, bidirectional=False)


def gru_bidirectional() -> Planted:
    return recurrent(nn.GRU, gates=3, is_fused=False, bidirectional=True)


# -- lookups, graphs, experts, frozen weights


class Bag(nn.Module):
    """Sums of words, and a classifier."""

    def __init__(self, rows: int, width: int, classes: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, width, mode="sum")
        self.head = nn.Linear(width, classes)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.bag(words))


def embedding_bag() -> Planted:
    """Each word of a bag is one addition an element, and so is its gradient."""
    bags, words, rows, width, classes = 8, 5, 50, 24, 7
    sums, product = bags * words * width, 2 * bags * width * classes
    inputs = (torch.randint(0, rows, (bags, words)),)
    return Planted(Bag(rows, width, classes), inputs, sums + product, sums + 2 * product)


class Gcn(nn.Module):
    """Two layers over a fixed graph."""

    def __init__(self, graph: torch.Tensor, widths: tuple[int, int, int]) -> None:
        super().__init__()
        self.graph = graph
        self.first, self.second = nn.Linear(*widths[:2]), nn.Linear(*widths[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(torch.sparse.mm(self.graph, self.first(x)))
        return torch.sparse.mm(self.graph, self.second(x))


def gcn() -> Planted:
    """A product with a sparse matrix is two FLOP an edge and feature; the graph has no gradient."""
    nodes, edges, widths = 40, 130, (16, 24, 5)
    flat = torch.randperm(nodes * nodes)[:edges]
    at = torch.stack([flat // nodes, flat % nodes])
    graph = torch.sparse_coo_tensor(at, torch.rand(edges), (nodes, nodes), check_invariants=False)
    graph = graph.coalesce()
    dense = [2 * nodes * a * b for a, b in itertools.pairwise(widths)]
    sparse = sum(2 * edges * width for width in widths[1:])
    inputs = (torch.randn(nodes, widths[0]),)
    backward = 2 * sum(dense) - dense[0] + sparse
    return Planted(Gcn(graph, widths), inputs, sum(dense) + sparse, backward)


class Experts(nn.Module):
    """A router, and MLPs of which each token meets two."""

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.enter = nn.Linear(width, width)
        self.route = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        weights, chosen = self.route(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            at, place = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, at, expert(x[at]) * weights[at, place, None])
        return out


def mixture_of_experts() -> Planted:
    """However the router chooses, two experts a token; their sum is one addition an element."""
    tokens, width, inner, experts = 48, 32, 64, 4
    enter = 2 * tokens * width * width
    route = 2 * tokens * width * experts
    meet = 2 * tokens * 2 * (2 * width * inner)
    sums = 2 * tokens * width
    forward = enter + route + meet + sums
    backward = 2 * (enter + route + meet) - enter
    inputs = (torch.randn(tokens, width),)
    return Planted(Experts(width, inner, experts), inputs, forward, backward)


class Adapted(nn.Module):
    """A frozen matrix with a trained one of low rank beside it."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.base(x) + self.up(self.down(x)))


def lora() -> Planted:
    """Frozen weights have no gradient: of them the backward has one product, not two."""
    batch, width, rank, layers = 16, 64, 4, 3
    frozen, low = 2 * batch * width * width, 2 * batch * width * rank
    model = nn.Sequential(*(Adapted(width, rank) for _ in range(layers)))
    forward = layers * (frozen + 2 * low)
    backward = layers * 4 * low - low + (layers - 1) * frozen
    return Planted(model, (torch.randn(batch, width),), forward, backward)


PLANTED: dict[str, Callable[[], Planted]] = {
    made.__name__: made
    for made in (
        *(linear_stack, convnet, resnet, gpt, gqa, cross_attention),
        *(lstm, lstm_bidirectional, gru, gru_bidirectional),
        *(embedding_bag, gcn, mixture_of_experts),
        *(gpt_checkpointed, gpt_checkpointed_reentrant, lora, gpt_compiled, gpt_autocast),
    )
}
