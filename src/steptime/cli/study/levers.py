"""`steptime levers`: what Steptime can try, or an explanation of one lever."""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING

from steptime.cli.options import JSON
from steptime.cli.output import put, tell
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.report.blocks.study.lever_report import LeverCard

SUMMARY = "list what tune can try, or explain one lever"
DESCRIPTION = "List the levers that `steptime tune` can try, or explain one of them."
USAGE = "steptime levers [NAME] [options]"
EXAMPLES = """\
examples:
  steptime levers
  steptime levers autocast
  steptime levers --json
"""
OPTIONS = (
    """\
  [NAME]  the lever to explain; without it, all are listed
output:
"""
    + JSON
)


def execute(options: argparse.Namespace) -> int:
    """Print the list, or one lever."""
    from steptime.levers import load_all
    from steptime.report.blocks.study.lever_report import card_of, lever_blocks, levers_blocks
    from steptime.report.document.envelope import enclose
    from steptime.report.document.listings import LeversDocument

    cards = [card_of(lever) for lever in load_all(tell)]
    if options.name is not None:
        cards = [_find_card(cards, options.name)]
    document = enclose("levers", LeversDocument(levers=tuple(cards)))
    put(options, document, lambda: lever_blocks(cards[0]) if options.name else levers_blocks(cards))
    return 0


def _find_card(cards: list[LeverCard], name: str) -> LeverCard:
    """Return the card of that name.

    Raises:
        UsageError: there is none.
    """
    names = [card.name for card in cards]
    if name in names:
        return cards[names.index(name)]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(names)}."
    raise UsageError(f"there is no lever `{name}`.", hint=hint)
