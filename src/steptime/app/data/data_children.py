"""Runs a command in contained children that show the order of its samples, and end early.

In: a command and what to look for. Out: the loaders that each child saw. A child's epochs are cut
short and nothing that it writes stays.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.core.executable import NotStarted
from steptime.data.check.seen_orders import LoaderSeen, read_orders
from steptime.errors import NotStartedError
from steptime.isolate.child import start_contained
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment
from steptime.launch.user_command import GUEST, user_environment
from steptime.tune.trials.trial_process import (
    ContainedProcess,
    TrialEnded,
    TrialLimits,
    TrialStart,
    start_trial,
)

SCHEMA = 1
SEED = 1_234

_MIN_S = 1.0
_RESUMED = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenInChild:
    """What one child showed: its loaders, and how it ended."""

    loaders: list[LoaderSeen]
    resumed: list[LoaderSeen]
    ended: TrialEnded

    def loader(self, number: int) -> LoaderSeen | None:
        """Return a loader of the lowest rank by its number."""
        return next((one for one in self.loaders if one.number == number), None)


class OrderChildren:
    """Starts children of one command, one after another, in a folder that is removed later."""

    def __init__(
        self,
        argv: tuple[str, ...],
        *,
        folder: Path,
        budget_s: float,
        share_network: bool = False,
        allow_unsafe: bool = False,
    ) -> None:
        self.argv = argv
        self.folder = folder.resolve()
        self.until_s = time.monotonic() + budget_s
        self.environment = user_environment()
        self.containment: Containment = probe(
            self.folder, allow_unsafe=allow_unsafe, share_network=share_network
        )

    @property
    def left_s(self) -> float:
        """What is left of the time for all children [s]."""
        return self.until_s - time.monotonic()

    def see(self, name: str, wish: Mapping[str, Any]) -> SeenInChild | None:
        """Return what a child saw that was asked for this; None where no time is left.

        Raises:
            NotStartedError: there is no such command.
            ContainmentError: nothing here keeps it from doing harm.
        """
        return self._run(name, self.argv, wish)

    def see_resumed(
        self, name: str, resume: str, *, wish: Mapping[str, Any], then: Mapping[str, Any]
    ) -> SeenInChild | None:
        """Return what the command saw, and what the one that resumes saw after it.

        Both run in one child, so that the second finds the checkpoint of the first.
        """
        plan = self.folder / f"{name}-plan.json"
        plan.write_text(json.dumps(plan_of(then)))
        run = self.folder / name / _RESUMED
        told = {"STEPTIME_RUN": run, "STEPTIME_GUEST": GUEST, "STEPTIME_PLAN": plan}
        variables = " ".join(f"{name}={shlex.quote(str(path))}" for name, path in told.items())
        words = f"{shlex.join(self.argv)}; mkdir -p {shlex.quote(str(run))}; {variables} {resume}"
        return self._run(name, ("sh", "-c", words), wish)

    def _run(self, name: str, argv: tuple[str, ...], wish: Mapping[str, Any]) -> SeenInChild | None:
        if self.left_s < _MIN_S:
            return None
        folder = self.folder / name
        start = TrialStart(
            folder=folder, argv=argv, environment=self.environment, plan=plan_of(wish)
        )
        limits = TrialLimits(start_s=self.left_s, silence_s=self.left_s, total_s=self.left_s)
        trial = start_trial(self._begin(argv), start, limits)
        if isinstance(trial, NotStarted):
            raise NotStartedError(f"`{argv[0]}` {trial.reason}.", exit_code=trial.exit_code)
        try:
            ended = trial.wait(lambda _: False)
        finally:
            closed = trial.close()
        return SeenInChild(
            loaders=read_orders(folder),
            resumed=read_orders(folder / _RESUMED),
            ended=ended or closed,
        )

    def _begin(self, argv: tuple[str, ...]) -> Any:
        def begin(
            environment: Mapping[str, str], *, folder: Path, stdin: Path | None
        ) -> ContainedProcess | NotStarted:
            return start_contained(
                argv,
                environment,
                cwd=Path.cwd(),
                folder=folder,
                containment=self.containment,
                stdin=stdin,
            )

        return begin


def plan_of(wish: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan that the guest reads (docs/internals/study-folder.md)."""
    return {"schema": SCHEMA, "mode": "order", "levers": [], "order": dict(wish)}
