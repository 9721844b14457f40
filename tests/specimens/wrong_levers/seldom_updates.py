"""Planted: every tenth update is taken back after it was made."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    counts = []

    def skip(optimizer):
        counts.append(None)
        if len(counts) % 10 == 0:
            for group in optimizer.param_groups:
                for weight in group["params"]:
                    weight.grad = None

    return session.before_update(skip)


LEVER = Lever(
    name="seldom_updates",
    title="Update less often.",
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
