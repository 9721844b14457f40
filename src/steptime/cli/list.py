"""`steptime list`: what the store of this folder holds, newest first."""

from __future__ import annotations

import argparse

from steptime.cli.options import JSON, STORE, store_folder
from steptime.cli.output import open_store, put
from steptime.errors import UsageError

SUMMARY = "list the runs, studies and fits that were made in this folder"
DESCRIPTION = """\
List what was made in this folder, the newest first: runs, studies of `tune`,
fits; and what `plan`, `data bench`, `sweep` and `verify training` have kept.
"""
USAGE = "steptime list [KIND] [options]"
EXAMPLES = """\
examples:
  steptime list
  steptime list studies
  steptime list runs --json
"""
OPTIONS = (
    """\
  [KIND]  runs, studies, fits, plans, benches, sweeps or verifications; without it, all
output:
  --reindex  build the index of the store again, from the folders of the runs
"""
    + JSON
    + STORE
)

_KINDS = ("runs", "studies", "fits", "plans", "benches", "sweeps", "verifications")


def execute(options: argparse.Namespace) -> int:
    """Print the list."""
    if options.kind not in (None, *_KINDS):
        raise UsageError(f"KIND must be one of {', '.join(_KINDS)}; got `{options.kind}`.")
    store = open_store(store_folder(options), kind=options.kind)
    kinds = _KINDS if options.kind is None else (options.kind,)
    from steptime.app.kept.kept_list import gather
    from steptime.core.store import store_to_name
    from steptime.report.blocks.run.run_list import kept_blocks
    from steptime.report.document.envelope import enclose

    found, named = gather(store, kinds, is_fresh=options.reindex), store_to_name(store)
    document = enclose("list", found)
    put(options, document, lambda: kept_blocks(found, kind=options.kind, store=named))
    return 0
