"""`steptime show`: the report of a run, of a study or of a fit again."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from steptime.cli.options import ID, JSON, STORE, find_named
from steptime.cli.output import console_for, is_verbose, paint, put, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.kept.kept import Stored

SUMMARY = "print the report of a run, a study or a fit again"
DESCRIPTION = """\
Print the report of a run, of a study (what was tried, and the reason for every
choice) or of a fit again. If the command is still running, or a training that
it left in the background, the report covers what has happened so far.
"""
USAGE = "steptime show [ID] [options]"
EXAMPLES = """\
examples:
  steptime show
  steptime show study
  steptime show 20261120-1015 --json
  steptime show last~1 --waterfall
  steptime show last -v
  steptime show last --format md >> "$GITHUB_STEP_SUMMARY"
  steptime show last --training 2
"""
OPTIONS = (
    ID
    + """\
  --training N  show training N of a command that started several
output:
  --format {text,md}  md is Markdown, for a pull request or an agent (default: text)
  --waterfall  show where the time of a step goes, compared with what this machine can reach
"""
    + JSON
    + STORE
)

_OF_RUN = ("--training", "--waterfall")


def execute(options: argparse.Namespace) -> int:
    """Print what is known about it."""
    if options.json is not None and options.waterfall:
        raise UsageError(
            "--waterfall has no effect with --json: the document always holds the waterfall.",
            hint="Leave --waterfall out.",
        )
    kept = find_named(options, of_run=_OF_RUN)
    if kept.kind == "runs":
        return _show_run(options, kept)
    return _show_study(options, kept) if kept.kind == "studies" else _show_fit(options, kept)


def _show_run(options: argparse.Namespace, kept: Stored) -> int:
    from steptime.app.stored.load import load_run
    from steptime.core.store import Run, store_to_name
    from steptime.report.blocks.run.run_report import picture_report, run_report
    from steptime.report.document.run_document import run_envelope
    from steptime.report.text.print_run import render

    run = Run(run_id=kept.id, folder=kept.folder)
    document = load_run(run, training=options.training).document
    if options.json is not None:
        write_json(options.json, run_envelope(document, command="show", exit_code=0))
        return 0
    console, store = console_for(sys.stdout), store_to_name(run.store)
    if options.waterfall:
        paint(options, picture_report(document))
    elif options.format == "md":
        paint(options, run_report(document, store=store))
    else:
        render(document, console=console, store=store, is_whole=is_verbose())
    return 0


def _show_study(options: argparse.Namespace, kept: Stored) -> int:
    from steptime.app.study.study_listing import describe_stored
    from steptime.report.blocks.study.study_next import StudyRequest
    from steptime.report.blocks.study.study_report import study_report
    from steptime.report.document.study_documents import study_envelope

    shown = describe_stored(kept.folder)
    asked = StudyRequest(recipe=shown.recipe_file)
    document = study_envelope(shown, command="show", exit_code=0)
    put(options, document, lambda: study_report(shown.study, asked=asked, is_whole=True))
    return 0


def _show_fit(options: argparse.Namespace, kept: Stored) -> int:
    from steptime.app.fit.fit import read_fit
    from steptime.report.blocks.fit.fit_report import fit_report
    from steptime.report.document.envelope import enclose

    study = read_fit(kept.folder)
    put(options, enclose("show", study), lambda: fit_report(study))
    return 0
