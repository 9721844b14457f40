"""Further layers whose work is known in closed form: recurrent, grouped, sparse.

As in `counted_models.py`; each of them is whole, so the proof of completeness must hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import rnn

from counted_models import Outputs, Planted


def mm(rows: int, inner: int, columns: int) -> int:
    """A product of (rows, inner) and (inner, columns)."""
    return 2 * rows * inner * columns


class Calls(nn.Module):
    """A forward written as a function of the module."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def matrix(*sizes: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*sizes) / sizes[-1])


# -- recurrent layers

STEPS, ROWS, TAKEN, WIDTH = 6, 5, 12, 16


def lstm_without_bias() -> Planted:
    """Without biases, zeros as large as the matrices stand in their places."""
    model = Outputs(nn.LSTM(TAKEN, WIDTH, bias=False))
    forward = mm(STEPS * ROWS, TAKEN + WIDTH, 4 * WIDTH)
    return Planted(model, (torch.randn(STEPS, ROWS, TAKEN).requires_grad_(),), forward, 2 * forward)


def lstm_stacked() -> Planted:
    """Three layers in both directions, without biases: above the first, both ways are taken."""
    model = Outputs(nn.LSTM(TAKEN, WIDTH, num_layers=3, bias=False, bidirectional=True))
    one = mm(STEPS * ROWS, 1, 4 * WIDTH)
    forward = 2 * one * ((TAKEN + WIDTH) + 2 * (2 * WIDTH + WIDTH))
    return Planted(model, (torch.randn(STEPS, ROWS, TAKEN).requires_grad_(),), forward, 2 * forward)


def lstm_projected() -> Planted:
    """The state is projected; not fused, the first state and the input have no gradient."""
    small = 7
    model = Outputs(nn.LSTM(TAKEN, WIDTH, proj_size=small))
    by_input = mm(STEPS * ROWS, TAKEN, 4 * WIDTH)
    by_state, project = mm(ROWS, small, 4 * WIDTH), mm(ROWS, WIDTH, small)
    forward = by_input + STEPS * (by_state + project)
    backward = by_input + (2 * STEPS - 1) * by_state + 2 * STEPS * project
    return Planted(model, (torch.randn(STEPS, ROWS, TAKEN),), forward, backward)


def gru_stacked() -> Planted:
    """Two layers without biases; the first has no gradient of its input."""
    model = Outputs(nn.GRU(TAKEN, WIDTH, num_layers=2, bias=False))
    first, second = mm(STEPS * ROWS, TAKEN, 3 * WIDTH), mm(STEPS * ROWS, WIDTH, 3 * WIDTH)
    by_state = mm(ROWS, WIDTH, 3 * WIDTH)
    forward = first + second + 2 * STEPS * by_state
    spared = first + 2 * by_state
    return Planted(model, (torch.randn(STEPS, ROWS, TAKEN),), forward, 2 * forward - spared)


def rnn_bidirectional() -> Planted:
    model = Outputs(nn.RNN(TAKEN, WIDTH, bidirectional=True, bias=False))
    by_input, by_state = mm(STEPS * ROWS, TAKEN, WIDTH), mm(ROWS, WIDTH, WIDTH)
    forward = 2 * (by_input + STEPS * by_state)
    backward = 2 * forward - 2 * (by_input + by_state)
    return Planted(model, (torch.randn(STEPS, ROWS, TAKEN),), forward, backward)


def lstm_cell() -> Planted:
    """A cell in a loop; neither inputs nor the first state have a gradient."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(ROWS, WIDTH), torch.zeros(ROWS, WIDTH)
        for one in x:
            state = self.cell(one, state)
        return state[0]

    by_input, by_state = mm(ROWS, TAKEN, 4 * WIDTH), mm(ROWS, WIDTH, 4 * WIDTH)
    model = Calls(run, cell=nn.LSTMCell(TAKEN, WIDTH))
    backward = STEPS * (by_input + 2 * by_state) - by_state
    x = torch.randn(STEPS, ROWS, TAKEN)
    return Planted(model, (x,), STEPS * (by_input + by_state), backward)


def packed_gru() -> Planted:
    """Sequences of three lengths: only what is there is computed."""
    lengths = (6, 4, 1)

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.gru(rnn.pack_padded_sequence(x, list(lengths)))[1]

    tokens = sum(lengths)
    by_input, by_state = mm(tokens, TAKEN, 3 * WIDTH), mm(tokens, WIDTH, 3 * WIDTH)
    first = mm(len(lengths), WIDTH, 3 * WIDTH)
    model = Calls(run, gru=nn.GRU(TAKEN, WIDTH, bias=False))
    x = torch.randn(max(lengths), len(lengths), TAKEN)
    return Planted(model, (x,), by_input + by_state, by_input + 2 * by_state - first)


# -- grouped and sparse products


def grouped_rows() -> Planted:
    """Each group of rows meets its own matrix: the count does not go by the number of groups."""
    groups, rows, inner, columns = 4, 24, 16, 32
    ends = torch.tensor([5, 9, 20, rows], dtype=torch.int32)

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x, self.weights.bfloat16(), ends)

    one = mm(rows, inner, columns)
    model = Calls(run, weights=matrix(groups, inner, columns))
    x = torch.randn(rows, inner, dtype=torch.bfloat16)
    return Planted(model, (x,), one, one)


def grouped_columns() -> Planted:
    """Each matrix of the first factor meets its own columns of the second."""
    groups, rows, inner, columns = 4, 8, 16, 32
    ends = torch.tensor([8, 16, 24, columns], dtype=torch.int32)

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(self.weights.bfloat16(), x, ends)

    one = mm(rows, inner, columns)
    model = Calls(run, weights=matrix(groups, rows, inner))
    x = torch.randn(columns, inner, dtype=torch.bfloat16).T
    return Planted(model, (x,), one, one)


def grouped_stacks() -> Planted:
    """Both factors are stacks: a product a group."""
    groups, rows, inner, columns = 3, 8, 16, 24

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x, self.weights.bfloat16())

    one = groups * mm(rows, inner, columns)
    x = torch.randn(groups, rows, inner, dtype=torch.bfloat16)
    return Planted(Calls(run, weights=matrix(groups, inner, columns)), (x,), one, one)


def sparse_blocks() -> Planted:
    """A matrix of stored blocks of 4 x 4: each block is sixteen elements."""
    nodes, block, stored, wide, out = 16, 4, 5, 12, 8
    dense = torch.zeros(nodes, nodes)
    for place in torch.randperm((nodes // block) ** 2)[:stored].tolist():
        row, column = place // (nodes // block) * block, place % (nodes // block) * block
        dense[row : row + block, column : column + block] = 1.0
    graph = dense.to_sparse_bsr((block, block))

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(graph @ x)

    product = mm(nodes, wide, out)
    forward = 2 * stored * block**2 * wide + product
    x = torch.randn(nodes, wide)
    return Planted(Calls(run, layer=nn.Linear(wide, out)), (x,), forward, product)


def sparse_rows() -> Planted:
    """A matrix stored by rows between two layers; it has no gradient of its own."""
    nodes, edges, wide, out = 20, 37, 12, 8
    flat = torch.randperm(nodes * nodes)[:edges]
    dense = torch.zeros(nodes * nodes)
    dense[flat] = 1.0
    graph = dense.view(nodes, nodes).to_sparse_csr()

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(graph, self.layer(x))

    product, sparse = mm(nodes, wide, out), 2 * edges * out
    x = torch.randn(nodes, wide)
    return Planted(Calls(run, layer=nn.Linear(wide, out)), (x,), product + sparse, product + sparse)


LAYERS: dict[str, Callable[[], Planted]] = {
    made.__name__: made
    for made in (
        *(lstm_without_bias, lstm_stacked, lstm_projected, gru_stacked, rnn_bidirectional),
        *(lstm_cell, packed_gru, grouped_rows, grouped_columns, grouped_stacks),
        *(sparse_blocks, sparse_rows),
    )
}
