"""The levers that Steptime ships, one file each and this list, and those of other packages.

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

NAMES: tuple[str, ...] = (
    "autocast",
    "matmul_precision",
    "fused_optimizer",
    "channels_last",
    "fused_attention",
    "fused_gelu",
    "fused_rnn",
    "sparse_input",
    "compile",
    "no_compile",
    "dynamic_shapes",
    "cudnn_benchmark",
    "num_threads",
    "wait_policy",
    "allocator",
    "dataloader",
    "whole_batch_fetch",
    "preloaded_samples",
    "dataset_cache",
    "decoded_cache",
    "jpeg_decoder",
    "prepared_data",
    "fused_sampling",
    "vectorized_loops",
    "trim_padding",
    "length_grouping",
    "module_precision",
    "activation_checkpointing",
    "selective_checkpointing",
    "optimizer_in_backward",
    "offload_activations",
    "no_foreach",
    "low_memory_states",
    "larger_batch",
    "gradient_transform",
    "other_optimizer",
    "quantized_training",
    "maxk",
    "micro_batches",
    "return_freed_memory",
    "ddp_options",
    "ddp_no_sync",
    "ddp_bf16",
    "ddp_powersgd",
    "nccl_settings",
    "pinned_copies",
    "prefetch_to_device",
    "gc_control",
    "process_binding",
    "no_checkpointing",
    "interpreter",
)
"""Module names, in the order in which they are listed."""

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
        lever: Lever = import_module(f"steptime.levers.{name}").LEVER
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
