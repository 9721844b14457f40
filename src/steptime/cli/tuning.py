"""What `steptime tune` does: check everything, run the study, hand over what it found."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from steptime.cli.progress import Teller
from steptime.cli.tune import TuneOptions
from steptime.cli.tuned import report_study
from steptime.errors import UsageError
from steptime.levers import NAMES, load
from steptime.levers.base import Lever
from steptime.tune.options import StudyOptions
from steptime.tune.recipe import check_output
from steptime.tune.study import run_study


def tune(options: TuneOptions) -> int:
    """Run the study and report it; the exit code."""
    levers = choose_levers(options.levers, options.exclude)
    check_output(options.output)
    asked = StudyOptions(
        command=options.command,
        store=options.store,
        levers=levers,
        excluded=options.exclude,
        run_steps=options.run_steps,
        budget_s=options.budget_s,
        allow_unsafe=options.allow_unsafe,
        share_network=options.share_network,
        is_fresh=options.is_fresh,
        output=options.output,
    )
    teller = Teller(sys.stderr)
    try:
        study = run_study(asked, progress=teller)
    finally:
        teller.close()
    return report_study(options, study)


def choose_levers(only: Sequence[str] | None, exclude: Sequence[str]) -> tuple[Lever, ...]:
    """The levers to hand to the search; those left out are said there to be left out.

    Raises:
        UsageError: one of the names is no lever.
    """
    for flag, names in (("--levers", only or ()), ("--exclude", exclude)):
        for name in names:
            if name not in NAMES:
                near = difflib.get_close_matches(name, NAMES, n=1)
                hint = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(NAMES)}."
                raise UsageError(f"{flag}: there is no lever `{name}`.", hint=hint)
    return tuple(load(name) for name in NAMES if only is None or name in only)
