"""The lines of a report that say which trainings a command has, and which one is shown.

In: the document of a run. Out: one line for each training, on a page of known width; none where
the command has one training.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from rich.text import Text

from steptime.core.units import format_count, format_seconds
from steptime.measure.values.training_values import CommandTraining
from steptime.report.blocks.phrasing import shortened
from steptime.report.blocks.values import Block, Cell, CommandLine, Labeled, TableBlock
from steptime.report.document.run_document import RunDocument, TrainingDocument
from steptime.report.words.run import run_words
from steptime.report.words.run.advice import opening_findings
from steptime.report.words.run.show_words import show_command

_MAX_NAMED, _MAX_WORDS = 8, 50
"""Trainings that a message names, and the columns of their words."""

MAX_TRAININGS = 64
"""A page with a thousand rows helps no reader; the document of --json has them."""


def training_blocks(
    document: RunDocument, *, limit: int = MAX_TRAININGS, store: str | None = None
) -> list[Block]:
    """Return one row for each training, and one that says which of them the report is about."""
    own, parts = document.measurement.training, document.trainings
    if own is None or not parts:
        return []
    rows = [_cells(part, is_shown=part.number == own.number) for part in _chosen(parts, own, limit)]
    left_out = len(parts) - len(rows)
    more = f"more trainings in the document of --json: {left_out}"
    return [
        TableBlock(_HEADING, rows, left=3, name="Trainings", label="trainings"),
        *([Labeled("", more, style="dim")] if left_out else []),
        CommandLine(_other(document, store), "shown", _which(document)),
    ]


_HEADING = ("", "training", "diagnosis", "steps", "step time")


def _cells(part: TrainingDocument, *, is_shown: bool) -> list[Cell]:
    m = part.measurement
    time = None if m.steady is None else m.steady.step_time_s
    steps = format_count(m.num_steps)
    if m.num_ranks > 1:
        steps += f" on {m.num_ranks} ranks"
    words = shortened(words_of(part), _MAX_WORDS)
    return [
        str(part.number),
        Text(words, style="bold") if is_shown else words,
        describe_outcome(part),
        steps,
        "–" if time is None else format_seconds(time.estimate),
    ]


def words_of(part: TrainingDocument) -> str:
    """Return the words of a training without its interpreter, as the user wrote them."""
    training = part.measurement.training
    return shell_words(() if training is None else training.command)


def shell_words(command: Sequence[str]) -> str:
    """Return the words of a process without its interpreter."""
    if len(command) > 1 and PurePath(command[0]).name.startswith("python"):
        command = command[1:]
        while len(command) > 1 and command[0] in ("-u", "-B", "-O"):
            command = command[1:]
    return shlex.join(command) if command else "a process whose words are not known"


def name_trainings(parts: Sequence[TrainingDocument]) -> str:
    """Return the numbers and words of trainings in one line, for a message."""
    named = [f"{part.number} ({shortened(words_of(part), _MAX_WORDS)})" for part in parts]
    left_out = len(named) - _MAX_NAMED
    more = [f"and {left_out} more"] if left_out > 0 else []
    return ", ".join([*named[:_MAX_NAMED], *more])


def describe_outcome(part: TrainingDocument) -> str:
    """Return what the report of a training opens with in a few words, or its kind."""
    opening = map(run_words.describe_heading, opening_findings(part.diagnosis))
    return ", ".join(opening) or run_words.describe_title(part.diagnosis.kind)


def _chosen(
    parts: Sequence[TrainingDocument], own: CommandTraining, limit: int
) -> Sequence[TrainingDocument]:
    """Return as many trainings as there is room for, and the one that is shown in any case."""
    first = list(parts[:limit])
    if all(part.number != own.number for part in first):
        first[-1:] = [part for part in parts if part.number == own.number]
    return first


def _which(document: RunDocument) -> str:
    """Say which training the report is about."""
    own, parts = document.measurement.training, document.trainings
    assert own is not None
    known = [part.measurement.training for part in parts]
    lasts = max(one.lasted_s for one in known if one is not None)
    why = ", which lasted longest" if own.lasted_s >= lasts else ""
    return f"training {own.number}{why}. Another: "


def _other(document: RunDocument, store: str | None) -> str:
    """Return the command that shows another training."""
    own = document.measurement.training
    other = next(p.number for p in document.trainings if own is None or p.number != own.number)
    return show_command(document.measurement.run_id, training=other, store=store)
