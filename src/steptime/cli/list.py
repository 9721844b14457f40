"""`steptime list`: what the store of this folder holds, newest first."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from steptime.cli.options import JSON, STORE, store_folder
from steptime.cli.output import console_for, open_store, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.app.kept.kept_list import KeptList
    from steptime.report.document.listings import KeptSummary

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

    found = gather(store, kinds, is_fresh=options.reindex)
    if options.json is not None:
        from steptime.report.document.envelope import enclose

        write_json(options.json, enclose("list", found.document))
        return 0
    _print(found, kind=options.kind, store=store_to_name(store))
    return 0


def _print(found: KeptList, *, kind: str | None, store: str | None) -> None:
    """Print a table for each kind of which there is something; else how to make it."""
    from steptime.report.blocks.run.run_list import run_list
    from steptime.report.blocks.study.story_blocks import study_list
    from steptime.report.text.paint_text import print_blocks

    console, runs, others = console_for(sys.stdout), found.document.runs, found.document.others
    is_empty = not (runs or found.studies or others)
    if runs or (is_empty and kind in (None, "runs")):
        print_blocks(run_list(runs, store=store), console=console)
    if found.studies or kind == "studies":
        print(end="\n" if runs else "")
        print_blocks(study_list(found.studies), console=console)
    if others:
        print(end="\n" if runs or found.studies else "")
        _print_others(others)
    elif is_empty and kind not in (None, "runs", "studies"):
        print(f"There are no {kind} yet.")


def _print_others(rows: Sequence[KeptSummary]) -> None:
    from steptime.core.printable import printable
    from steptime.core.units import format_bytes

    broad = max(len(row.id) for row in rows)
    for row in rows:
        what = printable(row.page or "")
        print(f"{row.id:<{broad}}  {row.kind:<13}  {format_bytes(row.bytes):>9}  {what}".rstrip())
