"""Keeps what belongs to no model: torch's settings, and the states of random numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

Switch = tuple[Callable[[], Any], Callable[[Any], Any]]

ACCELERATORS = ("cuda", "xpu", "mtia", "npu", "hpu", "musa")
"""Modules of torch's and of its vendors', each with random numbers of its own."""

DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps", "hpu", "npu", "mtia")


def keep_switches(torch: Any, undo: ExitStack) -> None:
    """Put back torch's settings of the process and the thread, where the model changes them."""
    for read, write in (*_modes(torch), *_backends(torch), *_autocasts(torch)):
        try:
            before = read()
        except (RuntimeError, AttributeError):
            continue  # this torch does not have it, or has no one answer
        undo.callback(_write_back, read, write, before)


def _write_back(read: Callable[[], Any], write: Callable[[Any], Any], before: Any) -> None:
    if read() != before:
        write(before)


def _modes(torch: Any) -> Iterator[Switch]:
    def deterministic() -> tuple[bool, bool]:
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )

    def set_deterministic(pair: tuple[bool, bool]) -> None:
        torch.use_deterministic_algorithms(pair[0], warn_only=pair[1])

    yield torch.is_grad_enabled, torch.set_grad_enabled
    yield torch.get_default_dtype, torch.set_default_dtype
    yield deterministic, set_deterministic
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    yield torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly
    yield torch.get_num_threads, torch.set_num_threads
    yield torch.get_default_device, torch.set_default_device


def _backends(torch: Any) -> Iterator[Switch]:
    cudnn, cuda, of_c = torch.backends.cudnn, torch.backends.cuda, torch._C
    for name in ("enabled", "benchmark", "deterministic", "allow_tf32"):
        yield partial(getattr, cudnn, name), partial(setattr, cudnn, name)
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        read = getattr(cuda, f"{name}_sdp_enabled", None)
        write = getattr(cuda, f"enable_{name}_sdp", None)
        if read is not None and write is not None:
            yield read, write
    if hasattr(of_c, "_get_mkldnn_enabled"):
        yield of_c._get_mkldnn_enabled, of_c._set_mkldnn_enabled


def _autocasts(torch: Any) -> Iterator[Switch]:
    yield torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled
    for kind in DEVICE_TYPES:
        is_on, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
        yield partial(is_on, kind), partial(torch.set_autocast_enabled, kind)
        yield partial(dtype, kind), partial(torch.set_autocast_dtype, kind)


def keep_random_states(torch: Any, undo: ExitStack) -> None:
    """Put back the random numbers of torch, of Python and of NumPy, as far as they are in use."""
    undo.callback(torch.set_rng_state, torch.get_rng_state())
    for name in ACCELERATORS:
        device = getattr(torch, name, None)
        is_used = getattr(device, "is_initialized", lambda: False)
        if device is not None and is_used() and hasattr(device, "get_rng_state_all"):
            undo.callback(device.set_rng_state_all, device.get_rng_state_all())
    if torch.backends.mps.is_available():
        undo.callback(torch.mps.set_rng_state, torch.mps.get_rng_state())
    if (of_python := sys.modules.get("random")) is not None:
        undo.callback(of_python.setstate, of_python.getstate())
    if (of_numpy := sys.modules.get("numpy.random")) is not None:
        undo.callback(of_numpy.set_state, of_numpy.get_state(legacy=False))
