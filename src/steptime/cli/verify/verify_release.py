"""`steptime verify release`: whether a model may ship, by the metrics of several teams."""

from __future__ import annotations

import argparse
from pathlib import Path

from steptime.cli.options import JSON_BESIDE
from steptime.cli.output import VERDICT_CODES, check_target, put, tell

SUMMARY = "decide whether a model may ship"
DESCRIPTION = """\
Decide whether a model may ship, by a file in which teams name their metrics and
margins, the tables of rows, and experiments that made components worse on purpose.
It ships where an own metric is better, no other own metric is worse, those of other
teams are shown to stay still, and all checks of the data pass.

The exit code is 0 for ship, 5 for do not, 4 for not yet: these rows are needed.
"""
USAGE = "steptime verify release FILE [options]"
EXAMPLES = """\
examples:
  steptime verify release release.toml
  steptime verify release release.toml --format md
  steptime verify release release.toml --record -o decision.html
"""
OPTIONS = (
    """\
  FILE  the release file (TOML); docs/how-to/ship-a-model.md shows each key
ledger:
  --record  append a release that ships to the ledger of losses that the file names
output:
  -o, --output FILE  also write a page to FILE (HTML)
  --format {text,md}  md is Markdown, for a pull request or an agent (default: text)
"""
    + JSON_BESIDE
)


def execute(options: argparse.Namespace) -> int:
    """Decide, and print why."""
    check_target("--output", options.output)
    from steptime.app.verify.release.erosion_ledger import record_release
    from steptime.app.verify.release.release_tables import read_question
    from steptime.report.blocks.verify.release_report import release_report
    from steptime.report.document.envelope import enclose
    from steptime.verify.release.judge_release import judge_release

    path = Path(options.file)
    question = read_question(path)
    found = judge_release(question)
    code = VERDICT_CODES[found.outcome.value]
    if options.record and code == 0:
        record_release(path, question, found)
        tell("this release is written to the ledger.")
    elif options.record:
        tell("the release does not ship, so it is not recorded.")
    document = enclose("verify release", found, exit_code=code)
    put(options, document, lambda: release_report(found), is_beside=True)
    if options.output is not None:
        from steptime.app.stored.page_file import write_page_file

        target = Path(options.output)
        written = write_page_file(release_report(found), target, target)
        tell(f"the page of this decision: {written}")
    return code
