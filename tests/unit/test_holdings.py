"""Who holds memory, read off models, optimizers and graphs without touching them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from steptime.guest.memory.holdings import (  # noqa: E402
    StorageLedger,
    saved_in_graph,
    take_models,
    take_optimizers,
)


def states_of(model, optimizer):
    ledger = StorageLedger(torch)
    numbers = take_models(ledger, [model], [optimizer])
    take_optimizers(ledger, [optimizer])
    return numbers, {name: part.bytes for name, part in ledger.parts.items()}, ledger


def kept_of(loss, model):
    ledger = StorageLedger(torch)
    take_models(ledger, [model], [])
    return sum(ledger.take("activations", [tensor]) for _, tensor in saved_in_graph(torch, [loss]))


def blocks():
    make = lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))  # noqa: E731
    return nn.ModuleList([make() for _ in range(3)])


def test_weights_gradients_and_states_are_exact() -> None:
    model = nn.Linear(100, 10)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 100)).sum().backward()
    optimizer.step()

    numbers, sizes, _ = states_of(model, optimizer)

    assert numbers == {"num_parameters": 1010, "num_trainable": 1010}
    # Two steps of four bytes each stand beside the moments.
    assert sizes == {"weights": 4040, "buffers": 0, "gradients": 4040, "optimizer": 8088}


def test_tied_weights_and_views_of_one_storage_count_once() -> None:
    model = nn.Module()
    flat = torch.zeros(100)
    model.first, model.second = nn.Parameter(flat[:40]), nn.Parameter(flat[40:])
    model.embed, model.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    model.head.weight = model.embed.weight

    _, sizes, _ = states_of(model, torch.optim.SGD(model.parameters(), lr=0.1))

    assert sizes["weights"] == 400 + 160


def test_types_are_told_apart() -> None:
    model = nn.Linear(10, 10, bias=False).to(torch.bfloat16)
    _, _, ledger = states_of(model, torch.optim.SGD(model.parameters(), lr=0.1))

    assert ledger.parts["weights"].by_dtype == {"bf16": 200}


def test_states_in_lists_dictionaries_and_attributes_are_found() -> None:
    model = nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    optimizer.state[model.weight] = {"pair": [torch.zeros(4), {"deep": torch.zeros(8)}]}
    optimizer.master = [torch.zeros(16)]

    assert states_of(model, optimizer)[1]["optimizer"] == 4 + 16 + 32 + 64


def test_frozen_parameters_are_weights_that_are_not_trained() -> None:
    model = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 1, bias=False))
    model[0].requires_grad_(False)
    numbers, sizes, _ = states_of(model, torch.optim.SGD(model[1].parameters(), lr=0.1))

    assert numbers == {"num_parameters": 110, "num_trainable": 10}
    assert sizes["weights"] == 440


def test_a_graph_keeps_what_its_nodes_saved() -> None:
    model = blocks()
    h = x = torch.randn(4, 8)
    for block in model:
        h = block(h)

    # Per block its input (the first one the batch), what GELU gets, and what it gives.
    assert kept_of(h.sum(), model) == 3 * 4 * (8 + 32 + 32) * 4
    assert x.grad_fn is None


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpointed_block_keeps_its_input_and_runs_no_second_time(use_reentrant) -> None:
    model, calls = blocks(), []
    for block in model:
        block.register_forward_hook(lambda *_: calls.append(1))
    h = torch.randn(4, 8, requires_grad=True)
    for block in model:
        h = checkpoint(block, h, use_reentrant=use_reentrant)

    kept = kept_of(h.sum(), model)

    # The state of the random numbers is kept beside each.
    random_bytes = torch.get_rng_state().nbytes
    assert kept == 3 * (4 * 8 * 4 + random_bytes)
    assert len(calls) == 3


def test_what_hooks_packed_is_looked_at_and_not_unpacked() -> None:
    unpacked = []
    pack = lambda t: (t.shape, t.clone())  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda p: unpacked.append(1) or p[1]):
        out = torch.randn(25, requires_grad=True).exp()

    assert kept_of(out.sum(), nn.Module()) == 100
    assert not unpacked


def test_a_graph_that_was_freed_keeps_nothing() -> None:
    model = nn.Linear(8, 8)
    loss = model(torch.randn(4, 8)).exp().sum()
    loss.backward()

    assert kept_of(loss, model) == 0


def test_tensors_of_an_autograd_function_of_the_users_count() -> None:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.beside = x * 2
            return x + 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    x = torch.randn(10, requires_grad=True).view(10)
    assert kept_of(Own.apply(x).sum(), nn.Module()) == 40 + 40


def test_a_subclass_counts_by_the_tensors_it_is_made_of() -> None:
    class Quantized(torch.Tensor):
        @staticmethod
        def __new__(cls, values, scale):
            made = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32)
            made.values_, made.scale_ = values, scale
            return made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("nothing is to be computed")

        def __tensor_flatten__(self):
            return ["values_", "scale_"], None

    ledger = StorageLedger(torch)
    ledger.take("optimizer", [Quantized(torch.zeros(64, dtype=torch.int8), torch.zeros(1))])

    assert ledger.parts["optimizer"].by_dtype == {"int8": 64, "fp32": 4}
