"""Planted: each sample gets its neighbor's label."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    functional = session.torch.nn.functional
    original = functional.cross_entropy

    def cross_entropy(inputs, target, *args, **kwargs):
        return original(inputs, target.roll(1), *args, **kwargs)

    functional.cross_entropy = cross_entropy


LEVER = Lever(
    name="shifted_labels",
    title="Fetch labels ahead.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "backward"),
    preserves=Preserves.NUMERIC,
    when="Never: it is wrong on purpose.",
    applies=lambda facts: None,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: "none",
    costs="The training.",
    source="planted",
)
