"""Lets one call do what a loop over elements does, where the source proves that it is the same.

Steptime's reading of the source finds such loops and writes the edit (a unified diff); this lever
gives the running functions the code that the edited file would have given them. No file is changed.

Source: https://docs.python.org/3/reference/datamodel.html (`function.__code__`), and
docs/explanation/diagnosis.md for what makes an edit certain.
"""

from __future__ import annotations

from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.line_edits import read_edits
from .swapped_code import SwappedCode, check_files


def applies(facts: Facts) -> str | None:
    """It applies where an edit of a function is known that keeps all numbers."""
    if facts.loop_edits is None:
        return "Loops in the script's own Python were not observed."
    if not facts.loop_edits:
        return (
            "No loop over elements was found in a function where one call certainly does the same."
        )
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return all edits as one setting."""
    return ({"diff": "".join(facts.loop_edits)},) if facts.loop_edits else ()


def apply(settings: Settings, session: Session) -> Undo:
    """Change the functions that are there, and those that are there when training begins.

    A recipe's levers are put on before the script has defined its functions.
    """
    edits = read_edits(str(settings["diff"]))
    check_files(edits)
    swapped = SwappedCode(edits)
    swapped.swap()
    is_later = False

    def look_again(one: Any) -> None:
        if is_later:  # those that have been seen already came before the search above
            swapped.swap()

    undos = (session.for_each_model(look_again), session.for_each_optimizer(look_again))
    is_later = True

    def undo() -> None:
        for one in undos:
            one()
        swapped.swap_back()

    return undo


def edit(settings: Settings) -> str:
    """Return the lines that are taken out and put in, under the names of their files."""
    found = []
    for file in read_edits(str(settings["diff"])):
        for one in file.changes:
            found += [f"# {file.name}:{one.line}", *(f"- {line}" for line in one.before)]
            found += [f"+ {line}" for line in one.after]
    return "\n".join(found)


LEVER = Lever(
    name="vectorized_loops",
    title="Let one call do what a loop over elements does in the script's own functions.",
    relieves=("HOST_BOUND", "INPUT_BOUND"),
    phases=("other", "input_wait"),
    preserves=Preserves.EXACT,
    when=(
        "A function that a step calls, the data set or the collate function has a loop over "
        "elements, and the source proves that one call gives the same numbers."
    ),
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=edit,
    costs=(
        "None were seen. Workers that run already, generators and the function that holds the "
        "training loop keep their loops."
    ),
    source="https://docs.python.org/3/reference/datamodel.html",
)
