"""A profiler of torch's that records no operators, although the script leaves it on.

While torch's profiler records, each operator calls it at its beginning and its end, and Python
calls it at each function if stacks are wanted. The script's profiler still begins and ends, and so
its own code works; operators do not call it, and stacks, shapes and memory are not asked for. Its
tables and traces then hold no operators. In this thread that holds for all callbacks at operators.

Source: https://docs.pytorch.org/docs/stable/profiler.html and our own reading of
torch.autograd._enable_record_function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._switches import why_not_on
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

EXPENSIVE = ("with_stack", "record_shapes", "profile_memory", "with_modules", "with_flops")


def applies(facts: Facts) -> str | None:
    """It applies where torch's profiler recorded most of the steps."""
    return why_not_on(facts, "profiler", "No profiler of torch's was on in most of the steps.")


def apply(settings: Settings, session: Session) -> Undo:
    """Let operators call no profiler, and whatever the script begins later ask for them alone."""
    torch = session.torch
    whole, inner = torch.profiler.profile, torch.autograd.profiler.profile
    prepare, start, enter = whole.prepare_trace, whole.start_trace, inner.__enter__

    def prepare_trace(self: Any) -> None:
        plainly(self, lambda: prepare(self))

    def start_trace(self: Any) -> None:
        start(self)
        vars(self.profiler).update(expensive_of(self))  # its tables ask for what was recorded

    def begin(self: Any) -> Any:
        return plainly(self, lambda: enter(self))

    def undo() -> None:
        torch.autograd._enable_record_function(True)
        inner.__enter__ = enter
        del whole.prepare_trace, whole.start_trace  # its base class has them

    whole.prepare_trace, whole.start_trace, inner.__enter__ = prepare_trace, start_trace, begin
    torch.autograd._enable_record_function(False)
    return undo


def expensive_of(profiler: Any) -> dict[str, Any]:
    """Return what the script asked to be recorded besides operators."""
    return {name: value for name, value in vars(profiler).items() if name in EXPENSIVE}


def plainly(profiler: Any, act: Callable[[], Any]) -> Any:
    """Do something while the profiler asks for operators alone."""
    asked = expensive_of(profiler)
    vars(profiler).update(dict.fromkeys(asked, False))
    try:
        return act()
    finally:
        vars(profiler).update(asked)


LEVER = Lever(
    name="no_profiler",
    title="Let the script's profiler record no operators.",
    relieves=("HOST_BOUND",),
    phases=(
        *("forward", "loss", "forward_and_loss", "backward"),
        *("gradient_processing", "optimizer", "other"),
    ),
    preserves=Preserves.EXACT,
    when="The script leaves a profiler of torch's on while it trains.",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: "# take out torch.profiler.profile(...), and the calls of its step()",
    costs="The tables and traces that the script makes of its profile hold no operators.",
    source="https://docs.pytorch.org/docs/stable/profiler.html",
)
