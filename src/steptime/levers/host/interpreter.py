"""Another interpreter, with the torch that is installed for it.

Another release of Python or torch, or another build (with another BLAS, for this CPU, for this
driver), may run the same script faster. Nothing here installs one: the user names it
(`steptime tune --python OTHER/bin/python`), and its folder is put in front of PATH, so that the
command finds `python`, `torchrun` and the like there.

Source: the release notes of torch (https://github.com/pytorch/pytorch/releases) and of Python
(https://docs.python.org/3/whatsnew/): 3.11 is 1.25x as fast as 3.10 on average on pyperformance.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..base import Facts, Lever, Moment, Preserves, Settings

LIBRARY = "python"
"""The interpreter in `Facts.libraries`, where the user named one."""


def applies(facts: Facts) -> str | None:
    """It applies where the user named an interpreter."""
    if LIBRARY in facts.libraries:
        return None
    return "Another interpreter is not known: name it (steptime tune --python OTHER/bin/python)."


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the interpreter that was named."""
    return ({"python": facts.libraries[LIBRARY]},) if LIBRARY in facts.libraries else ()


def variables(settings: Settings, libraries: Mapping[str, str]) -> Mapping[str, str]:
    """Return the folder of the interpreter, which goes in front of PATH.

    Raises:
        KeyError: it is not on this machine.
    """
    python = str(settings["python"])
    if libraries.get(LIBRARY) != python:
        raise KeyError(python)
    return {"PATH": os.path.dirname(python)}


LEVER = Lever(
    name="interpreter",
    title="Start the command with another Python, and the torch that is installed for it.",
    relieves=("HOST_BOUND", "COMPUTE_BOUND"),
    phases=(
        *("input_wait", "h2d", "forward", "loss", "forward_and_loss", "backward"),
        *("gradient_processing", "communication", "optimizer", "sync", "other"),
    ),
    preserves=Preserves.NUMERIC,
    when="Where `steptime tune --python OTHER/bin/python` names one.",
    applies=applies,
    space=space,
    moment=Moment.ENVIRONMENT,
    variables=variables,
    edit=lambda settings: f"{settings['python']} train.py",
    costs="Another release may round in another way, draw other random numbers, or lack a "
    "package that the script needs; its proof holds for these two releases alone.",
    source="https://github.com/pytorch/pytorch/releases",
)
