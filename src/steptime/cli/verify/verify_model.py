"""`steptime verify model`: whether a candidate model is as good as a reference, by its rows."""

from __future__ import annotations

import argparse
from pathlib import Path

from steptime.cli.option_values import parse_time
from steptime.cli.options import JSON_BESIDE
from steptime.cli.output import VERDICT_CODES, check_target, put, tell
from steptime.errors import UsageError

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
       steptime verify model FILE --arm COLUMN --metric NAME [options]
       steptime verify model --suite FILE.toml [options]"""
EXAMPLES = """\
examples:
  steptime verify model --reference old.parquet --candidate new.parquet \\
      --metric accuracy --margin 0.005 --slice country
  steptime verify model ab.csv --arm variant --reference-arm A \\
      --metric converted --slice device --margin 0.01
  steptime verify model ab.csv --arm variant --metric loss --slice device \\
      --share device=phone:0.7,desktop:0.3
  steptime verify model --suite ranking.toml --candidate new.parquet
  steptime verify model --reference old.csv --candidate new.csv \\
      --metric accuracy --margin 0.005 --train train.csv --inputs test.csv \\
      --predict model.py:predict --probe invariance:column=name,change=permute \\
      --probe direction:column=income,change=add,size=1000,expect=up
"""
OPTIONS = (
    """\
  [FILE]  a table with the rows of both arms: CSV, Parquet, Arrow, JSON Lines or NumPy
rows:
  --reference FILE  the rows of the reference
  --candidate FILE  the rows of the candidate
  --arm COLUMN  the column that names the arm, where one file has both
  --reference-arm VALUE  its value that is the reference (without it: that of the first row)
  --id COLUMN  the column that tells a row from the others (without it: id)
  --group COLUMN  the column of what rows belong to, such as a user; they count as one
  --seed COLUMN  the column that names the training, where each model was trained several times
  --paired  refuse arms that were not scored on the same rows
question:
  --suite FILE  the options of a comparison, without their dashes, in a file of TOML
  --metric NAME  a column of numbers; or accuracy, f1, squared_error, absolute_error or rmse, of
      `label` and `prediction`; or brier, log_loss or auc, of `label` and `probability`
  --better {up,down}  which way is better (without it: up, but down for a loss)
  --margin X  the loss that does not matter, in the unit of the metric
  --slice COLUMN  also split the rows by this column (repeatable)
  --slice-margin X  the loss of one slice that does not matter (without it: that of --margin)
  --hunt COLUMN  look for slices in this column where the candidate is worse; `all` is each column
      of few values (repeatable)
  --share SHARES  COLUMN=VALUE:0.7,VALUE:0.3 are the shares that count (repeatable)
candidate beside the training and people:
  --train FILE  the training rows: simple predictors made from them must be beaten, and no row of
      the evaluation may stand in them
  --inputs FILE  the features of the evaluation rows, by id; without it, the candidate's table
  --time COLUMN  the time of a row: the last value before it is a simple predictor
  --human COLUMN  labels by a person; with several, their agreement comes first (repeatable)
  --preference COLUMN  candidate, reference or tie, as a person prefers (repeatable)
  --also COLUMN  another column of numbers in both arms, such as a benchmark (repeatable)
  --require CHECK  let a check decide that is otherwise only shown: calibrated, human or
      preferred (repeatable)
probes:
  --predict FILE:FUNCTION  the candidate's predictor: gets a dict of columns of --inputs, or its
      array `x`, and returns a prediction for each row
  --predict-reference FILE:FUNCTION  the reference's, beside which perturbations are judged
  --probe PROBE  KIND:KEY=VALUE,... with a KIND of perturbation, fresh, invariance, direction or
      compliance (repeatable)
  --python FILE  the Python that runs them; without it, the first on the PATH
  --timeout TIME  the time for each predictor (without it: 10m)
output:
  -o, --output FILE  also write a page to FILE (HTML)
  --format {text,md}  md is Markdown, for a pull request or an agent (default: text)
"""
    + JSON_BESIDE
)

_SAME_NAMES = """\
metric margin better arm reference_arm paired group seed slice_margin hunt train inputs time human
preference also predict predict_reference python require
"""
"""Options that are arguments of `verify_model`."""


def execute(options: argparse.Namespace) -> int:
    """Judge, and print what was found."""
    check_target("--output", options.output)
    from steptime.app.verify.verify_model import verify_model
    from steptime.cli.verify.suite import take_suite
    from steptime.report.blocks.verify.model_report import model_report
    from steptime.report.document.envelope import enclose

    if options.suite is not None:
        take_suite(options, options.suite)
    if options.metric is None:
        raise UsageError("--metric is missing: what is compared.", hint="steptime verify model -h")
    reference, candidate = _files(options)
    verdict = verify_model(
        reference,
        candidate,
        id_column=options.id or "id",
        slices=options.slice,
        shares=_shares(options),
        probes=options.probe,
        timeout_s=parse_time(options.timeout or "10m", flag="--timeout"),
        **{name: getattr(options, name) for name in _SAME_NAMES.split()},
    )
    document = enclose("verify model", verdict, exit_code=VERDICT_CODES[verdict.outcome.value])
    put(options, document, lambda: model_report(verdict), is_beside=True)
    if options.output is not None:
        from steptime.app.stored.page_file import write_page_file

        target = Path(options.output)
        written = write_page_file(model_report(verdict), target, target)
        tell(f"the page of this verdict: {written}")
    return VERDICT_CODES[verdict.outcome.value]


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
