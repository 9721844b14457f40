"""`steptime.count` leaves models, inputs, gradients, random numbers and settings as they were.

For each odd model: everything before and after is the same, also where the model raises or is
interrupted half-way, and training goes on bit for bit as if nothing had been counted.
"""

from __future__ import annotations

import copy
import itertools
import random
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import nn  # noqa: E402

import steptime  # noqa: E402
from odd_models import ODD, Holding, Odd, batch_norm, normed, one, rows  # noqa: E402
from steptime.counting.kept_gradients import KeptGradients  # noqa: E402
from steptime.counting.open_values import tensors_in  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about what is odd


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """No test's settings reach the next one, whatever a model leaves behind."""
    seed()
    yield
    seed()


def seed() -> None:
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(mode=False)
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


# -- everything there is


def bits(tensor: Any) -> Any:
    """The elements as bytes, so that NaN equals itself; of a sparse tensor, dense."""
    if tensor.is_nested:
        return [bits(one) for one in tensor.unbind()]
    plain = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    stored = plain.clone(memory_format=torch.contiguous_format).untyped_storage()
    return (str(plain.dtype), tuple(plain.shape), bytes(stored.tolist()))


def of_tensor(tensor: Any) -> dict[str, Any]:
    facts = {"bits": bits(tensor), "requires_grad": tensor.requires_grad, "id": id(tensor)}
    facts["version"] = None if tensor.is_inference() else tensor._version
    facts["attributes"] = list(vars(tensor)) if hasattr(tensor, "__dict__") else None
    if tensor.layout == torch.strided and not tensor.is_nested:
        facts["place"] = (tensor.data_ptr(), tensor.stride())
    if tensor.is_leaf:
        gradient = tensor.grad
        facts["gradient"] = None if gradient is None else (id(gradient), bits(gradient))
        facts["hooks"] = list(getattr(tensor, "_post_accumulate_grad_hooks", None) or ())
        facts["more_hooks"] = list(getattr(tensor, "_backward_hooks", None) or ())
    return facts


def of_value(value: Any, seen: dict[int, Any]) -> Any:
    """A value with all that it holds, by identity and by content."""
    if id(value) in seen or isinstance(value, (int, float, str, type(None))):
        return value if isinstance(value, (int, float, str)) else id(value)
    seen[id(value)] = value
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return str(value.get_state())
    if isinstance(value, torch.Generator):
        return bits(value.get_state())
    if isinstance(value, nn.Module):
        own = {name: of_value(one, seen) for name, one in value.__dict__.items()}
        return (
            (id(value), type(value), id(getattr(value, "forward", None).__func__), own)
            if (hasattr(getattr(value, "forward", None), "__func__"))
            else (id(value), type(value), own)
        )
    if isinstance(value, Mapping):
        return [(str(name), of_value(one, seen)) for name, one in value.items()]
    if isinstance(value, (list, tuple)):
        return [of_value(one, seen) for one in value]
    return id(value)


def of_process() -> dict[str, Any]:
    """Random numbers, settings, hooks of all modules, modes."""
    module = torch.nn.modules.module
    return {
        "torch": bits(torch.get_rng_state()),
        "python": random.getstate(),
        "numpy": str(np.random.get_state()),
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.enabled),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "threads": torch.get_num_threads(),
        "modes": (
            torch._C._len_torch_dispatch_stack(),
            torch._C._len_torch_function_stack(),
        ),
        "call": nn.Module._call_impl,
        "hooks": (
            len(module._global_forward_pre_hooks),
            len(module._global_forward_hooks),
            len(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks),
        ),
        "interrupts": signal.getsignal(signal.SIGINT),
    }


def everything(odd: Odd) -> dict[str, Any]:
    seen: dict[int, Any] = {}
    return {
        "modules": [of_value(list(one.modules()), seen) for one in odd.modules],
        "scripted": [
            [of_tensor(own) for own in (*one.parameters(), *one.buffers())] for one in odd.modules
        ],
        "inputs": [of_value(one, seen) for one in odd.inputs],
        "process": of_process(),
    }


def count(odd: Odd) -> Any:
    return steptime.count(odd.call, *odd.inputs, loss=odd.loss)


def train(odd: Odd, *, num_steps: int = 2) -> list[Any]:
    """Train a few steps and return all that came of it."""
    seed()
    weights = [one for module in odd.modules for one in module.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(weights, 0.1, momentum=0.9)
    found = []
    for _ in range(num_steps):
        output = odd.call(*odd.inputs)
        roots = [one for one in tensors_in(torch, output) if one.requires_grad]
        if roots:
            sum(one.abs().sum() for one in roots).backward()
        found += [bits(one) for one in tensors_in(torch, output)]
        optimizer.step()
    state = [(name, one) for module in odd.modules for name, one in module.state_dict().items()]
    return [*found, *((name, bits(one)) for name, one in state), random.random()]


# -- the odd models


@pytest.mark.parametrize("name", ODD)
def test_everything_is_as_it_was(name: str) -> None:
    odd = ODD[name]()
    before = everything(odd)

    found = count(odd)

    assert everything(odd) == before
    assert found.num if hasattr(found, "num") else found.classes


@pytest.mark.parametrize("name", ODD)
def test_training_goes_on_bit_for_bit(name: str) -> None:
    seed()
    counted = ODD[name]()
    seed()
    other = ODD[name]()

    count(counted)

    assert train(counted) == train(other)


class Bomb(torch.overrides.TorchFunctionMode):
    """Raises in the middle of whatever calls torch, but not while things are noted or put back."""

    def __init__(self, after: int | None, error: type[BaseException]) -> None:
        super().__init__()
        self.after, self.error, self.num = after, error, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_called_by("undoing", "note"):
            self.num += 1
            if self.num == self.after:
                raise self.error
        return func(*args, **(kwargs or {}))


def is_called_by(*names: str) -> bool:
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name in names:
            return True
    return False


class Burst(Exception):  # noqa: N818
    """Not an error of torch's or ours."""


@pytest.mark.parametrize("name", ODD)
def test_what_raises_half_way_leaves_everything_as_it_was(name: str) -> None:
    odd = ODD[name]()
    with Bomb(None, Burst) as whole:
        count(odd)
    before = everything(odd)
    kinds: tuple[type[BaseException], ...] = (Burst, KeyboardInterrupt)
    raised = (*kinds, RuntimeError) if name == "scripted" else kinds  # TorchScript wraps them

    for part, error in zip((5, 6, 7), itertools.cycle(kinds)):
        with pytest.raises(raised), Bomb(whole.num * part // 8, error):
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
    import threading

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


def test_a_model_that_was_counted_is_still_copied_and_saved() -> None:
    odd = batch_norm()

    count(odd)

    assert copy.deepcopy(odd.modules[0]).state_dict().keys() == odd.modules[0].state_dict().keys()
