"""A copy of the package that asks no more of Landlock than a kernel of Linux 5.13 knows."""

from __future__ import annotations

import shutil
from pathlib import Path

OLD = """

_version_of_kernel = version


def version() -> int:
    return min(_version_of_kernel(), 1)
"""


def with_old_landlock(package: Path, place: Path) -> Path:
    """Copy the package into a folder that others may read; return what goes on the search path."""
    place.chmod(0o755)
    copy = place / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (module,) = copy.rglob("landlock.py")
    module.write_text(module.read_text(encoding="utf-8") + OLD, encoding="utf-8")
    return place
