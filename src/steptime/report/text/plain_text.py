"""Makes text of the terminal's reports, for values that are printed and shown in a notebook."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
"""Columns of a report that is not shown on a terminal."""


def plain_text(render: Callable[[Console], None], *, width: int) -> str:
    """Return what `render` writes to a console, without colors, folded to `width` columns."""
    from rich.console import Console

    file = io.StringIO()
    # In a notebook, a console would show each line there and leave the file empty.
    console = Console(
        file=file,
        width=width,
        force_terminal=False,
        force_jupyter=False,
        color_system=None,
        _environ={},
    )
    render(console)
    return file.getvalue()


class Shown(ABC):
    """A result that is printed as the terminal shows it, in a notebook, too."""

    __slots__ = ()

    @abstractmethod
    def render(self, console: Console) -> None:
        """Write the report to a console of rich."""

    def text(self, *, width: int = WIDTH) -> str:
        """Return the report as plain text, folded to `width` columns; commands are not folded."""
        return plain_text(self.render, width=width)

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    def _repr_html_(self) -> str:
        return as_html(str(self))


def as_html(text: str) -> str:
    """Return a text as a notebook shows it, character by character."""
    import html  # notebooks need it, commands never do

    return f"<pre>{html.escape(text)}</pre>"
