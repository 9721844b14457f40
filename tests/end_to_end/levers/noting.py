"""Changes nothing; writes a line for each time it is asked."""

import os

from .base import Lever, Moment, Preserves


def apply(settings, session):
    name = settings.get("label", "noting")

    def note(what):
        with open(os.environ["NOTES"], "a") as file:
            file.write(f"{os.environ.get('RANK', '0')} {name} {what}\n")

    def around_call(call, model, args, kwargs):
        note(f"call {type(model).__name__}")
        result = call(model, *args, **kwargs)
        note("called")
        return result

    def around_backward(call, args, kwargs):
        note("backward")
        return call(*args, **kwargs)

    undos = [
        session.wrap_calls(around_call),
        session.wrap_backward(around_backward),
        session.before_update(lambda optimizer: note(f"update {type(optimizer).__name__}")),
        session.for_each_model(lambda model: note(f"model {type(model).__name__}")),
        session.for_each_optimizer(lambda optimizer: note(f"optimizer {type(optimizer).__name__}")),
    ]
    note("on")

    def undo():
        for each in reversed(undos):
            each()
        note("off")

    return undo


LEVER = Lever(
    name="noting",
    title="Changes nothing.",
    relieves=(),
    phases=(),
    preserves=Preserves.EXACT,
    when="Always.",
    applies=lambda facts: None,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    apply=apply,
    edit=lambda settings: "Nothing to edit.",
    costs="Nothing.",
    source="The tests' own.",
)
