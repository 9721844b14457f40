"""What comes of a recipe that is handed over as an edit: the diff, the launch line, the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.verify.values import Outcome, Verdict


class CannotPlaceError(Exception):
    """An edit has no place in the source; the text is the reason, one sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLever:
    """A lever that stands in the diff or in the launch line.

    Attributes:
        name: the lever.
        places: where, such as `train.py:30`; empty for one that is in the launch line.
        notes: what the edit does that the recipe did not, one sentence each.
    """

    name: str
    places: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """What a person has to write.

    Attributes:
        lever: its name.
        reason: why it could not be placed, one sentence.
        lines: what to write, as `Lever.edit` gives it.
        place: where, if it is known.
    """

    lever: str
    reason: str
    lines: str
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellText:
    """A cell of a notebook with the edit in it.

    Attributes:
        notebook: its file.
        number: of the cell, as in `In [3]` where the notebook runs from the top.
        text: what it becomes, whole.
    """

    notebook: str
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A recipe as an edit.

    Attributes:
        diff: for `git apply`, in the encodings of the files; empty where no file changes.
        files: the new bytes of each file that changes, by its name in the folder; of a notebook,
            too, which is not in the diff.
        variables: to be set for the command.
        launch_line: the command with them; None where there are none.
        placed: the levers that are done.
        by_hand: those that are not, or not everywhere.
        cells: of notebooks, to be pasted.
    """

    diff: bytes
    files: Mapping[str, bytes]
    variables: Mapping[str, str]
    launch_line: str | None
    placed: tuple[PlacedLever, ...]
    by_hand: tuple[ByHand, ...]
    cells: tuple[CellText, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCheck:
    """How the patched script compares with the recipe, from contained trials.

    Attributes:
        outcome: PASS where the losses are equal and the speed is, within noise.
        losses: the verdict on the losses and weights of whole runs.
        is_exact: whether they were held to be equal bit for bit; else as equal as runs of the
            recipe are whose last bits were changed.
        speed: of the patched script over the recipe's run, per step; 1 is no change. None where
            the losses already differ, or where a run failed.
        judged_by: `cpu` or `wall`: the time that `speed` is of.
        reason: why it is no PASS, one sentence.
    """

    outcome: Outcome
    losses: Verdict
    is_exact: bool
    speed: Interval | None = None
    judged_by: str = "wall"
    reason: str | None = None
