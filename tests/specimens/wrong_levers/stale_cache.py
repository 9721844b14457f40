"""Planted: autocast around each call, inside a nesting that is never left: its cache stays."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    torch = session.torch
    torch.autocast_increment_nesting()

    def run(call, model, args, kwargs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return call(model, *args, **kwargs).float()

    return session.wrap_calls(run)


LEVER = Lever(
    name="stale_cache",
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
