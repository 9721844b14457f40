"""`steptime.count` leaves models, inputs, gradients, random numbers and settings as they were.

For each odd model: everything before and after is the same, also where the model raises or is
interrupted half-way, and training goes on bit for bit as if nothing had been counted.
"""

from __future__ import annotations

import copy
import signal
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import steptime  # noqa: E402
from deep_state import Bomb, Burst, bits, count, everything, seed, train  # noqa: E402
from odd_models import ODD, Holding, Odd, batch_norm, normed, one, rows  # noqa: E402
from steptime.counting.kept_gradients import KeptGradients  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about what is odd


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """No test's settings reach the next one, whatever a model leaves behind."""
    seed()
    yield
    seed()


# -- the odd models


@pytest.mark.parametrize("name", ODD)
def test_training_goes_on_bit_for_bit(name: str) -> None:
    seed()
    counted = ODD[name]()
    seed()
    other = ODD[name]()

    count(counted)

    assert train(counted) == train(other)


@pytest.mark.parametrize("name", ODD)
def test_everything_is_as_it_was_and_also_where_it_raises_half_way(name: str) -> None:
    odd = ODD[name]()
    before = everything(odd)

    with Bomb(None, Burst) as whole:
        found = count(odd)

    assert found.classes
    assert everything(odd) == before
    for part, error in ((5, Burst), (7, KeyboardInterrupt)):
        wrapped = (RuntimeError,) if name.startswith("scripted") else ()  # by TorchScript
        with pytest.raises((error, *wrapped)), Bomb(whole.num * part // 8, error):
            count(odd)
        assert everything(odd) == before


# -- what is pending, and what is interrupted


@pytest.mark.parametrize("name", ["batch_norm", "spectral_norm", "old_spectral_norm"])
def test_a_forward_that_waits_for_its_backward_gets_the_same_gradients(name: str) -> None:
    gradients = []
    for is_counted in (False, True):
        seed()
        odd = ODD[name]()
        output = odd.call(*odd.inputs)
        if is_counted:
            count(odd)
        output.abs().sum().backward()
        weights = [one for one in odd.modules[0].parameters() if one.grad is not None]
        gradients.append([bits(one.grad) for one in weights])

    assert gradients[0] == gradients[1] != []


@pytest.mark.parametrize("is_given", [True, False])
def test_what_led_to_an_input_keeps_its_graph_and_its_gradients(is_given: bool) -> None:  # noqa: FBT001
    encoder, decoder = nn.Linear(4, 4), nn.Linear(4, 2)
    middle = encoder(rows()).exp()

    if is_given:
        found = steptime.count(decoder, middle)
        assert (found.forward, found.backward) == (2 * 4 * 4 * 2, 2 * 2 * 4 * 4 * 2)
    else:
        steptime.count(lambda: decoder(middle))

    assert encoder.weight.grad is None
    decoder(middle).sum().backward()
    assert encoder.weight.grad is not None


def test_casts_of_an_open_autocast_are_not_kept() -> None:
    gradients = []
    for is_counted in (False, True):
        seed()
        model, x = nn.Linear(4, 4), rows()
        with torch.autocast("cpu", torch.bfloat16):
            if is_counted:
                with torch.no_grad():
                    steptime.count(model, x)
                steptime.count(model, x)
            (model(x) * model(2 * x)).sum().backward()
        gradients.append(bits(model.weight.grad))

    assert gradients[0] == gradients[1]


@pytest.mark.parametrize("way", ["wrapper", "function", "static"])
def test_a_model_of_ddp_trains_on_as_before(way: str, tmp_path: Path) -> None:
    from torch import distributed

    trained = []
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/at", rank=0, world_size=1
    )
    try:
        for is_counted in (False, True):
            seed()
            model = nn.parallel.DistributedDataParallel(
                normed(), gradient_as_bucket_view=True, static_graph=way == "static"
            )
            odd = one(model, rows())
            trained.append(train(odd))
            model(odd.inputs[0]).sum().backward()  # gradients are there, in the buckets
            if is_counted:
                before = everything(odd)
                called = partial(model) if way == "function" else model  # with its wrapper
                steptime.count(called, *odd.inputs)
                assert everything(odd) == before
            trained.append(train(odd))
    finally:
        distributed.destroy_process_group()

    assert trained[:2] == trained[2:]


def test_ctrl_c_in_the_model_leaves_everything_as_it_was() -> None:
    model = normed()
    model[2].register_forward_hook(lambda *given: signal.raise_signal(signal.SIGINT))
    odd = Odd(model, (rows(),), (model,))
    before = everything(odd)

    with pytest.raises(KeyboardInterrupt):
        count(odd)

    assert everything(odd) == before


def test_ctrl_c_waits_until_everything_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = batch_norm()
    before, original = everything(odd), KeptGradients.put_back

    def put_back(own: KeptGradients) -> None:
        signal.raise_signal(signal.SIGINT)
        original(own)

    monkeypatch.setattr(KeptGradients, "put_back", put_back)

    with pytest.raises(KeyboardInterrupt):
        count(odd)

    assert everything(odd) == before


def test_counts_of_several_threads_wait_for_each_other() -> None:
    model, x = normed(), rows()
    odd = Odd(model, (x,), (model,))
    before, totals = everything(odd), []
    threads = [
        threading.Thread(target=lambda: totals.append(steptime.count(model, x).total))
        for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(totals)) == 1
    assert len(totals) == 4
    assert everything(odd) == before


def test_a_count_inside_a_count_leaves_both_as_they_were() -> None:
    model, x = normed(), rows()
    odd = Odd(model, (x,), (model,))
    before = everything(odd)

    def call() -> Any:
        steptime.count(model, x)
        return model(x)

    steptime.count(call)

    assert everything(odd) == before


def test_a_step_of_an_optimizer_is_refused_before_it_is_made() -> None:
    model, x = nn.Linear(4, 2), rows()
    optimizer = torch.optim.Adam(model.parameters())
    odd = Odd(model, (x,), (model,))
    before = everything(odd)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    with pytest.raises(steptime.SteptimeError, match=r"steps an optimizer \(Adam\)"):
        steptime.count(step)

    assert everything(odd) == before
    assert not optimizer.state


def test_what_a_thread_writes_to_a_weight_is_told() -> None:
    model = nn.Linear(4, 2)

    def call(x: Any) -> Any:
        def clip() -> None:
            with torch.no_grad():
                model.weight.clamp_(-0.1, 0.1)

        thread = threading.Thread(target=clip)
        thread.start()
        thread.join()
        return model(x)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        steptime.count(call, rows())

    assert [str(one.message) for one in told if "steptime.count: 1 tensor" in str(one.message)]


def test_large_buffers_are_copied_only_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("steptime.counting.kept_tensors.MAX_COPIED_BYTES", 100)
    model = Holding()
    odd = Odd(model, (rows(),), (model,))
    before = everything(odd)

    count(odd)

    assert everything(odd) == before


def test_weights_that_nothing_writes_to_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    original = torch.UntypedStorage.clone

    def clone(storage: Any) -> Any:
        copied.append(storage.nbytes())
        return original(storage)

    monkeypatch.setattr(torch.UntypedStorage, "clone", clone)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 64))

    steptime.count(model, torch.randn(8, 64))

    assert sorted(copied) == [8, 256, 256]  # the three buffers


def test_a_model_that_was_counted_is_still_copied_and_saved() -> None:
    odd = batch_norm()

    count(odd)

    assert copy.deepcopy(odd.modules[0]).state_dict().keys() == odd.modules[0].state_dict().keys()
