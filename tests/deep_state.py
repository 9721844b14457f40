"""All that a call may change, read before and after it; and training that shows whether it did."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

import steptime
from odd_models import Odd


def seed() -> None:
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(mode=False)
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


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
    own = vars(tensor).items() if hasattr(tensor, "__dict__") else ()
    facts["attributes"] = [
        (name, bits(one) if isinstance(one, torch.Tensor) else id(one)) for name, one in own
    ]
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
        return (id(value), type(value), own)
    if isinstance(value, Mapping):
        return [(str(name), of_value(one, seen)) for name, one in value.items()]
    if isinstance(value, (list, tuple)):
        return [of_value(one, seen) for one in value]
    if isinstance(value, SimpleNamespace):
        return of_value(value.__dict__, seen)
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
    named = {} if odd.loss is None else {"loss": odd.loss}
    return steptime.count(odd.call, *odd.inputs, **named)


def train(odd: Odd, *, num_steps: int = 2) -> list[Any]:
    """Train a few steps and return all that came of it."""
    seed()
    weights = [one for module in odd.modules for one in module.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(weights, 0.1, momentum=0.9)
    found = []
    for _ in range(num_steps):
        output = odd.call(*odd.inputs)
        tensors = output if isinstance(output, tuple) else (output,)
        tensors = [one for one in tensors if isinstance(one, torch.Tensor)]
        roots = [one for one in tensors if one.requires_grad]
        if roots:
            sum(one.abs().sum() for one in roots).backward()
        found += [bits(one) for one in tensors]
        optimizer.step()
    state = [(name, one) for module in odd.modules for name, one in module.state_dict().items()]
    return [*found, *((name, bits(one)) for name, one in state), random.random()]


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


class Burst(BaseException):
    """Not an error of torch's or ours; nobody who catches every `Exception` catches it."""
