"""Compares versions of torch. This is no lever, as it has no `LEVER`."""

from __future__ import annotations

import re


def is_before(version: str, first: tuple[int, int]) -> bool:
    """Return whether torch is older than the first that has something; False if unknown."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < first
