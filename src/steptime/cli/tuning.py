"""What `steptime tune` does: check everything, run the study, hand over what it found."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from steptime.cli.output import say
from steptime.cli.progress import ProgressPrinter
from steptime.cli.tune import TuneOptions
from steptime.cli.tuned import report_study
from steptime.errors import UsageError
from steptime.levers import load_all
from steptime.levers.base import Lever
from steptime.tune.recipe.recipe_file import check_output
from steptime.tune.run_study import run_study
from steptime.tune.study_options import StudyOptions


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
    teller = ProgressPrinter(sys.stderr)
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
    levers = load_all(lambda text: say(f"steptime: {text}"))
    known = [lever.name for lever in levers]
    for flag, names in (("--levers", only or ()), ("--exclude", exclude)):
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(known)}."
                raise UsageError(f"{flag}: there is no lever `{name}`.", hint=hint)
    return tuple(lever for lever in levers if only is None or lever.name in only)
