"""Which devices a child has: those that hold nothing of anybody's, and the accelerators'.

Everything else in /dev belongs to the machine or to its user: terminals, disks, the kernel's log.
"""

from __future__ import annotations

import os

_PLAIN = ("full", "null", "random", "urandom", "zero")
# NVIDIA's and those of its boards, the kernel's own class, AMD's and Intel's, AMD's for computing,
# and the GPU of a Windows host.
_ACCELERATORS = ("nvidia", "nvgpu", "nvhost", "nvmap", "accel", "dri", "kfd", "dxg")
_NETWORKS = ("infiniband",)  # it knows no namespace


def own_devices(*, share_network: bool) -> tuple[str, ...]:
    """Return the places in /dev of a child's devices, some of which are folders."""
    begins = (*_ACCELERATORS, *(_NETWORKS if share_network else ()))
    return tuple(
        f"/dev/{name}"
        for name in sorted(os.listdir("/dev"))
        if (name in _PLAIN or name.startswith(begins)) and not os.path.islink(f"/dev/{name}")
    )
