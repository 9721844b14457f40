"""`steptime rm`: removes runs, studies and whatever else the store keeps, by id."""

from __future__ import annotations

import argparse

from steptime.cli.options import JSON, REMOVAL, STORE, store_folder
from steptime.cli.output import open_store
from steptime.cli.removing import remove_all
from steptime.errors import UsageError

SUMMARY = "remove runs, studies or fits of this folder"
DESCRIPTION = """\
Remove runs, studies, fits and whatever else the store keeps, with their files.
A run that goes on is never removed, nor a study while a run trains with its
recipe. Recipes and pages that you wrote elsewhere stay.
"""
USAGE = "steptime rm ID [ID ...] [options]"
EXAMPLES = """\
examples:
  steptime rm 20261120-101500-3fa2
  steptime rm 20261120-1015 20261121-09 --yes
"""
OPTIONS = (
    """\
  ID...  an id, or the beginning of it; `steptime list` has it
"""
    + REMOVAL
    + JSON
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Remove what was named."""
    store = open_store(store_folder(options), kind=None)
    from steptime.app.kept.removal import find_to_remove, why_kept

    found = find_to_remove(store, options.id)
    for one in found:
        reason = why_kept(one)
        if reason is not None:
            raise UsageError(f"{one.id} is not removed: {reason}.", hint="Wait for its end.")
    return remove_all(options, found, verb="rm")
