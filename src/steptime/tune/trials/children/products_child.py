"""A contained child that shows the products of one round of steps, with their sizes and places.

In: a command. Out: `SeenProducts`. The child does not compile, changes no file, and is ended as
soon as one update of each optimizer was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from steptime.core.codec import from_json
from steptime.core.executable import NotStarted
from steptime.errors import DamagedRunError, NotStartedError, ScriptFailedError, SteptimeError
from steptime.plan.values.shape_values import SeenProducts
from steptime.tune.trials.children.count_child import has_counted, start_counting
from steptime.tune.trials.trial_process import TrialEnded
from steptime.tune.trials.trial_watch import TrialWatch
from steptime.tune.values.study_values import TrialEnd

_WISH = {"products": True}


def products_in_child(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    folder: Path,
    cwd: Path,
    share_network: bool = False,
    allow_unsafe: bool = False,
) -> SeenProducts:
    """Run the command until a round of updates was seen; return its products.

    Args:
        argv: the command.
        environment: the user's.
        folder: of the child; it must not exist, the one around it must.
        cwd: where the command runs.
        share_network: whether the child may use the network.
        allow_unsafe: whether it may run where nothing keeps it from changing files.

    Raises:
        NotStartedError: there is no such command.
        ContainmentError: nothing here keeps it from doing harm.
        ScriptFailedError: it ended, or took too long, before an update was seen.
    """
    trial = start_counting(
        argv,
        environment,
        folder=folder.resolve(),
        cwd=cwd,
        wish=_WISH,
        share_network=share_network,
        allow_unsafe=allow_unsafe,
    )
    if isinstance(trial, NotStarted):
        raise NotStartedError(f"`{argv[0]}` {trial.reason}.", exit_code=trial.exit_code)
    try:
        ended = trial.wait(has_counted)
        found = _products(trial.watch)
    finally:
        trial.close()
    if found is None:
        _refuse(ended)
    return found


def _products(watch: TrialWatch) -> SeenProducts | None:
    """Return the products of the process of the lowest rank; None before it has any."""
    ready = [process for process in watch.processes if process.products is not None]
    first = min(ready, key=lambda process: process.rank or 0, default=None)
    if first is None or first.products is None:
        return None
    try:
        return from_json(SeenProducts, first.products)
    except DamagedRunError as error:
        raise SteptimeError(f"what the command showed cannot be read: {error}") from error


def _refuse(ended: TrialEnded | None) -> NoReturn:
    """Say why no step was seen.

    Raises:
        SteptimeError: always.
    """
    last = "" if ended is None or not ended.text else f": {ended.text.rpartition(chr(10))[2]}"
    if ended is not None and ended.end is TrialEnd.OUT_OF_MEMORY:
        what, do = "the command ran out of memory before its second step", "Give it more memory."
    elif ended is not None and ended.end is TrialEnd.TIMED_OUT:
        what, do = "the command made no second step in its time", "Does it train at all?"
    else:
        what = f"the command ended before its second step{last}"
        do = "Two steps of an optimizer are needed: give it more data or steps."
    raise ScriptFailedError(f"{what}.", hint=do)
