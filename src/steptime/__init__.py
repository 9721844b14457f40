"""Steptime: make training faster, and prove it."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

if typing.TYPE_CHECKING:
    from steptime.measure.values.work import Count

__all__ = ["__version__", "count"]


def count(model: Callable[..., Any], *inputs: Any, **kwargs: Any) -> Count:
    """The work of `model(*inputs, **kwargs)` and of its gradients, in FLOP.

    Loads torch, runs the model once, and leaves it as it was.
    See docs/explanation/counting.md for what each figure holds.
    """
    from steptime import counting

    return counting.count(model, *inputs, **kwargs)


def __getattr__(name: str) -> str:
    # Read when asked for: the metadata costs 20 ms, `steptime --help` has 250.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata

    try:
        return metadata.version("steptime")
    except metadata.PackageNotFoundError:
        return "0+unknown"  # run from a checkout that was never installed
