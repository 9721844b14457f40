"""`steptime prune`: removes whatever the store has kept for longer than a time."""

from __future__ import annotations

import argparse

from steptime.cli.option_values import parse_time
from steptime.cli.options import JSON, REMOVAL, STORE, store_folder
from steptime.cli.output import open_store
from steptime.cli.removing import remove_all

SUMMARY = "remove what is older than a time"
DESCRIPTION = """\
Remove runs, studies, fits and whatever else the store keeps, if nothing was
added to them for longer than a time. What goes on stays, and a study stays as
long as a run that trained with its recipe.
"""
USAGE = "steptime prune --older-than TIME [options]"
EXAMPLES = """\
examples:
  steptime prune --older-than 30d --dry-run
  steptime prune --older-than 12h --yes
"""
OPTIONS = (
    """\
  --older-than TIME  such as 30d or 12h (required)
"""
    + REMOVAL
    + JSON
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Remove what is old."""
    age_s = parse_time(options.older_than, flag="--older-than")
    store = open_store(store_folder(options), kind=None)
    from steptime.app.kept.removal import older_than, why_kept

    reasons = [(one, why_kept(one)) for one in older_than(store, age_s)]
    stay = [(one, reason) for one, reason in reasons if reason is not None]
    gone = [one for one, reason in reasons if reason is None]
    return remove_all(options, gone, verb="prune", stay=stay)
