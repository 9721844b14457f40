"""`steptime study`: the studies of this folder, or one study and why each thing was done in it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from steptime.cli.options import add_json, add_store, check_json, store_folder
from steptime.cli.output import console_for, open_store, write_json
from steptime.errors import UsageError

SUMMARY = "list studies, or explain every choice of one"
DESCRIPTION = """\
List the studies that were made in this folder, or show one: what was tried, and
the reason for every choice.
"""
USAGE = "steptime study list|show [ID] [options]"
EXAMPLES = """\
examples:
  steptime study list
  steptime study show last
  steptime study show 20261120-1015 --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `study`."""
    parser.add_argument(
        "action",
        metavar="list|show",
        choices=("list", "show"),
        help="list all studies, or show one",
    )
    parser.add_argument(
        "study",
        metavar="ID",
        nargs="?",
        help="the id of a study, the beginning of it, or `last` for the newest (default)",
    )
    output = parser.add_argument_group("output")
    add_json(output)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Print the list, or one study."""
    check_json(options)
    store = open_store(store_folder(options), kind="studies")
    if options.action == "show":
        return _show(options, store)
    if options.study is not None:
        raise UsageError(
            f"`study list` takes no id, got `{options.study}`.",
            hint=f"Write: steptime study show {options.study}",
        )
    return _list(options, store)


def _list(options: argparse.Namespace, store: Path) -> int:
    from steptime.app.study.study_listing import list_studies
    from steptime.report.document.envelope import enclose
    from steptime.report.document.listings import StudiesDocument, summarize
    from steptime.report.text.study_story import studies_table

    studies = list_studies(store)
    if options.json is None:
        studies_table(studies, console=console_for(sys.stdout))
    else:
        rows = tuple(summarize(study) for study in studies)
        write_json(options.json, enclose("study", StudiesDocument(store=str(store), studies=rows)))
    return 0


def _show(options: argparse.Namespace, store: Path) -> int:
    from steptime.app.study.study_listing import find_study, page_of, recipe_of
    from steptime.report.document.study_document import StudyDocument, study_envelope
    from steptime.report.text.study_story import render_story

    study = find_study(store, options.study or "last")
    found = recipe_of(store, study)
    recipe = None if found is None else str(found)
    if options.json is None:
        render_story(study, console=console_for(sys.stdout), recipe=recipe)
    else:
        page = page_of(store, study)
        shown = StudyDocument(
            study=study, recipe_file=recipe, page=None if page is None else str(page)
        )
        write_json(options.json, study_envelope(shown, command="study", exit_code=0))
    return 0
