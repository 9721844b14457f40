"""Writes a page where it belongs, or where the user wants it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.run.attempt import attempt
from steptime.core.store import write_text
from steptime.core.version import installed_version
from steptime.errors import StoreError

if TYPE_CHECKING:
    from steptime.report.blocks.values import Sheet

_LOGGER = logging.getLogger(__name__)


def write_page_file(page: str | Sheet, own: Path, target: Path | None = None) -> Path:
    """Write a page, or a report as a page, to `target` or to its own place; return its path.

    Raises:
        StoreError: the file cannot be written.
    """
    if not isinstance(page, str):
        from steptime.report.html.paint_html import paint_page

        page = paint_page(page, version=installed_version())
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


def try_page(write: Callable[[], Path | None]) -> Path | None:
    """Write a page beside what it shows; a failure or Ctrl-C costs the page alone."""
    pages: list[Path | None] = []
    with suppress(KeyboardInterrupt), attempt(_LOGGER.warning):
        pages.append(write())
    return pages[0] if pages else None
