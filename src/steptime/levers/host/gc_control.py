"""Garbage collected at a fixed number of updates, instead of whenever Python decides.

Python searches its objects for cycles after so many new ones, in whatever phase that is, and a full
search takes long where many objects live long. What is there after the first updates is frozen:
later searches pass over it. Ranks that collect at the same update do not wait for each other in
turn. A script that has turned off collecting itself is left alone.

Source: https://docs.python.org/3/library/gc.html (`gc.freeze`).
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

MIN_FRACTION = 0.002
"""Below this share of a step there is nothing to gain that a study could prove."""

WARM_UP = 3
"""Updates before what lives is frozen: the first ones still make optimizer states and buffers."""

UPDATES = count(1)
"""It goes on where the lever comes back, so that short blocks of a trial have their collections."""


def applies(facts: Facts) -> str | None:
    """It applies where collections were seen to take time."""
    if facts.gc_fraction is None:
        return "It was not observed how long Python's garbage collections take."
    if facts.gc_fraction < MIN_FRACTION:
        return f"Python's garbage collections take {facts.gc_fraction:.2%} of a step."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Stop the automatic collections once the script is warm, and collect at updates."""
    every = int(settings["every_updates"])
    control = Control()
    num = 0

    def collect(optimizer: Any) -> None:
        nonlocal num
        num += 1  # of each optimizer's: one that is gone must not stop the collecting
        if num == WARM_UP:
            control.begin()
        if control.is_on and next(UPDATES) % every == 0:
            gc.collect()

    session.for_each_optimizer(lambda optimizer: control.begin())()  # those that have stepped
    undo_updates = session.before_update(collect)

    def undo() -> None:
        undo_updates()
        control.end()

    return undo


class Control:
    """Whether it is us who collect."""

    def __init__(self) -> None:
        self.is_on = False

    def begin(self) -> None:
        """Freeze what lives, and stop Python's collections, unless the script has stopped them."""
        if gc.isenabled():
            gc.collect()
            gc.freeze()
            gc.disable()
            self.is_on = True

    def end(self) -> None:
        """Let Python collect again."""
        if self.is_on:
            gc.unfreeze()
            gc.enable()


def edit(settings: Settings) -> str:
    """Return the lines for the training loop."""
    return (
        f"if step == {WARM_UP}:\n"
        "    gc.collect()\n"
        "    gc.freeze()\n"
        "    gc.disable()\n"
        f"elif step > {WARM_UP} and step % {settings['every_updates']} == 0:\n"
        "    gc.collect()"
    )


LEVER = Lever(
    name="gc_control",
    title="Collect Python's garbage at a fixed number of updates, without what lives long.",
    relieves=("HOST_BOUND",),
    phases=(
        *("forward", "loss", "forward_and_loss", "backward", "gradient_processing"),
        *("optimizer", "input_wait", "other"),
    ),
    preserves=Preserves.EXACT,
    when="Python's garbage collections take a noticeable part of a step.",
    applies=applies,
    space=lambda facts: ({"every_updates": 10}, {"every_updates": 100}),
    moment=Moment.LIVE,
    saves=lambda facts: facts.gc_fraction,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=edit,
    costs="Objects in cycles keep their memory until the next collection, tensors among them.",
    source="https://docs.python.org/3/library/gc.html",
)
