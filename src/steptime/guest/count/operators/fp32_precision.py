"""How a device multiplies fp32: as fp32, or as TF32.

In: torch, an operator's class, a device. Out: yes or no. Their peaks differ by a factor of eight,
and torch decides separately for each kind of operator: by default convolutions may use TF32, matrix
products may not.
"""

from __future__ import annotations

from typing import Any

from .operator_names import CONVOLUTION, RECURRENT

FIRST_CAPABILITY = 8
"""NVIDIA's devices from Ampere on have TF32."""

PARTS = {CONVOLUTION: ("cudnn", "conv"), RECURRENT: ("cudnn", "rnn")}


def is_tf32(torch: Any, kind: str, device: Any) -> bool:
    """Return whether torch lets an operator of that class multiply fp32 as TF32 there."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    if torch.cuda.get_device_capability(device)[0] < FIRST_CAPABILITY:
        return False
    backend, part = PARTS.get(kind, ("cuda", "matmul"))
    owner = getattr(torch.backends, backend)
    word = getattr(getattr(owner, part, None), "fp32_precision", None)
    if word is not None:
        return str(word) == "tf32"
    # Before torch 2.9 there is one switch for all of cuDNN, and one for matrix products.
    switches = owner if backend == "cudnn" else owner.matmul
    return bool(switches.allow_tf32)
