"""What autograd keeps is an activation, in whichever graph it is kept: closed forms."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from steptime.guest.count.counting_mode import make_mode  # noqa: E402
from steptime.guest.memory.live_graphs import with_graph  # noqa: E402
from steptime.guest.memory.memory_probe import MemoryProbe  # noqa: E402
from steptime.guest.memory.storages import Storages  # noqa: E402

BATCH, NOISE, HIDDEN, WIDE = 8, 4, 16, 32
FP32 = 4


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Hides the graphs that other tests of the process hold: a graph is a graph."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def make_gan() -> Any:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(NOISE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDE))
    discriminator = nn.Sequential(nn.Linear(WIDE, HIDDEN), nn.LeakyReLU(0.2), nn.Linear(HIDDEN, 1))
    return SimpleNamespace(
        generator=generator,
        discriminator=discriminator,
        loss=nn.BCEWithLogitsLoss(),
        optimizers=[torch.optim.Adam(m.parameters()) for m in (generator, discriminator)],
    )


# Bytes that each graph keeps. The generator: its noise and what the ReLU returned. The
# discriminator: its input, what the leaky ReLU takes and what it returns. The loss: both arguments.
OF_GENERATOR = FP32 * BATCH * (NOISE + HIDDEN)
OF_DISCRIMINATOR = FP32 * BATCH * (WIDE + 2 * HIDDEN)
OF_LOSS = FP32 * BATCH * 2


def probe_of(gan: Any, lines: list[dict[str, Any]]) -> MemoryProbe:
    return MemoryProbe(
        torch,
        lambda kind, facts: lines.append(facts),
        find_models=lambda: [gan.generator, gan.discriminator],
        find_optimizers=lambda: gan.optimizers,
        find_ddp=list,
    )


def kept_in(lines: list[dict[str, Any]]) -> int:
    parts = lines[-1]["parts"]
    return sum(parts[name]["bytes"] for name in ("activations", "logits") if name in parts)


def test_a_generator_s_graph_is_kept_while_its_discriminator_is_trained() -> None:
    gan, lines = make_gan(), []
    probe = probe_of(gan, lines)
    fake = gan.generator(torch.randn(BATCH, NOISE))
    loss = gan.loss(gan.discriminator(fake.detach()), torch.zeros(BATCH, 1))

    probe.see_backward((loss,))

    assert kept_in(lines) == OF_GENERATOR + OF_DISCRIMINATOR + OF_LOSS
    loss.backward()
    loss = gan.loss(gan.discriminator(fake), torch.ones(BATCH, 1))
    probe.see_backward((loss,))
    assert kept_in(lines) == OF_GENERATOR + OF_DISCRIMINATOR + OF_LOSS


def test_a_graph_that_has_gone_backward_and_one_that_nobody_holds_keep_nothing() -> None:
    gan, lines = make_gan(), []
    probe = probe_of(gan, lines)
    gone = gan.loss(gan.discriminator(torch.randn(BATCH, WIDE)), torch.ones(BATCH, 1))
    gone.backward()
    gan.generator(torch.randn(BATCH, NOISE)).detach()
    loss = gan.loss(gan.discriminator(torch.randn(BATCH, WIDE)), torch.ones(BATCH, 1))

    probe.see_backward((loss,))

    assert kept_in(lines) == OF_DISCRIMINATOR + OF_LOSS


def test_two_forwards_of_one_model_that_live_at_once_are_both_kept() -> None:
    gan, lines = make_gan(), []
    probe = probe_of(gan, lines)
    first = gan.discriminator(torch.randn(BATCH, WIDE))
    second = gan.discriminator(torch.randn(BATCH, WIDE))

    probe.see_backward((second.sum(),))

    assert kept_in(lines) == 2 * OF_DISCRIMINATOR
    assert first.grad_fn is not None


def follow(probe: MemoryProbe) -> Any:
    """Follow a step as the guest does; return the mode in which operators are noted."""
    probe.see_call(nn.Linear(1, 1))
    probe.storages = storages = Storages(torch, "cpu")
    add = lambda func, args, kwargs, result, ns: storages.add(func, args, kwargs, result)  # noqa: E731
    storages.open("forward")
    return make_mode(torch, add, lambda: 0)


def test_what_a_call_keeps_is_an_activation_even_if_its_result_is_cut_off_at_once() -> None:
    gan, lines = make_gan(), []
    probe = probe_of(gan, lines)
    with follow(probe):
        fake = gan.generator(torch.randn(BATCH, NOISE))
    probe.see_result(fake)
    fake = fake.detach()  # the graph of the call is gone

    # When the second product ran: noise and what the ReLU returned, beside the result.
    last = probe.storages.table()["instants"][-1]["by_part"]
    assert last["activations"] == OF_GENERATOR
    assert last["temporaries"] <= FP32 * BATCH * (WIDE + HIDDEN)


def test_the_generator_s_graph_is_no_temporary_while_the_discriminator_goes_backward() -> None:
    gan, lines = make_gan(), []
    probe = probe_of(gan, lines)
    with follow(probe):
        fake = gan.generator(torch.randn(BATCH, NOISE))
    probe.see_result(fake)
    with make_mode(torch, probe_add(probe), lambda: 0):
        scores = gan.discriminator(fake.detach())
    probe.see_result(scores)
    with make_mode(torch, probe_add(probe), lambda: 0):
        loss = gan.loss(scores, torch.zeros(BATCH, 1))
    probe.see_backward((loss,))
    probe.storages.open("backward")
    with make_mode(torch, probe_add(probe), lambda: 0):
        loss.backward()

    instants = probe.storages.table()["instants"]
    first = next(one["by_part"] for one in instants if one["phase"] == "backward")
    assert first["activations"] + first["logits"] == OF_GENERATOR + OF_DISCRIMINATOR + OF_LOSS
    # The loss's ones and the gradient of the scores.
    assert first["temporaries"] <= FP32 * (2 + BATCH)


def probe_add(probe: MemoryProbe) -> Any:
    return lambda func, args, kwargs, result, ns: probe.storages.add(func, args, kwargs, result)


@pytest.mark.parametrize(("look_s", "due"), [(0.1, "see_end"), (0.3, None)])
def test_no_further_update_is_followed_once_a_look_took_long(look_s: float, due: str) -> None:
    probe = probe_of(make_gan(), [])
    probe.num_updates, probe.look_ns = 50, round(look_s * 1e9)

    assert probe.count_update(SimpleNamespace(is_worth_following=True, missing=None)) == due


def test_objects_are_searched_at_a_few_backward_calls_of_an_update_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gan, lines, searched = make_gan(), [], []
    probe = probe_of(gan, lines)
    monkeypatch.setattr(
        "steptime.guest.memory.memory_probe.tensors_alive", lambda _: searched.append(1) or []
    )
    loss = gan.discriminator(torch.randn(BATCH, WIDE)).sum()
    for _ in range(10):
        probe.see_backward((loss,))

    assert len(searched) == 4
    assert kept_in(lines) == OF_DISCRIMINATOR


def test_a_tensor_that_refuses_to_say_has_no_graph() -> None:
    class Refusing:
        @property
        def grad_fn(self) -> Any:
            raise RuntimeError("a view that was changed in place")

    assert with_graph([Refusing()]) == []
