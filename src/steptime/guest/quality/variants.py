"""What makes one run of a script comparable with another, or different by rounding alone.

Seeds and determinism; float64 instead of float32; the last bits of the weights changed at random
during forward and backward; other random draws after the same initial weights.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ...record.numbers_told import rank_told
from ..hooks.module_tree import has_shape
from ..hooks.patching import drop_frame, replace


def set_seeds(torch: Any, seed: int) -> None:
    """Seed Python, torch, and NumPy where it is imported."""
    random.seed(seed)
    torch.manual_seed(seed)
    seed_numpy(sys.modules.get("numpy"), seed)


def seed_numpy(numpy: Any, seed: int) -> None:
    """Seed NumPy's own generator, and those to come that the script gives no seed.

    Without a seed (`default_rng()`, the first `reset()` of a Gymnasium environment), a generator
    is seeded by the operating system, and a training that draws from it never repeats itself.
    """
    if hasattr(numpy, "random"):
        numpy.random.seed(seed % 2**32)
        source: Any = getattr(numpy.random, "bit_generator", None)
        if hasattr(source, "randbits"):  # what SeedSequence asks for entropy
            source.randbits = random.Random(seed).getrandbits


def own_seed(seed: int) -> int:
    """Return this rank's own seed: processes that set none would differ too."""
    return seed + (rank_told(os.environ)[0] or 0)


def set_determinism(torch: Any) -> None:
    """Ask torch for the same bits each time; where it cannot, its warning is not shown."""
    warnings.filterwarnings("ignore", message=".*deterministic.*")
    torch.use_deterministic_algorithms(True, warn_only=True)
    utilities = getattr(torch.utils, "deterministic", None)
    if utilities is not None:  # filling new memory costs time and changes no result
        utilities.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


class Perturbation:
    """Multiplies weights by 1 + `size` * uniform(-1, 1) until they are restored.

    It writes through `.data`, which leaves autograd's version counters alone. It draws from
    generators of its own, so the script's generators do not move.
    """

    def __init__(self, torch: Any, size: float, seed: int) -> None:
        self.torch = torch
        self.size = size
        self.seed = seed
        self.generators: dict[Any, Any] = {}
        self.kept: dict[int, tuple[Any, Any]] = {}

    def enter(self, module: Any) -> None:
        """Change the weights of a model, unless they are changed already."""
        torch = self.torch
        for weight in module.parameters():
            if id(weight) in self.kept or not (has_shape(weight) and weight.is_floating_point()):
                continue
            data = weight.data
            self.kept[id(weight)] = (weight, data.clone())
            if data.device not in self.generators:
                self.generators[data.device] = self.torch.Generator(device=data.device)
                self.generators[data.device].manual_seed(self.seed)
            noise = torch.rand(
                data.shape,
                generator=self.generators[data.device],
                dtype=torch.float64 if data.dtype == torch.float64 else torch.float32,
                device=data.device,
            )
            factor = noise.mul_(2 * self.size).add_(1 - self.size)
            data.copy_((data * factor).to(data.dtype))

    def leave(self) -> None:
        """Restore all weights."""
        kept, self.kept = self.kept, {}
        for weight, data in kept.values():
            weight.data.copy_(data)


class DoublePrecision:
    """The script in float64: models, floating inputs, optimizer state; no autocast."""

    def __init__(self, torch: Any, fail: Callable[[str], None]) -> None:
        self.torch = torch
        self.fail = fail

    def install(self) -> None:
        """Switch autocast off, and convert models before DDP makes its buffers."""
        autocast = self.torch.amp.autocast_mode.autocast
        enter = autocast.__enter__

        def __enter__(self: Any) -> Any:
            self._enabled = False
            return enter(self)

        replace(autocast, "__enter__", __enter__)
        if self.torch.distributed.is_available():
            self._install_ddp(self.torch.nn.parallel.DistributedDataParallel)

    def _install_ddp(self, ddp_class: Any) -> None:
        original, fail = ddp_class.__init__, self.fail

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                (args[0] if args else kwargs["module"]).double()
            except BaseException:
                fail("double")
            try:
                original(self, *args, **kwargs)
            except BaseException as error:
                drop_frame(error)
                raise

        replace(ddp_class, "__init__", __init__)

    def convert(self, value: Any, depth: int = 0) -> Any:
        """Return the same arguments, with float64 in place of all other floats."""
        if isinstance(value, self.torch.Tensor):
            return value.double() if value.is_floating_point() else value
        if depth > 4:
            return value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.convert(item, depth + 1) for item in value))
        if type(value) in (tuple, list):
            return type(value)(self.convert(item, depth + 1) for item in value)
        if type(value) is dict:
            return {key: self.convert(item, depth + 1) for key, item in value.items()}
        if isinstance(value, Mapping) and hasattr(value, "__setitem__"):
            for key in list(value):
                value[key] = self.convert(value[key], depth + 1)  # a batch of tokens, say
        return value

    def convert_state(self, optimizer: Any) -> None:
        """Convert optimizer state that was loaded or made before the weights were float64."""
        for state in optimizer.state.values():
            for name, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, self.torch.Tensor) and value.dim():
                    state[name] = self.convert(value)
