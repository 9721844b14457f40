"""Each batch goes through the model several times over, its rows behind each other, in one call.

It is a measure, not a remedy, and in no list of levers: the model computes as much as with a larger
batch, also where the script makes its batches itself, and what comes back has the script's rows.
A mean over rows that the model takes itself stays what it is. `steptime fit` uses it to see whether
the rate rises with the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.model_rows import batch_size
from ..tools.tensors import map_tensors

FACTORS = (2, 4)


def applies(facts: Facts) -> str | None:
    """It applies where one process trains: several would exchange as if nothing were repeated."""
    return None if facts.world_size == 1 else "Several ranks train."


def apply(settings: Settings, session: Session) -> Undo:
    """Repeat the rows of each outermost call with gradients."""
    torch, factor = session.torch, int(settings["factor"])

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        size = batch_size(torch, (args, kwargs))
        if size is None:
            raise ValueError("what the model is called with has no rows in common")

        def repeat(tensor: Any) -> Any:
            return torch.cat([tensor] * factor)

        def cut(tensor: Any) -> Any:
            has_rows = tensor.dim() and tensor.shape[0] == size * factor
            return tensor.narrow(0, 0, size) if has_rows else tensor

        more, named = (map_tensors(torch, one, repeat) for one in (args, kwargs))
        session.count("repeated")
        return map_tensors(torch, call(model, *more, **named), cut)

    return session.wrap_calls(run)


LEVER = Lever(
    name="repeated_rows",
    title="Send the rows of each batch through the model several times.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NOTHING,
    when="One process trains, and all tensors of a call of its model have the batch in front.",
    applies=applies,
    space=lambda facts: tuple({"factor": factor} for factor in FACTORS),
    moment=Moment.LIVE,
    apply=apply,
    edit=lambda settings: "# a measure: there is nothing to edit",
    costs="A step takes as long as one of a larger batch.",
    source="https://arxiv.org/abs/1812.06162",
)
