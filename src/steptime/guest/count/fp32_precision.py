"""By which type a device multiplies fp32: as such, or as TF32.

In: torch, an operator's class, a device. Out: yes or no. The two have peaks that differ by eight,
and torch decides for each kind of operator by itself: convolutions may by default, products not.
"""

from __future__ import annotations

from typing import Any

from .operator_names import CONVOLUTION, RECURRENT

FIRST_CAPABILITY = 8
"""NVIDIA's devices from Ampere on have TF32."""

PARTS = {CONVOLUTION: ("cudnn", "conv"), RECURRENT: ("cudnn", "rnn")}


def is_tf32(torch: Any, kind: str, device: Any) -> bool:
    """Whether an operator of that class multiplies fp32 as TF32 there, where torch may decide."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    if torch.cuda.get_device_capability(device)[0] < FIRST_CAPABILITY:
        return False
    backend, part = PARTS.get(kind, ("cuda", "matmul"))
    owner = getattr(torch.backends, backend)
    word = getattr(getattr(owner, part, None), "fp32_precision", None)
    if word is not None:
        return str(word) == "tf32"
    # Before torch 2.9 there is one switch for all of cuDNN, and one for products.
    switches = owner if backend == "cudnn" else owner.matmul
    return bool(switches.allow_tf32)
