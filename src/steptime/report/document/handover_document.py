"""What `steptime patch --json` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.patch.values import ByHand, CellText, Handover, PatchCheck, PlacedLever


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverDocument:
    """A recipe as an edit of the script.

    Attributes:
        diff: for `git apply`; bytes that are no UTF-8 are written out, so take the file for those.
        path: path of the file with the diff; null where `--output` named none.
        variables: environment variables to set for the command.
        launch_line: the command with them; null where there are none.
        placed: the levers that stand in the diff or in the launch line.
        by_hand: the levers that do not, or not everywhere.
        cells: the cells of notebooks that change, which are not in the diff.
        check: how the patched script compares with the recipe; null without `--check`.
    """

    diff: str
    path: str | None
    variables: Mapping[str, str]
    launch_line: str | None
    placed: tuple[PlacedLever, ...]
    by_hand: tuple[ByHand, ...]
    cells: tuple[CellText, ...]
    check: PatchCheck | None


def describe_handover(
    handover: Handover, check: PatchCheck | None, *, path: str | None
) -> HandoverDocument:
    """Return the document of an edit; `path` is where the diff was written."""
    return HandoverDocument(
        diff=handover.diff.decode("utf-8", "backslashreplace"),
        path=path,
        variables=handover.variables,
        launch_line=handover.launch_line,
        placed=handover.placed,
        by_hand=handover.by_hand,
        cells=handover.cells,
        check=check,
    )
