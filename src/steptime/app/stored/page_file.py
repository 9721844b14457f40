"""Writes a page where it belongs, or where the user wants it."""

from __future__ import annotations

from pathlib import Path

from steptime.core.store import write_text
from steptime.errors import StoreError


def write_page_file(page: str, own: Path, target: Path | None) -> Path:
    """Write a page to `target`, or without one to its own place; return its path.

    Raises:
        StoreError: the file cannot be written.
    """
    try:
        if target is None:
            write_text(own, page)
        else:
            target.write_text(page, encoding="utf-8")  # written directly: may be no regular file
    except OSError as error:
        raise StoreError(
            f"the page cannot be written: {target or own}: {error.strerror or error}.",
            hint="Name another file with -o FILE.",
        ) from error
    return target or own
