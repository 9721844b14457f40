"""Judges a state: makes the whole runs that this takes, and has `verify` compare them.

In: a way to make one run, and the class of the state's levers. Out: a `Verdict`. Runs of the
command as written stay in the study's folder, and all candidates are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from steptime.levers.base import FLOAT32_ROUNDOFF, Facts, Lever, Preserves
from steptime.tune.trials.trial_process import TrialEnded
from steptime.tune.values.study_values import State, TrialEnd
from steptime.verify.judge_quality import judge, needs_draws
from steptime.verify.protocol import (
    CANDIDATE,
    MORE_REPEATS,
    NUM_REPEATS,
    RunRequest,
    gather,
    plan_runs,
)
from steptime.verify.recordings import Recording, is_complete, read_recording
from steptime.verify.values import Outcome, QualityCheck, Verdict

_ORDER = (Preserves.EXACT, Preserves.NUMERIC, Preserves.STATISTICAL, Preserves.NOTHING)
_EMPTY = Recording(ranks=())

Run = Callable[[RunRequest, Path | None], tuple[Path, TrialEnded]]
"""Makes a run: in the folder that is named, else in one of its own; where, and how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the levers of a state say of themselves, here."""

    preserves: Preserves
    roundoff: float
    reorders: bool = False


def claim_of(state: State, levers: Mapping[str, Lever], facts: Facts) -> Claim:
    """The weakest class and the largest roundoff of a state's levers, and whether one reorders."""
    classes, roundoffs = [Preserves.EXACT], [FLOAT32_ROUNDOFF]
    for applied in state:
        lever = levers[applied.name]
        # By its word: an outside lever's enumeration is another object.
        here = Preserves(lever.class_here(facts, applied.settings) or lever.preserves)
        classes.append(here)
        if here is Preserves.NUMERIC:
            roundoffs.append(lever.roundoff(applied.settings))
    return Claim(
        preserves=max(classes, key=_ORDER.index),
        roundoff=max(roundoffs),
        reorders=any(levers[applied.name].reorders for applied in state),
    )


def judge_state(claim: Claim, run: Run, folder: Path, *, updates: int) -> Verdict:
    """Make the runs until one of them decides, or all are made.

    Args:
        claim: of the state's levers.
        run: makes one run.
        folder: of the runs of the command as written.
        updates: recorded in each run.
    """
    found: dict[str, Recording] = {}
    candidate: Recording | None = None
    verdict: Verdict | None = None
    for num_repeats in (NUM_REPEATS, *MORE_REPEATS):
        for request in _planned(claim, updates, num_repeats):
            if request.name in found or (request.is_candidate and candidate is not None):
                continue  # made for fewer repeats
            if request.name == CANDIDATE:
                path, ended = run(request, None)
                if not is_complete(path) and ended.end is not TrialEnd.FINISHED:
                    return _failed(ended)
                candidate = read_recording(path)
            else:
                found[request.name] = _reference(request, run, folder, updates)
            reference = gather(
                found,
                roundoff=claim.roundoff,
                num_repeats=num_repeats,
                reorders=claim.reorders,
            )
            if reference is not None and candidate is not None:
                verdict = judge(reference, candidate, preserves=claim.preserves.value)
                if verdict.outcome is Outcome.FAIL:
                    return verdict
        if verdict is None or not needs_draws(verdict):
            break
    return verdict or judge_nothing(claim)  # a class that no run can speak for


def _planned(claim: Claim, updates: int, num_repeats: int) -> tuple[RunRequest, ...]:
    return plan_runs(
        claim.preserves.value,
        roundoff=claim.roundoff,
        num_updates=updates,
        num_repeats=num_repeats,
        reorders=claim.reorders,
    )


def judge_nothing(claim: Claim) -> Verdict:
    """Of a lever that changes the training, without a run."""
    check = QualityCheck(name="class", outcome=Outcome.FAIL, detail=claim.preserves.value)
    return Verdict(outcome=Outcome.FAIL, level=None, checks=(check,))


def _reference(request: RunRequest, run: Run, folder: Path, updates: int) -> Recording:
    """A run of the command as written, made once a study; empty where it failed."""
    path = folder / f"{request.name}-{updates}"
    if is_complete(path):
        return read_recording(path)
    path, ended = run(request, path)
    if is_complete(path) or ended.end is TrialEnd.FINISHED:
        return read_recording(path)
    return _EMPTY


def _failed(ended: TrialEnded) -> Verdict:
    """The candidate's run did not come to its end: it does not train as well."""
    detail = ended.text.rpartition("\n")[2] or ended.reason or ended.end.value
    check = QualityCheck(name="run", outcome=Outcome.FAIL, detail=detail)
    return Verdict(outcome=Outcome.FAIL, level=None, checks=(check,))
