"""A lever that takes some of one kind of waste out of `scripts/wasteful.py`."""

import sys

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    # A lever that is on from the start is put on before the script has names of its own.
    chosen = sys.__dict__.setdefault("chosen_levels", {})
    name = settings["waste"]
    chosen[name] = settings["level"]

    def undo():
        chosen.pop(name, None)

    return undo


def make(name):
    """The lever on the waste `name`, with three settings."""
    return Lever(
        name=name,
        title="Takes out waste.",
        relieves=("COMPUTE_BOUND", "HOST_BOUND"),
        phases=("forward", "backward", "other", "loss", "optimizer", "gradient_processing"),
        preserves=Preserves.EXACT,
        when="Always.",
        applies=lambda facts: None,
        space=lambda facts: tuple({"waste": name, "level": level} for level in (1, 2, 3)),
        moment=Moment.LIVE,
        edit=lambda settings: "none",
        costs="None.",
        source="The benchmark.",
        judged_by_cpu_time=True,
        apply=apply,
    )


LEVER = make("alpha")
