"""`steptime verify model`: whether a candidate model is as good as a reference, by its rows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.options import JSON_BESIDE
from steptime.cli.output import check_target, put, tell
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.verify.values.model_verdict import ModelVerdict

SUMMARY = "judge by predictions whether a model is as good as another"
DESCRIPTION = """\
Judge by the predictions of two models whether the candidate is as good as the
reference. Rows are joined by id, never by their order. Arms that were scored on
unlike rows are compared at the same shares of their slices, and a difference
that comes from another mix of rows alone is called a REVERSAL.
Three answers: PASS, FAIL, and INCONCLUSIVE; without --margin there is no PASS.
"""
USAGE = """\
steptime verify model --reference FILE --candidate FILE --metric NAME [options]
       steptime verify model FILE --arm COLUMN --metric NAME [options]"""
EXAMPLES = """\
examples:
  steptime verify model --reference old.parquet --candidate new.parquet \\
      --metric accuracy --margin 0.005 --slice country
  steptime verify model ab.csv --arm variant --reference-arm A \\
      --metric converted --slice device --margin 0.01
  steptime verify model ab.csv --arm variant --metric loss --slice device \\
      --share device=phone:0.7,desktop:0.3
"""
OPTIONS = (
    """\
  [FILE]  a table with the rows of both arms: CSV, Parquet, Arrow or JSON Lines
rows:
  --reference FILE  the rows of the reference
  --candidate FILE  the rows of the candidate
  --arm COLUMN  the column that names the arm, where one file has both
  --reference-arm VALUE  its value that is the reference (without it: that of the first row)
  --id COLUMN  the column that tells a row from the others (default: id)
  --paired  refuse arms that were not scored on the same rows
question:
  --metric NAME  a column of numbers; or accuracy, of `label` and `prediction`; or brier or
      log_loss, of `label` and `probability` (required)
  --better {up,down}  which way is better (without it: up, but down for a loss)
  --margin X  the loss that does not matter, in the unit of the metric
  --slice COLUMN  also split the rows by this column (repeatable)
  --share SHARES  COLUMN=VALUE:0.7,VALUE:0.3 are the shares that count (repeatable)
output:
  -o, --output FILE  also write a page to FILE (HTML)
  --format {text,md}  md is Markdown, for a pull request or an agent (default: text)
"""
    + JSON_BESIDE
)

_CODES = {"PASS": 0, "FAIL": 5, "INCONCLUSIVE": 4}


def execute(options: argparse.Namespace) -> int:
    """Judge, and print what was found."""
    check_target("--output", options.output)
    from steptime.app.verify.prediction_rows import BETTER_DOWN, RowsAsked, read_rows
    from steptime.report.blocks.verify.model_report import model_report
    from steptime.report.document.envelope import enclose
    from steptime.verify.model.judge_model import ModelQuestion, judge_model

    reference, candidate = _files(options)
    if options.margin is not None and not options.margin >= 0:
        raise UsageError(f"--margin: `{options.margin}` is below 0; it is a size.")
    found = read_rows(
        RowsAsked(
            reference=reference,
            candidate=candidate,
            arm=options.arm,
            reference_arm=options.reference_arm,
            metric=options.metric,
            id_column=options.id,
            slices=options.slice or (),
            must_pair=options.paired,
        )
    )
    better = options.better or ("down" if options.metric in BETTER_DOWN else "up")
    verdict = judge_model(
        found.arms,
        ModelQuestion(
            metric=options.metric,
            is_better_down=better == "down",
            margin=options.margin,
            reference_arm=found.reference_arm,
            candidate_arm=found.candidate_arm,
            columns=found.columns,
            shares=_shares(options),
            notes=found.notes,
        ),
    )
    document = enclose("verify model", verdict, exit_code=_CODES[verdict.outcome.value])
    if options.format == "md" and options.json is None:
        from steptime.report.markdown.paint_markdown import paint_markdown

        print(paint_markdown(model_report(verdict)), end="")
    else:
        put(options, document, lambda: model_report(verdict), is_beside=True)
    if options.output is not None:
        _write_page(options.output, verdict)
    return _CODES[verdict.outcome.value]


def _files(options: argparse.Namespace) -> tuple[Path, Path | None]:
    pair = (options.reference, options.candidate)
    if options.file is not None:
        if any(pair):
            raise UsageError("FILE has both arms; it cannot stand beside --reference, --candidate.")
        if options.arm is None:
            raise UsageError("--arm is missing: the column that names the arm of each row.")
        return Path(options.file), None
    if not all(pair):
        raise UsageError(
            "the rows are missing.",
            hint="Name one FILE with --arm, or --reference FILE and --candidate FILE.",
        )
    if options.arm is not None:
        raise UsageError("--arm is for one FILE with both arms.")
    return Path(options.reference), Path(options.candidate)


def _shares(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the shares of each column, as `device=phone:0.7,desktop:0.3` says them."""
    found: dict[str, dict[str, float]] = {}
    for text in options.share or ():
        column, _, rest = text.partition("=")
        if column not in (options.slice or ()):
            raise UsageError(f"--share: `{column}` is no --slice.")
        found[column] = {}
        for part in rest.split(","):
            value, _, number = part.rpartition(":")
            try:
                share = float(number)
            except ValueError:
                share = -1.0
            if not value or not 0 <= share < float("inf"):
                raise UsageError(f"--share: `{part}` is not VALUE:SHARE, such as phone:0.7.")
            found[column][value] = share
    return found


def _write_page(target: str, verdict: ModelVerdict) -> None:
    from steptime.app.stored.page_file import write_page_file
    from steptime.core.version import installed_version
    from steptime.report.blocks.verify.model_report import model_report
    from steptime.report.html.paint_html import paint_page

    page = paint_page(model_report(verdict), version=installed_version())
    tell(f"the page of this verdict: {write_page_file(page, Path(target), Path(target))}")
