"""What a script is told that asks a fake for its elements: zeros, and a text for a number.

Torch's fakes refuse, or end in an error of C++. A script asks in order to log, far more often than
to decide. In: the classes of torch, in a child that exists for a forecast alone.
"""

from __future__ import annotations

from typing import Any

from ..hooks.patching import put
from .fake_mode import Fakes
from .fake_operators import FakeOperators, shape_of


def answer_for_fakes(torch: Any, fakes: Fakes, operators: FakeOperators) -> None:
    """Let fakes be read, formatted and copied."""
    tensor_class, fake_class = torch.Tensor, fakes.fake_class
    to_text = tensor_class.__format__

    def zeros(tensor: Any) -> Any:
        operators.note("made_up_value", shape_of(tensor))
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    def reader(name: str) -> Any:
        original = getattr(tensor_class, name)

        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            self = zeros(self) if isinstance(self, fake_class) else self
            return original(self, *args, **kwargs)

        return read

    def __format__(self: Any, spec: str) -> Any:
        if isinstance(self, fake_class) and not self.ndim and spec:
            return format(self.item(), spec)
        return to_text(self, spec)

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = copied(torch, fakes, self)
        return memo[id(self)]

    for name in ("numpy", "tolist", "__array__"):
        put(tensor_class, name, reader(name))
    put(tensor_class, "__format__", __format__)
    put(fake_class, "__deepcopy__", __deepcopy__)


def copied(torch: Any, fakes: Fakes, tensor: Any) -> Any:
    """Return a fake with a storage of its own, a parameter where the other one is one."""
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    fake = fakes.fake_class(fakes.mode, meta, tensor.device)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
    return fake.requires_grad_(tensor.requires_grad)
