"""A call of a model that leaves no trace: levers look at what it does before they change it.

This is no lever, as it has no `LEVER`. Where memory is short, even the first call of a training
must not keep what a backward would need.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def dry_call(torch: Any, model: Any) -> Iterator[None]:
    """Let calls inside keep no graph; afterwards random states and buffers are as before.

    Buffers are copied for that time. One that was replaced by another tensor stays replaced.
    """
    devices = is_on_device(torch) and torch.cuda.get_rng_state_all()
    state = torch.get_rng_state()
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    try:
        with torch.no_grad():
            yield
            for buffer, before in buffers:
                buffer.copy_(before)
    finally:
        torch.set_rng_state(state)
        if devices:
            torch.cuda.set_rng_state_all(devices)


def is_on_device(torch: Any) -> bool:
    """Return whether random numbers may be drawn on a device."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())
