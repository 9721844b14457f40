"""Proves a patched script against its recipe, in contained trials of both.

In: a recipe, its levers, and the Handover. Out: a `PatchCheck`. Losses and weights of whole runs
are compared first, as a study compares a candidate with the command as written; then the times of
processes in turns. The patched files are written inside a trial's layer only.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.core.executable import NotStarted
from steptime.core.interval import Interval
from steptime.core.stats import median_interval, values_for_interval
from steptime.errors import ContainmentError, NotFoundError
from steptime.isolate.child import start_contained
from steptime.isolate.tiers import Containment, Tier
from steptime.levers.base import FLOAT32_ROUNDOFF, Lever, Preserves
from steptime.patch.values import Handover, PatchCheck
from steptime.tune.search.budget import judged_updates
from steptime.tune.trials.bounds import first_limits, is_full, process_window
from steptime.tune.trials.judging import Claim, judge_state
from steptime.tune.trials.process_pairs import Side, compare_sides, read_side
from steptime.tune.trials.real_bench import COMPILER_CACHE
from steptime.tune.trials.trial_process import (
    COMPILED,
    ContainedProcess,
    TrialEnded,
    TrialProcess,
    TrialStart,
    start_trial,
)
from steptime.tune.trials.trial_setting import add_variables, make_plan, variables_of
from steptime.tune.trials.trial_watch import TrialWatch
from steptime.tune.values.recipe_values import Recipe
from steptime.verify.protocol import VARIABLES, RunRequest
from steptime.verify.recordings import RecordingWatch
from steptime.verify.values import Outcome, Verdict

SLOWER = 0.97
"""The patched script may have this much of the recipe's speed: a study's noise is 1 to 3 %."""

LOOKS = (1.0, 2.0, 4.0)
"""Times as many pairs as an interval needs, after which a clear speed ends the check: what is not
clear goes on while the budget has room, to the last of these."""

WINDOW_SHARE = 2.5
"""A window is that of a study of so many times the budget: this is its only comparison, and a
second of steps behind a start of five says little."""

WIDEST = 1.25
"""An interval whose ends are further apart than by this factor says nothing."""

_START = Path(__file__).with_name("patched_start.py")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSubject:
    """What is checked.

    Attributes:
        recipe: what was proven.
        levers: those of the recipe, by name.
        handover: its edit.
        cwd: the folder of the command; absolute.
        environment: the user's.
        libraries: `Facts.libraries` of this machine.
        scratch: an empty folder for the trials; absolute.
        budget_s: what a study of this size would have; windows and limits follow from it, and
            pairs of processes end with it.
        num_pairs: pairs of processes for the speed; None for as many as it takes in that time.
    """

    recipe: Recipe
    levers: Mapping[str, Lever]
    handover: Handover
    cwd: Path
    environment: Mapping[str, str]
    libraries: Mapping[str, str]
    scratch: Path
    budget_s: float = 120.0
    num_pairs: int | None = None


def check_patch(subject: CheckSubject, containment: Containment, *, tell: Tell) -> PatchCheck:
    """Compare the losses, and then the speed.

    Args:
        subject: what is checked.
        containment: how trials are kept from harm; it must be isolated, because the patched files
            are written in a layer.
        tell: gets a sentence for each part.

    Raises:
        ContainmentError: it is not isolated.
        NotFoundError: the command cannot be started.
    """
    if containment.tier is not Tier.ISOLATED:
        raise ContainmentError(
            "the patched script cannot be tried here without a change of your files: "
            f"{'; '.join(containment.reasons) or 'trials are not isolated'}.",
            hint="Apply the patch to a copy, and compare by hand: steptime compare",
        )
    trials = _Trials(subject, containment)
    until = time.monotonic() + subject.budget_s
    tell("comparing the losses of the patched script with the recipe's")
    losses, is_exact = _judge(subject, trials)
    if losses.outcome is not Outcome.PASS:
        return PatchCheck(
            outcome=losses.outcome,
            losses=losses,
            is_exact=is_exact,
            reason=_why(losses),
        )
    tell("comparing the speed of both")
    return _time(subject, trials, losses, is_exact=is_exact, until=until, tell=tell)


# -- losses


def _judge(subject: CheckSubject, trials: _Trials) -> tuple[Verdict, bool]:
    """Bit for bit where that holds, else as close as the recipe's own rounding."""
    folder = subject.scratch / "quality"
    updates = judged_updates(subject.recipe.proof.tuned_step_s or 1.0, subject.budget_s)
    exact = Claim(preserves=Preserves.EXACT, roundoff=FLOAT32_ROUNDOFF)
    verdict = judge_state(exact, trials.run_quality, folder, updates=updates)
    claim = claim_of_recipe(subject.recipe, subject.levers)
    if verdict.outcome is not Outcome.FAIL or claim.preserves is Preserves.EXACT:
        return verdict, True
    return judge_state(claim, trials.run_quality, folder, updates=updates), False


def claim_of_recipe(recipe: Recipe, levers: Mapping[str, Lever]) -> Claim:
    """The weakest class and the largest roundoff of a recipe's levers, wherever they are used."""
    order = tuple(Preserves)
    used = [(levers[one.name], one.settings) for one in recipe.levers]
    classes = [Preserves(lever.preserves) for lever, _ in used]
    return Claim(
        preserves=max(classes, key=order.index, default=Preserves.EXACT),
        roundoff=max((lever.roundoff(each) for lever, each in used), default=FLOAT32_ROUNDOFF),
        reorders=any(lever.reorders for lever, _ in used),
    )


def _why(verdict: Verdict) -> str:
    bad = next((one for one in verdict.checks if one.outcome is verdict.outcome), None)
    detail = "" if bad is None else f": {bad.name}" + (f" ({bad.detail})" if bad.detail else "")
    return f"The losses do not prove to be those of the recipe{detail}."


# -- speed


def _time(
    subject: CheckSubject,
    trials: _Trials,
    losses: Verdict,
    *,
    is_exact: bool,
    until: float,
    tell: Tell,
) -> PatchCheck:
    """Pairs of processes until the speed is clear, or until then (of time.monotonic)."""
    by_cpu = all(subject.levers[one.name].judged_by_cpu_time for one in subject.recipe.levers)
    is_on_cpu = subject.recipe.proof.device == "cpu"
    pairs: list[tuple[Side, Side]] = []
    speed, judged_by, began = None, "wall", time.monotonic()
    fewest = subject.num_pairs or values_for_interval()

    def has_room() -> bool:
        now = time.monotonic()
        return subject.num_pairs is None and now + (now - began) / len(pairs) <= until

    while len(pairs) < fewest or goes_on(len(pairs) / fewest, speed, has_room):
        if len(pairs) == fewest:
            left_s = until - time.monotonic()
            tell(f"not clear after {fewest} pairs: going on, for {left_s:.0f} s at most")
        order = (False, True) if len(pairs) % 2 == 0 else (True, False)
        sides = {is_patched: trials.run_side(is_patched=is_patched) for is_patched in order}
        reason = _why_ended(sides)
        if reason is not None:
            return PatchCheck(
                outcome=Outcome.INCONCLUSIVE, losses=losses, is_exact=is_exact, reason=reason
            )
        pairs.append((sides[False], sides[True]))
        speed, judged_by = _speed_from(pairs, by_cpu=by_cpu, is_on_cpu=is_on_cpu)
    outcome, reason = judge_speed(speed)
    return PatchCheck(
        outcome=outcome,
        losses=losses,
        is_exact=is_exact,
        speed=speed,
        judged_by=judged_by,
        reason=reason,
    )


def goes_on(share: float, speed: Interval | None, has_room: Callable[[], bool]) -> bool:
    """Whether another pair is due after `share` times as many as an interval needs."""
    is_over = share >= LOOKS[-1] or (share in LOOKS and is_clear(speed))
    return not is_over and has_room()


def is_clear(speed: Interval | None) -> bool:
    """Whether all of the interval lies on one side of what is allowed."""
    return speed is not None and (speed.low >= SLOWER or speed.high < SLOWER)


def _speed_from(
    pairs: Sequence[tuple[Side, Side]], *, by_cpu: bool, is_on_cpu: bool
) -> tuple[Interval | None, str]:
    """The patched script's speed, and the time that it was judged by."""
    arm = compare_sides((), pairs).arms[0]
    cpu = speed_of(arm.cpu_log_ratios) if len(arm.cpu_log_ratios) == len(pairs) else None
    return choose_speed(speed_of(arm.log_ratios), cpu, by_cpu=by_cpu, is_on_cpu=is_on_cpu)


def choose_speed(
    wall: Interval | None, cpu: Interval | None, *, by_cpu: bool, is_on_cpu: bool
) -> tuple[Interval | None, str]:
    """The speed that judges, and the time that it is of.

    Where levers change how many threads compute, wall time judges them. Here both sides have the
    same levers: what an edit lacks or adds takes CPU time, too, which says it where others' work
    scatters the wall time. Nothing that the wall time shows to be slower is kept by it.

    Args:
        wall: by wall time.
        cpu: by CPU time of the training process; None where it is not known of all pairs.
        by_cpu: whether CPU time judges all levers of the recipe.
        is_on_cpu: whether the training computes on the CPU.
    """
    is_told = judge_speed(wall)[0] is not Outcome.INCONCLUSIVE
    if cpu is not None and (by_cpu or (is_on_cpu and not is_told)):
        return cpu, "cpu"
    return wall, "wall"


def _why_ended(sides: Mapping[bool, Side]) -> str | None:
    """What ended a timed run before it had shown enough; None where nothing did."""
    for is_patched, side in sides.items():
        if not side.ending.is_well:
            who = "the patched script" if is_patched else "the recipe"
            last = (side.ending.facts or {}).get("last_line", side.ending.word)
            return f"A timed run of {who} ended early: {last}."
    return None


def speed_of(log_ratios: tuple[float, ...]) -> Interval | None:
    """The speed of the patched script over the recipe's, from log ratios of their times."""
    if not log_ratios:
        return None
    found = median_interval(log_ratios)
    return Interval(
        estimate=math.exp(found.estimate),
        low=math.exp(found.low),
        high=math.exp(found.high),
        n=found.n,
    )


def judge_speed(speed: Interval | None) -> tuple[Outcome, str | None]:
    """Whether the speed is the recipe's within noise, and why it is not."""
    if speed is None:
        return Outcome.INCONCLUSIVE, "No step was timed in both."
    if speed.low >= SLOWER:
        return Outcome.PASS, None
    if speed.high < SLOWER:
        return Outcome.FAIL, "The patched script is slower than the recipe's run."
    if speed.high / speed.low > WIDEST:
        return Outcome.INCONCLUSIVE, (
            "The times scatter too much to tell whether the speed is kept: give it more time "
            "(--budget), or a quieter machine."
        )
    return Outcome.PASS, None


# -- trials


class _Trials:
    """Starts trials of the recipe and of the patched script."""

    def __init__(self, subject: CheckSubject, containment: Containment) -> None:
        self._subject = subject
        self._containment = containment
        self._compiled: Path | None = None
        self._written: list[str] = []
        for number, (name, data) in enumerate(subject.handover.files.items()):
            new = subject.scratch / f"patched-{number}"
            new.write_bytes(data)
            self._written += [str(new), str(subject.cwd / name)]

    def run_quality(self, request: RunRequest, path: Path | None) -> tuple[Path, TrialEnded]:
        """A whole run that records its losses; the candidate is the patched script."""
        trial = self._start(is_patched=request.is_candidate, quality=request.quality, folder=path)
        watch = RecordingWatch(trial.folder)
        return trial.folder, self._finish(trial, lambda _: watch.is_complete())

    def run_side(self, *, is_patched: bool) -> Side:
        """A process that shows a window of steps."""
        size = process_window(WINDOW_SHARE * self._subject.budget_s)
        trial = self._start(is_patched=is_patched)
        ended = self._finish(trial, lambda watch: is_full(watch, size))
        return read_side(trial.folder, ended, trial.watch)

    def _finish(self, trial: TrialProcess, is_done: Callable[[TrialWatch], bool]) -> TrialEnded:
        try:
            trial.wait(is_done)
        finally:
            ended = trial.close()
        if (trial.folder / COMPILED).is_dir():
            self._compiled = trial.folder / COMPILED
        return ended

    def _start(
        self,
        *,
        is_patched: bool,
        quality: Mapping[str, Any] | None = None,
        folder: Path | None = None,
    ) -> TrialProcess:
        subject, recipe = self._subject, self._subject.recipe
        state = () if is_patched else recipe.levers
        variables: Mapping[str, str] = subject.handover.variables
        if not is_patched:
            variables = variables_of(state, subject.levers, subject.libraries)
        environment = add_variables(subject.environment, variables)
        folder = folder or self._next_folder()
        if COMPILER_CACHE not in subject.environment:
            environment[COMPILER_CACHE] = str(folder / COMPILED)
        start = TrialStart(
            folder=folder,
            argv=recipe.script.command,
            environment=environment if quality is None else {**environment, **VARIABLES},
            plan=make_plan(state, subject.levers, quality=quality, training=recipe.training),
            compiled=self._compiled if COMPILER_CACHE not in subject.environment else None,
            training=None if recipe.training is None else recipe.training.number,
            levers=tuple(one.name for one in state),
        )
        self._compiled = None
        trial = start_trial(
            self._door(is_patched=is_patched), start, first_limits(subject.budget_s)
        )
        if isinstance(trial, NotStarted):
            raise NotFoundError(f"the command `{recipe.script.command[0]}` {trial.reason}.")
        return trial

    def _next_folder(self) -> Path:
        numbers = [int(one.name) for one in self._subject.scratch.iterdir() if one.name.isdigit()]
        return self._subject.scratch / f"{max(numbers, default=0) + 1:03d}"

    def _door(self, *, is_patched: bool) -> Any:
        command = self._subject.recipe.script.command
        # -I and -S: what is injected is for the command alone.
        num_files = str(len(self._written) // 2)
        before = (sys.executable, "-I", "-S", str(_START), num_files, *self._written)

        def start(
            environment: Mapping[str, str], *, folder: Path, stdin: Path | None
        ) -> ContainedProcess | NotStarted:
            return start_contained(
                (*before, *command) if is_patched else command,
                environment,
                cwd=self._subject.cwd,
                folder=folder,
                containment=self._containment,
                stdin=stdin,
            )

        return start
