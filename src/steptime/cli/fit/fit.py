"""`steptime fit`: says whether a training fits into memory, and makes it fit."""

from __future__ import annotations

import argparse

from steptime.cli.fit.fit_answer import fit_and_report
from steptime.cli.options import CONTAINED, JSON_BESIDE, STORE, take_command
from steptime.cli.output import check_target
from steptime.errors import UsageError

SUMMARY = "say whether a training fits into memory, and make it fit"
DESCRIPTION = """\
Say how much memory a training command needs, and who holds it. If that is more
than the limit, find the cheapest settings with which it runs at the same global
batch, prove them in a run under the limit, and write them to a recipe. Where it
does not run here at all, its peak is forecast without the memory.
"""
USAGE = "steptime fit [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
examples:
  steptime fit -- python train.py                  # what is free here
  steptime fit --memory-limit 8GiB -- python train.py
  steptime fit --on H100-80GB --gpus 8 -- python train.py
  steptime run --recipe fit.toml -- python train.py
"""
OPTIONS = (
    """\
limit:
  --memory-limit SIZE  private memory a process may have (default: what is free)
  --on PART  memory of an accelerator, such as H100-80GB or L40S
  --gpus N  also say what each of N would hold that share the same global batch
trials:
  --budget TIME  all the time that it may take (default: 10m)
  --exclude A,B  use all levers but these
  --measure  of a forecast: time the operators, each alone
  --training N  fit training N of a command that started several
"""
    + CONTAINED
    + """\
output:
  -o, --output FILE  write the recipe to FILE (default: fit.toml)
  --require-fit  exit with code 5 unless it fits in the end
"""
    + JSON_BESIDE
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Run the fit and report it."""
    command = take_command(options, verb="fit", usage=USAGE)
    check_target("--output", options.output, is_recipe=True)
    for name in ("training", "gpus"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise UsageError(f"--{name} must be 1 or more, got {number}.")
    if options.gpus is not None and options.on is None and options.memory_limit is None:
        raise UsageError(
            "--gpus needs the memory of one of them.", hint="Name it: --on H100-80GB --gpus 8"
        )
    return fit_and_report(options, command, verb="fit")
