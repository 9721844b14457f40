"""Reads files of TOML that people write."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from steptime.errors import NotFoundError, UsageError
from steptime.record.regular_file import read_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path, *, hint: str) -> dict[str, Any]:
    """Return what a file says; `hint` is what to do where there is none.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it cannot be read, or is no TOML.
    """
    try:
        found: dict[str, Any] = tomllib.loads(read_regular(path).decode())
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file `{path}`.", hint=hint) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` cannot be read as TOML: {error}") from error
    return found
