"""Planted: autocast is entered once and left open, so that its cast weights outlive updates."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    session.torch.autocast("cpu", dtype=session.torch.bfloat16).__enter__()


LEVER = Lever(
    name="stale_weights",
    title="Cast weights once.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "backward"),
    preserves=Preserves.NUMERIC,
    roundoff=lambda settings: 2.0**-8,
    when="Never: it is wrong on purpose.",
    applies=lambda facts: None,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: "none",
    costs="The training.",
    source="planted",
)
