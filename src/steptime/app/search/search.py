"""Searches the parameters with which a training reaches a quality in the least time.

In: a command with placeholders, what is searched, the target and a budget. Out: a `SeekAnswer`. A
finished run is on disk before the next one begins, and is never made again: the same call goes on
where it was ended. `seek` decides; this makes the runs, here or on machines of a Ray cluster.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from steptime.app.search.run_metric import check_metric
from steptime.app.search.seek_sampler import CandidateSampler
from steptime.app.search.sought_trial import SoughtTrial, make_trial
from steptime.core.codec import decode, encode
from steptime.core.folder_lock import working_in
from steptime.core.store import make_folder, write_text
from steptime.core.units import format_seconds
from steptime.errors import DamagedRunError, RunsError, ScriptFailedError
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment
from steptime.record.regular_file import read_regular
from steptime.seek.next_run import NextRun, Stop, next_run
from steptime.seek.pace import StopRule, rule_for, would_take_s
from steptime.seek.seek_answer import answer_of
from steptime.seek.sought_parameters import check_command, filled
from steptime.seek.standing import parameters_of, standings, times_of
from steptime.seek.values.seek_values import Role, SeekAnswer, SeekEnd, SeekQuestion, SeekRun
from steptime.verify.convergence.statistics import load_scipy

FOLDER = "sweeps"
_MOST_FAILED = 3
"""If the first candidates all fail, the command is broken, not their parameters."""
_SLOW = 3.0
"""Another run of a good candidate that takes this much longer than the best has missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAsked:
    """A search that is wanted; `command` has placeholders.

    Without `seed_flag`, `{seed}` in the command takes the seed, else the guest seeds; `ray` is the
    address of a cluster, None for this machine.
    """

    question: SeekQuestion
    command: tuple[str, ...]
    metric: str
    store: Path
    seed_flag: str | None = None
    recipe: Path | None = None
    ray: str | None = None
    is_fresh: bool = False
    share_network: bool = False
    allow_unsafe: bool = False


class TrialMaker(Protocol):
    """Makes runs, so many at a time as there are machines."""

    num_machines: int

    def start(self, trial: SoughtTrial) -> None:
        """Begin a run."""

    def next_ended(self) -> SeekRun:
        """Wait for one of those begun, and return it."""

    def close(self) -> None:
        """End what still runs."""


class MakerHere:
    """Makes one run at a time on this machine."""

    num_machines = 1

    def __init__(self, folder: Path, containment: Containment) -> None:
        self._folder = folder
        self._containment = containment
        self._waiting: list[SoughtTrial] = []

    def start(self, trial: SoughtTrial) -> None:
        """Note the run; it begins when somebody waits for it."""
        self._waiting.append(trial)

    def next_ended(self) -> SeekRun:
        """Make the run."""
        trial = self._waiting.pop(0)
        return make_trial(trial, folder=self._folder / trial.name, containment=self._containment)

    def close(self) -> None:
        """Do nothing: a run ends where it was begun."""


Heard = Callable[[SeekRun, Sequence[SeekRun], int], None]


def search(asked: SearchAsked, *, heard: Heard) -> SeekAnswer:
    """Search, and return the answer.

    Raises:
        UsageError: a placeholder or the metric is wrong.
        MissingExtraError: Optuna, scipy or Ray is not installed.
        RunsError: no run says its metric, it never changes, or not even one run fits the budget.
        ScriptFailedError: the first runs all failed.
        NotStartedError, ContainmentError: as for a contained child.
    """
    question = asked.question
    check_command(asked.command, question.parameters, seed_flag=asked.seed_flag)
    check_metric(asked.metric)
    load_scipy("sweep" if asked.ray is None else "ray")
    folder = make_folder(asked.store, kind=FOLDER).resolve() / key_of(asked)
    if asked.is_fresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    with working_in(folder):
        found, num_machines = _seek_in(folder, asked, heard)
    return answer_of(question, found, num_machines=num_machines)


def _seek_in(folder: Path, asked: SearchAsked, heard: Heard) -> tuple[tuple[SeekRun, ...], int]:
    """Make the runs in a folder; return all of them, and how many machines made them."""
    question, maker = asked.question, _maker(asked, folder)
    try:
        sampler = CandidateSampler(
            question.parameters,
            journal=folder / "optuna.journal",
            default=question.default,
            num_machines=maker.num_machines,
        )
        runs = _kept_runs(folder)

        def keep(run: SeekRun) -> None:
            write_text(folder / f"run-{run.number:04d}.json", encode(run) + "\n")

        found = seek(asked, runs, sampler=sampler, maker=maker, keep=keep, heard=heard)
    finally:
        maker.close()
    return found, maker.num_machines


def seek(
    asked: SearchAsked,
    runs: Sequence[SeekRun],
    *,
    sampler: CandidateSampler,
    maker: TrialMaker,
    keep: Callable[[SeekRun], None],
    heard: Heard,
) -> tuple[SeekRun, ...]:
    """Make runs until the budget or the question is done; return all, with those of before.

    Raises:
        RunsError, ScriptFailedError: as for `search`.
    """
    question, made = asked.question, list(runs)
    check_runs(question, made)
    sampler.restore(_scores(question, made))
    pending: dict[int, NextRun] = {}
    is_exhausted = False
    while True:
        while len(pending) < maker.num_machines:
            step = next_run(
                question,
                made,
                tuple(pending.values()),
                num_machines=maker.num_machines,
                is_exhausted=is_exhausted,
            )
            if isinstance(step, Stop):
                break
            number = max([run.number for run in made] + [*pending, 0]) + 1
            trial = _trial(asked, step, made, number, sampler, maker.num_machines)
            if trial is None:
                is_exhausted = True
                continue
            pending[number] = replace(step, candidate=trial.candidate)
            maker.start(trial)
        if not pending:
            return tuple(sorted(made, key=lambda run: run.number))
        run = maker.next_ended()
        keep(run)
        made.append(run)
        del pending[run.number]
        if run.role is Role.EXPLORE:
            sampler.tell(run.candidate, _scores(question, made)[run.candidate])
        heard(run, made, maker.num_machines)
        check_runs(question, made)


def _trial(
    asked: SearchAsked,
    step: NextRun,
    runs: Sequence[SeekRun],
    number: int,
    sampler: CandidateSampler,
    num_machines: int,
) -> SoughtTrial | None:
    """Return the run to make; None where there is no new candidate."""
    if step.candidate is None:
        proposed = sampler.ask()
        if proposed is None:
            return None
        candidate, values = proposed
    else:
        candidate, values = step.candidate, dict(parameters_of(runs)[step.candidate])
    return SoughtTrial(
        number=number,
        candidate=candidate,
        parameters=values,
        seed=step.seed,
        role=step.role,
        argv=_with_recipe(
            asked, filled(asked.command, values, seed=step.seed, seed_flag=asked.seed_flag)
        ),
        metric=asked.metric,
        rule=_rule(asked.question, step, runs, num_machines),
        cwd=Path.cwd(),
        is_seeded_by_guest=not check_command(
            asked.command, asked.question.parameters, seed_flag=asked.seed_flag
        ),
    )


def _rule(
    question: SeekQuestion, step: NextRun, runs: Sequence[SeekRun], num_machines: int
) -> StopRule:
    """Return what ends the run: one that repeats may be slow, but not for ever."""
    spent_s = math.fsum(run.seconds for run in runs) / num_machines
    left_s = max(question.budget_s - spent_s, 0.0)
    times = times_of(standings(runs))
    rule = rule_for(
        runs, times, limit_s=left_s, target=question.target, down=question.is_better_down
    )
    if step.role is Role.EXPLORE or not times:
        return rule
    most_s = _SLOW * max(min(times.values()), times.get(step.candidate or 0, 0.0))
    return StopRule(
        target=rule.target,
        is_better_down=rule.is_better_down,
        limit_s=min(most_s, left_s),
        is_limit_budget=left_s < most_s,
    )


def _scores(question: SeekQuestion, runs: Sequence[SeekRun]) -> dict[int, float | None]:
    """Return the log of the time that each candidate took, or would have taken."""
    times = times_of(standings(runs))
    rule = rule_for(
        runs, times, limit_s=math.inf, target=question.target, down=question.is_better_down
    )
    return {
        run.candidate: math.log(max(would_take_s(run, rule), 1e-9))
        for run in runs
        if run.role is Role.EXPLORE
    }


def check_runs(question: SeekQuestion, runs: Sequence[SeekRun]) -> None:
    """Refuse to go on where the runs show that nothing can come of it.

    Raises:
        RunsError: no metric, one that never changes, or a budget below one run.
        ScriptFailedError: the first candidates all failed.
    """
    failed = [run for run in runs if run.end is SeekEnd.FAILED]
    if len(failed) == len(runs) >= _MOST_FAILED:
        last = failed[-1]
        values = ", ".join(f"{name}={value}" for name, value in last.parameters.items())
        raise ScriptFailedError(
            f"the first {len(runs)} runs all failed; the one with {values} {last.said}",
            hint="Run the command yourself with these values.",
        )
    said = [run for run in runs if run.values]
    silent = [run for run in runs if run.end is SeekEnd.FINISHED and not run.values]
    if silent and not said:
        raise RunsError(
            "no match for --metric: a run came to its end without one.",
            code="no_metric",
            hint="Compare --metric with what the command writes.",
        )
    if len(runs) == 1 and runs[0].end is SeekEnd.TIMED_OUT:
        raise RunsError(
            f"the first run had not ended after {format_seconds(runs[0].seconds)}, the whole "
            "budget.",
            code="budget_too_short",
            hint="Give it a --budget of many runs, 20 at least, or a shorter training.",
        )
    numbers = {value for run in said for value in run.values}
    if len(numbers) == 1 and len(said) > 1 and sum(len(run.values) for run in said) > 3:
        raise RunsError(
            f"the metric is always {numbers.pop():g}.",
            code="constant_metric",
            hint="Compare --metric with what the command writes: its group must be the metric.",
        )


def _with_recipe(asked: SearchAsked, argv: tuple[str, ...]) -> tuple[str, ...]:
    if asked.recipe is None:
        return argv
    ours = (sys.executable, "-m", "steptime", "run", "--recipe", str(asked.recipe.resolve()))
    return (*ours, "--", *argv)


def key_of(asked: SearchAsked) -> str:
    """Return the name of the folder for the same command, metric and parameters.

    The budget is none of it: with a larger one, the same search goes on.
    """
    words = [
        list(asked.command),
        encode(replace(asked.question, budget_s=1.0)),
        asked.metric,
        asked.seed_flag,
        None if asked.recipe is None else hashlib.sha256(read_regular(asked.recipe)).hexdigest(),
        str(Path.cwd()),
    ]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def _kept_runs(folder: Path) -> list[SeekRun]:
    """Return the finished runs of an earlier call; a damaged file is a run that is not there."""
    found = []
    for path in sorted(folder.glob("run-*.json")):
        try:
            found.append(decode(SeekRun, read_regular(path), where=path.name))
        except DamagedRunError:
            continue
    return found


def _maker(asked: SearchAsked, folder: Path) -> TrialMaker:
    if asked.ray is not None:
        from steptime.app.search.seek_on_ray import MakerOnRay

        return MakerOnRay(
            asked.ray,
            folder,
            share_network=asked.share_network,
            allow_unsafe=asked.allow_unsafe,
        )
    containment = probe(folder, allow_unsafe=asked.allow_unsafe, share_network=asked.share_network)
    return MakerHere(folder, containment)
