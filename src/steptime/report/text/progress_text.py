"""Says how far a study is: the live line, the line of a finished trial, and the first line.

In: a StudyProgress. Out: text without layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.core.note import Note
from steptime.core.printable import printable
from steptime.core.units import format_seconds, format_speedup
from steptime.report.blocks.phrasing import shortened
from steptime.report.blocks.study.state_names import cut_in_the_middle, line_names
from steptime.report.words.study.fact_words import describe_facts, fill, listed
from steptime.report.words.study.study_words import (
    describe_interval,
    describe_mark,
    describe_state,
    describe_tier,
)
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import Trial

_BETWEEN = " · "

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
    "stored_elsewhere": "{store} cannot be written ({reason}); the study is in {folder}",
    "not_quiet": (
        "other programs keep {others_cores} cores busy and did not stop, so intervals will be wide"
    ),
}


def describe_containment(tier: str, reasons: tuple[str, ...], lacks: tuple[str, ...]) -> str:
    """Say how the trials are kept from doing harm, and why there is no stronger isolation."""
    return f"trials are {describe_tier(tier, tuple(map(printable, reasons)), lacks)}"


def describe_note(note: Note) -> str:
    """Return the sentence of a note that is shown once."""
    facts = describe_facts(note.facts or {})
    shown = {name: printable(text) for name, text in facts.items()}
    return fill(NOTES.get(note.code), shown) or f"{note.code} {listed(shown)}".rstrip()


def live_line(progress: StudyProgress, *, width: int) -> str:
    """Return phase, trial i of n, best so far and time left, on one line.

    Where that has no room, these go first, in this order: the words of the phase, the ends of the
    names of settings, the trial's number, what the best state is, the middle of the name. What is
    tried, how fast the best was and the time left stay.
    """
    phase = PHASES.get(progress.phase, progress.phase)
    count, best, left = _count(progress), _best(progress), _left(progress)
    bests = [f"{best} {name}" for name in line_names(progress.best_state)[:2]] if best else [""]
    if not progress.state:
        return _first_that_fits([(phase, count, bests[0], left), (phase, best, left)], width)
    names = line_names(progress.state)
    lines: list[tuple[str, ...]] = [(f"{phase} ({names[0]})", count, bests[0], left)]
    for name in names:
        rows = [*((count, one) for one in bests), (bests[-1],), (count, best), (best,)]
        lines += [(name, *row, left) for row in rows]
    room = width - sum(len(part) + len(_BETWEEN) for part in (best, left) if part)
    lines.append((cut_in_the_middle(names[-1], max(8, room)), best, left))
    return _first_that_fits(lines, width)


def _first_that_fits(lines: Sequence[Sequence[str]], width: int) -> str:
    """Return the first line that fits; the last one, cut, where none does."""
    joined = [_BETWEEN.join(part for part in parts if part) for parts in lines]
    return next((line for line in joined if len(line) <= width), shortened(joined[-1], width))


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
    return "" if progress.best is None else f"best {format_speedup(progress.best.estimate)}"


def _left(progress: StudyProgress) -> str:
    return f"{format_seconds(round(max(0.0, progress.left_s)))} left"
