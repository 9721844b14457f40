"""The lever that keeps the outputs of frozen modules: the same bits, or it leaves them alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.levers.base import Facts
from steptime.levers.host.frozen_cache import LEVER, NUM_CHECKS

torch = pytest.importorskip("torch")

PICTURES = torch.rand(48, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def new_encoder() -> Any:
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.SiLU())
    return encoder.eval().requires_grad_(False)


class Calls:
    """Outermost calls without gradients, with the lever around them."""

    def __init__(self, limit_bytes: int = 1 << 30, *, is_trial: bool = True) -> None:
        self.wrapper: Callable[..., Any] | None = None
        self.num = 0
        session: Any = SimpleNamespace(
            torch=torch, wrap_plain_calls=self.take, count=print, is_trial=is_trial
        )
        assert LEVER.apply is not None
        LEVER.apply({"limit_bytes": limit_bytes}, session)

    def take(self, wrapper: Callable[..., Any]) -> Callable[[], None]:
        self.wrapper = wrapper
        return lambda: None

    def __call__(self, module: Any, rows: Any) -> Any:
        def call(*given: Any) -> Any:
            self.num += 1
            return module(rows)

        assert self.wrapper is not None
        with torch.no_grad():
            return self.wrapper(call, module, (rows,), {})


def train(encode: Callable[[Any, Any], Any], encoder: Any, *, num_epochs: int) -> list[float]:
    """The losses of a fine-tuning in shuffled batches."""
    torch.manual_seed(3)
    head = torch.nn.Linear(8 * 8 * 8, 1)
    optimizer = torch.optim.SGD(head.parameters(), 1e-2)
    losses = []
    for _ in range(num_epochs):
        for rows in torch.randperm(len(PICTURES)).split(8):
            loss = head(encode(encoder, PICTURES[rows]).flatten(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def bare(module: Any, rows: Any) -> Any:
    with torch.no_grad():
        return module(rows)


def test_losses_are_equal_bit_for_bit_and_later_epochs_compute_nothing() -> None:
    calls = Calls()

    losses = train(calls, new_encoder(), num_epochs=5)

    assert losses == train(bare, new_encoder(), num_epochs=5)
    assert calls.num == 6 + NUM_CHECKS


def test_what_is_given_may_be_changed_in_place() -> None:
    calls, encoder = Calls(), new_encoder()
    expected = bare(encoder, PICTURES[:4])

    for _ in range(8):
        assert torch.equal(calls(encoder, PICTURES[:4]), expected)
        calls(encoder, PICTURES[:4]).zero_()


class Beside(torch.nn.Module):  # type: ignore[misc]
    """Each output depends on the rows beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return self.weight * x.flatten(1) - x.mean()


class Drawing(Beside):
    """It draws numbers, as a variational encoder does."""

    def forward(self, x: Any) -> Any:
        return self.weight * torch.randn_like(x)


@pytest.mark.parametrize("make", [Beside, Drawing])
def test_a_module_whose_rows_are_not_alike_again_is_left_alone(make: Any) -> None:
    calls, module = Calls(), make().eval()

    for seed in range(12):
        order = torch.randperm(48, generator=torch.Generator().manual_seed(seed))
        for rows in order.split(8):
            calls(module, PICTURES[rows])

    assert calls.num == 12 * 6


@pytest.mark.parametrize("change", ["mul_", "data"])
def test_a_teacher_that_moves_is_computed_anew(change: str) -> None:
    calls, encoder = Calls(), new_encoder()

    for _ in range(12):
        with torch.no_grad():
            weight = encoder[0].weight.data if change == "data" else encoder[0].weight
            weight.mul_(0.9)
        assert torch.equal(calls(encoder, PICTURES), bare(encoder, PICTURES))


def test_hooks_of_the_script_are_always_called() -> None:
    calls, encoder, seen = Calls(), new_encoder(), []
    encoder[0].register_forward_hook(lambda *given: seen.append(1))

    for _ in range(8):
        calls(encoder, PICTURES[:4])

    assert len(seen) == 8


def test_no_more_is_kept_than_there_is_room_for() -> None:
    calls, encoder = Calls(limit_bytes=1000), new_encoder()

    for _ in range(8):
        calls(encoder, PICTURES[:4])

    assert calls.num == 8


def test_it_applies_where_a_frozen_module_is_called_on_the_cpu() -> None:
    assert LEVER.applies(Facts(torch_version="2.13", has_frozen_calls=True)) is None
    for facts in ({"has_frozen_calls": False}, {"has_frozen_calls": True, "device": "cuda"}):
        assert LEVER.applies(Facts(torch_version="2.13", **facts))
