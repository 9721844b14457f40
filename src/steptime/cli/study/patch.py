"""`steptime patch`: hands over a recipe as an edit of the script."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_time
from steptime.cli.options import JSON
from steptime.cli.output import STDOUT, check_target, say, tell, write_json
from steptime.errors import StoreError

if TYPE_CHECKING:
    from steptime.patch.values import Handover, PatchCheck

SUMMARY = "hand over a recipe as an edit of the script"
DESCRIPTION = """\
Write a recipe as a unified diff of your own files, which `git apply` takes.
Environment variables become a launch line; what has no place in the source is
said, with the lines to write. No file is changed.
"""
USAGE = "steptime patch RECIPE [options]"
EXAMPLES = """\
examples:
  steptime patch tuned.toml
  steptime patch tuned.toml | git apply
  steptime patch tuned.toml -o tuned.patch --check
"""
OPTIONS = (
    """\
  RECIPE  the recipe that `steptime tune` wrote: tuned.toml
check:
  --check  try the patched script beside the recipe in trials that can do no harm: its losses must
      be equal, and its speed the same within noise; exit with code 5 if they are not. What is
      left by hand is not in it
  --budget TIME  the longer, the more updates and time the trials of --check compare, such as 30s
      or 10m (default: 2m); they take about as long
output:
  -o, --output FILE  write the diff to FILE, instead of to stdout
"""
    + JSON
)


def execute(options: argparse.Namespace) -> int:
    """Make the edit, write it, and check it where asked."""
    check_target("--output", options.output)
    budget_s = parse_time(options.budget)
    from steptime.app.study.patch import check, patch

    recipe, folder = Path(options.recipe), Path.cwd()
    handover = patch(recipe, folder=folder)
    _write(options, handover)
    found = None
    if options.check:
        found = check(recipe, handover, folder=folder, budget_s=budget_s, tell=tell)
    return _report(options, handover, found)


def _write(options: argparse.Namespace, handover: Handover) -> None:
    """Write the diff to the file, or to stdout where no document goes there."""
    if options.output is not None:
        try:
            Path(options.output).write_bytes(handover.diff)
        except OSError as error:
            raise StoreError(f"--output: {error}") from error
    elif options.json != STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(handover.diff)
        sys.stdout.flush()


def _report(options: argparse.Namespace, handover: Handover, found: PatchCheck | None) -> int:
    """Say what was done, and return the exit code."""
    from steptime.report.document.envelope import ErrorItem, enclose
    from steptime.report.document.study_documents import describe_handover
    from steptime.report.text.handover_text import check_lines, handover_lines, left_lines

    lines = handover_lines(handover, diff_file=options.output)
    if found is not None:
        lines += ["", *check_lines(found, handover)]
    is_result = options.output is not None and options.json != STDOUT
    for line in lines:
        if is_result:
            print(line)
        else:
            say(line)
    code = exit_code_of(found)
    if options.json is not None:
        said = () if found is None or found.reason is None else (found.reason,)
        message = " ".join([*said, *left_lines(handover)])
        errors = () if code != 5 else (ErrorItem(code="gate_not_met", message=message),)
        document = describe_handover(handover, found, path=options.output)
        write_json(options.json, enclose("patch", document, exit_code=code, errors=errors))
    return code


def exit_code_of(found: PatchCheck | None) -> int:
    """Return what the process ends with."""
    from steptime.verify.values import Outcome

    if found is None or found.outcome is Outcome.PASS:
        return 0
    return 5 if found.outcome is Outcome.FAIL else 4
