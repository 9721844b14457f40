"""Prints what `steptime patch` did: what stands in the diff, the launch line, what is left to do.

In: a Handover, and the check of it where there was one. Out: lines of plain text.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from steptime.core.printable import printable
from steptime.patch.values import ByHand, CellText, Handover, PatchCheck
from steptime.verify.values import Outcome

_JUDGED_BY = {"cpu": "CPU time", "wall": "wall time"}


def handover_lines(handover: Handover, *, diff_file: str | None) -> list[str]:
    """Return the summary of an edit; `diff_file` is None where the diff went to stdout."""
    lines = []
    for placed in handover.placed:
        where = ", ".join(map(printable, placed.places)) or "in the launch line"
        lines += [f"{placed.name}: {where}", *(f"  {note}" for note in placed.notes)]
    for one in handover.by_hand:
        lines += ["", *_by_hand(one)]
    for cell in handover.cells:
        lines += ["", *_cell(cell)]
    if handover.launch_line is not None:
        lines += ["", "Start it with:", f"  {printable(handover.launch_line)}"]
    if not handover.diff:
        lines += [] if handover.cells else ["", "No file changes."]
    elif diff_file is not None:
        lines += ["", f"Apply it: git apply {shlex.quote(diff_file)}"]
    return lines


def _by_hand(one: ByHand) -> Iterator[str]:
    where = "" if one.place is None else f" ({printable(one.place)})"
    yield f"{one.lever}{where}: by hand. {printable(one.reason)} Write:"
    for line in one.lines.splitlines():
        yield f"  {line}" if line else ""


def _cell(cell: CellText) -> Iterator[str]:
    """The whole cell without an indent, so that it can be pasted."""
    name, number = printable(cell.notebook), cell.number
    where = f"cell {number} of {name} (In [{number}] from the top)"
    yield f"Paste this into {where}, in place of all it holds:"
    yield ""
    for line in cell.text.rstrip().splitlines():
        yield "\t".join(printable(part) for part in line.split("\t"))


def check_lines(found: PatchCheck, handover: Handover) -> list[str]:
    """What the trials of a patched script said, and what of the recipe was not in it."""
    equal = "equal bit for bit" if found.is_exact else "equal up to rounding"
    lines = []
    if found.losses.outcome is Outcome.PASS:
        n = next((one.n for one in found.losses.checks if one.n), None)
        over = "" if n is None else f" over {n} updates"
        lines.append(f"Losses: {equal} to the recipe's{over}.")
    if found.speed is not None:
        speed = found.speed
        lines.append(
            f"Speed: {speed.estimate:.2f}x the recipe's ({speed.low:.2f} to {speed.high:.2f}, "
            f"{speed.n} pairs, {_JUDGED_BY[found.judged_by]})."
        )
    if found.reason is not None:
        lines.append(printable(found.reason))
    lines += left_lines(handover)
    lines.append(_OUTCOMES[found.outcome])
    return lines


def left_lines(handover: Handover) -> list[str]:
    """Which levers a check could not have in the patched script; a line for each."""
    placed = {one.name for one in handover.placed}
    return [
        f"{name} is left by hand {'in places' if name in placed else 'as said above'}: the recipe "
        "ran with it, the patched script without it."
        for name in dict.fromkeys(one.lever for one in handover.by_hand)
    ]


_OUTCOMES = {
    Outcome.PASS: "Checked: the patched script trains as the recipe does.",
    Outcome.FAIL: "Not passed: the patched script does not do what the recipe did.",
    Outcome.INCONCLUSIVE: "Cannot tell whether the patched script does what the recipe did.",
}
