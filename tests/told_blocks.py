"""Blocks as plain text, each on one line."""

import io
from collections.abc import Iterable

from rich.console import Console

from steptime.report.blocks.values import Block
from steptime.report.text.page import Page
from steptime.report.text.paint_text import paint


def unwrapped_page() -> Page:
    return Page(console=Console(file=io.StringIO(), _environ={}), width=1_000_000, ascii_only=False)


def told(blocks: Iterable[Block]) -> str:
    return "\n".join(line.plain.rstrip() for line in paint(blocks, unwrapped_page()))
