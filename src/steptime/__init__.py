"""Steptime: make training faster, and prove it."""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    # Read when asked for: the metadata costs 20 ms, `steptime --help` has 250.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata

    try:
        return metadata.version("steptime")
    except metadata.PackageNotFoundError:
        return "0+unknown"  # run from a checkout that was never installed
