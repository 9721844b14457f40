"""The reports of the terminal as text: for values that are printed, and shown in a notebook."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
"""Columns of a report that no terminal shows."""


def plain_text(render: Callable[[Console], None], *, width: int) -> str:
    """What `render` writes to a console, without colors, folded to `width` columns."""
    from rich.console import Console

    file = io.StringIO()
    # In a notebook, a console would show each line there and leave the file empty.
    console = Console(
        file=file, width=width, force_terminal=False, force_jupyter=False, color_system=None
    )
    render(console)
    return file.getvalue()


def as_html(text: str) -> str:
    """A text as a notebook shows it: letter by letter."""
    import html  # a notebook asks for it, a command never does

    return f"<pre>{html.escape(text)}</pre>"
