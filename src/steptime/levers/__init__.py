"""The levers that Steptime ships, one file each in a room and this list, and those of others.

In: a name. Out: a `Lever`. Another package offers levers through entry points of the group
`steptime.levers`; each names a module that holds a `LEVER`, or that value itself. Start with
`base.py`, the contract; then read any lever.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from steptime.levers.base import Lever

_PLACES = (
    "precision.autocast",
    "precision.matmul_precision",
    "matmuls.matmul_library",
    "optimizers.fused_optimizer",
    "kernels.channels_last",
    "kernels.fused_attention",
    "kernels.fused_gelu",
    "kernels.fused_rnn",
    "kernels.sparse_input",
    "matmuls.wide_convolutions",
    "compiling.compile",
    "compiling.no_compile",
    "compiling.dynamic_shapes",
    "kernels.cudnn_benchmark",
    "host.num_threads",
    "host.wait_policy",
    "host.allocator",
    "input.dataloader",
    "input.whole_batch_fetch",
    "input.preloaded_samples",
    "input.dataset_cache",
    "pictures.decoded_cache",
    "pictures.jpeg_decoder",
    "pictures.prepared_data",
    "input.fused_sampling",
    "host.vectorized_loops",
    "lengths.trim_padding",
    "lengths.length_grouping",
    "precision.module_precision",
    "memory.activation_checkpointing",
    "memory.selective_checkpointing",
    "memory.optimizer_in_backward",
    "memory.offload_activations",
    "optimizers.needed_gradients",
    "optimizers.no_foreach",
    "optimizers.low_memory_states",
    "optimizers.larger_batch",
    "optimizers.gradient_transform",
    "optimizers.other_optimizer",
    "precision.quantized_training",
    "precision.quantization_aware",
    "kernels.maxk",
    "memory.micro_batches",
    "memory.return_freed_memory",
    "ranks.ddp_options",
    "ranks.ddp_no_sync",
    "ranks.ddp_bf16",
    "ranks.ddp_powersgd",
    "ranks.nccl_settings",
    "input.pinned_copies",
    "input.prefetch_to_device",
    "host.gc_control",
    "host.frozen_cache",
    "host.process_binding",
    "memory.no_checkpointing",
    "host.interpreter",
)
"""Modules with their rooms, in the order in which they are listed."""

NAMES: tuple[str, ...] = tuple(place.rpartition(".")[2] for place in _PLACES)
"""The levers' names, in that order."""

GROUP = "steptime.levers"

_LOGGER = logging.getLogger(__name__)

BROKEN = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError),
    *(OSError, RuntimeError, SyntaxError, TypeError, ValueError),
)
"""What somebody else's module may raise when it is imported."""


def load(name: str) -> Lever:
    """Return a lever by its name.

    Raises:
        ValueError: there is none of that name.
    """
    if name in NAMES:
        place = _PLACES[NAMES.index(name)]
        lever: Lever = import_module(f"steptime.levers.{place}").LEVER
        return lever
    found = {lever.name: lever for lever in load_all()}
    if name not in found:
        raise ValueError(f"`name` must be one of {tuple(found)}, got {name!r}")
    return found[name]


def load_all(
    tell: Callable[[str], None] = _LOGGER.warning,
) -> tuple[Lever, ...]:
    """Return all levers, built-in ones first, without those that cannot be loaded."""
    levers = {name: load(name) for name in NAMES}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            lever = load_outside(entry)
        except BROKEN as error:
            tell(f"the lever {entry.name} ({entry.value}) is left out: {error!r}")
            continue
        if lever.name in levers:
            tell(f"the lever {lever.name} of {entry.value} is left out: that name is taken")
            continue
        levers[lever.name] = lever
    return tuple(levers.values())


def load_outside(entry: EntryPoint) -> Lever:
    """Return the lever that an entry point names.

    Raises:
        TypeError: it names something else. Whatever its module raises is raised too.
    """
    found = entry.load()
    lever = getattr(found, "LEVER", found)
    if not isinstance(lever, Lever):
        raise TypeError(f"`{entry.value}` must be a Lever or hold one as `LEVER`, got {lever!r}")
    return lever


def file_of(lever: Lever) -> str:
    """Return the file that the guest must load for a lever: the one with its functions.

    Raises:
        ValueError: it has no function of its own.
    """
    base = inspect.getfile(Lever)
    for function in (lever.apply, lever.variables, lever.applies, lever.space, lever.edit):
        code = getattr(function, "__code__", None)
        if code is not None and code.co_filename != base:
            return str(code.co_filename)
    raise ValueError(f"`lever` must have a function of its own, got {lever.name!r}")
