"""Options of `steptime verify model` for what is asked beside the comparison of two models."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.cli.option_values import parse_time
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.verify.checks_asked import ChecksAsked
    from steptime.verify.values.probe_asked import ProbeAsked

CHECKS = """\
candidate beside the training and people:
  --train FILE  the training rows: simple predictors made from them must be beaten, and no row of
      the evaluation may stand in them
  --inputs FILE  the features of the evaluation rows, by id; without it, the candidate's table
  --time COLUMN  the time of a row: the last value before it is a simple predictor
  --human COLUMN  labels by a person; with several, their agreement comes first (repeatable)
  --preference COLUMN  candidate, reference or tie, as a person prefers (repeatable)
  --also COLUMN  another column of numbers in both arms, such as a benchmark (repeatable)
probes:
  --predict FILE:FUNCTION  the candidate's predictor: gets a dict of columns of --inputs, or its
      array `x`, and returns a prediction for each row
  --predict-reference FILE:FUNCTION  the reference's, beside which perturbations are judged
  --probe PROBE  KIND:KEY=VALUE,... with a KIND of perturbation, fresh, invariance, direction or
      compliance (repeatable)
  --python FILE  the Python that runs them; without it, the first on the PATH
  --timeout TIME  the time for each predictor (without it: 10m)
"""


def checks_asked(options: argparse.Namespace, tables: Mapping[str, Any]) -> ChecksAsked:
    """Return what else is asked; `tables` are those of a suite file.

    Raises:
        UsageError: a probe is none, or an option has no effect without another.
    """
    from steptime.app.verify.checks_asked import ChecksAsked
    from steptime.verify.values.probe_asked import parse_probe

    return ChecksAsked(
        train=None if options.train is None else Path(options.train),
        inputs=None if options.inputs is None else Path(options.inputs),
        predict=options.predict,
        predict_reference=options.predict_reference,
        probes=(*_of_suite(options, tables), *(parse_probe(text) for text in options.probe)),
        python=options.python,
        limit_s=parse_time(options.timeout or "10m", flag="--timeout"),
        time=options.time,
        humans=tuple(options.human),
        preferences=tuple(options.preference),
        others=tuple(options.also),
    )


def _of_suite(options: argparse.Namespace, tables: Mapping[str, Any]) -> Iterator[ProbeAsked]:
    """Yield the probes of a suite, whose functions lie in files beside it."""
    from steptime.verify.values.probe_asked import probe_asked

    for one in tables.get("probe", ()):
        if not isinstance(one, dict):
            raise UsageError(f"`{options.suite}`: a probe is {one!r}; write it as [[probe]].")
        folder = Path(options.suite).parent
        files = {
            key: str(folder / one[key])
            for key in ("change", "check")
            if ":" in str(one.get(key, ""))
        }
        yield probe_asked(one | files)
