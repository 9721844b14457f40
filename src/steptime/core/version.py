"""The version of the installed package, read when somebody asks: the metadata costs 20 ms."""

from __future__ import annotations


def installed_version() -> str:
    """The version, or `0+unknown` for a checkout that was never installed."""
    from importlib import metadata

    try:
        return metadata.version("steptime")
    except metadata.PackageNotFoundError:
        return "0+unknown"
