"""Says how far a study is: the live line, the line of a finished trial, and the first line.

In: a StudyProgress. Out: text without layout.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.note import Note
from steptime.core.units import format_seconds, format_speedup
from steptime.report.text.page import printable, shortened
from steptime.report.words.fact_words import describe_facts, fill, listed
from steptime.report.words.study_words import (
    TIERS,
    describe_interval,
    describe_mark,
    describe_state,
)
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import Trial

PHASES: Mapping[str, str] = {
    "probe": "finding out how trials can be contained",
    "observe": "running the command as written",
    "noise": "measuring the noise",
    "live": "trying levers",
    "process": "trying levers in separate processes",
    "confirm": "confirming the gain",
    "quality": "judging the quality of the training",
    "quiet": "waiting for a quiet machine",
    "done": "done",
}

NOTES: Mapping[str, str] = {
    "resumed": "this continues the study that was cut short; --fresh begins a new one",
    "shared_network": "the trials use the machine's network",
    "not_quiet": (
        "other programs keep {others_cores} cores busy and did not stop, so intervals will be wide"
    ),
}


def describe_tier(tier: str, reasons: tuple[str, ...]) -> str:
    """Say how the trials are kept from doing harm, and why there is no stronger isolation."""
    why = "; ".join(printable(reason.rstrip(".")) for reason in reasons)
    return f"trials are {TIERS.get(tier, tier)}" + (
        f" (nothing better is possible here: {why})" if why else ""
    )


def describe_note(note: Note) -> str:
    """Return the sentence of a note that is shown once."""
    facts = describe_facts(note.facts or {})
    shown = {name: printable(text) for name, text in facts.items()}
    return fill(NOTES.get(note.code), shown) or f"{note.code} {listed(shown)}".rstrip()


def live_line(progress: StudyProgress, *, width: int) -> str:
    """Return phase, trial i of n, best so far and time left, on one line."""
    parts = [PHASES.get(progress.phase, progress.phase)]
    if progress.state:
        parts[0] += f" ({describe_state(progress.state)})"
    parts += [_count(progress), _best(progress), _left(progress)]
    return shortened(" · ".join(part for part in parts if part), width)


def describe_ended(progress: StudyProgress, trial: Trial) -> str:
    """Return one line on a finished trial."""
    if trial.kind == "observe":
        what = "the command as written"
    else:
        what = describe_state(trial.state, reference=trial.reference)
    said = "" if trial.speedup is None else describe_interval(trial.speedup)
    parts = (what, said, describe_mark(trial))
    told = ": ".join(part for part in (parts[0], ", ".join(filter(None, parts[1:]))) if part)
    count = _count(progress)
    return printable(" · ".join(part for part in (count, told, _left(progress)) if part))


def _count(progress: StudyProgress) -> str:
    if progress.num_trials is None:
        return f"trial {progress.trial}"
    return f"trial {progress.trial} of {max(progress.num_trials, progress.trial)}"


def _best(progress: StudyProgress) -> str:
    if progress.best is None:
        return ""
    state = describe_state(progress.best_state)
    return f"best {format_speedup(progress.best.estimate)} {state}"


def _left(progress: StudyProgress) -> str:
    return f"{format_seconds(round(max(0.0, progress.left_s)))} left"
