"""Several batches of each loader are handed out as one, while a training goes on.

It is a measure, not a remedy, and in no list of levers: it can be switched on and off between two
steps, so that turns can be compared, and rates stay as they are. `steptime fit` uses it to see
whether a device computes more samples in a second where it gets more of them at once;
`larger_batch` is the lever for a training. Batches whose rows have several lengths are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

FACTORS = (2, 4)
"""The smaller change first."""

PLAIN = (str, bytes, int, float, bool, type(None))


def applies(facts: Facts) -> str | None:
    """It applies where loaders feed the training with batches that can be joined."""
    if facts.loaders is not None and not facts.loaders:
        return "No DataLoader fed the training, so it is not known how its batches are made."
    if any(one.neighbor_sampling for one in facts.loaders or ()):
        return "Batches of sampled neighbors cannot be joined."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Let the iterators of loaders take several batches at a time while gradients are on."""
    torch, factor = session.torch, int(settings["factor"])
    kind = torch.utils.data.dataloader._BaseDataLoaderIter
    following = kind.__next__

    @functools.wraps(following)
    def join_following(self: Any) -> Any:
        batches = [following(self)]
        if not torch.is_grad_enabled():
            return batches[0]
        while len(batches) < factor:
            try:
                batches.append(following(self))
            except StopIteration:
                break  # the rest of an epoch
        session.count("joined")
        return join(torch, batches) if len(batches) > 1 else batches[0]

    kind.__next__ = join_following

    def undo() -> None:
        if kind.__next__ is join_following:
            kind.__next__ = following

    return undo


def join(torch: Any, batches: list[Any]) -> Any:
    """Return batches as one, row behind row.

    Raises:
        ValueError: they hold something that has no rows, or rows of several lengths.
    """
    first = batches[0]
    if isinstance(first, torch.Tensor):
        try:
            return torch.cat(batches)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"these batches cannot be joined: {error}") from error
    if isinstance(first, Mapping):
        rows = {key: join(torch, [one[key] for one in batches]) for key in first}
        kind: Any = type(first)
        return kind(rows)
    if isinstance(first, (tuple, list)):
        if first and all(isinstance(one, PLAIN) for one in first):
            return type(first)(item for one in batches for item in one)
        items = [join(torch, list(column)) for column in zip(*batches, strict=True)]
        return first._make(items) if hasattr(first, "_make") else type(first)(items)
    if isinstance(first, PLAIN) and all(one == first for one in batches):
        return first
    raise ValueError(f"batches that hold {type(first).__name__} cannot be joined")


LEVER = Lever(
    name="joined_batches",
    title="Hand out several batches of each loader as one.",
    relieves=("HOST_BOUND", "COMPUTE_BOUND", "COMMUNICATION_BOUND"),
    phases=("forward", "forward_and_loss", "loss", "backward", "optimizer"),
    preserves=Preserves.NOTHING,
    when="A DataLoader feeds the training with tensors whose rows have one length, alone or in "
    "tuples, lists and dicts.",
    applies=applies,
    space=lambda facts: tuple({"factor": factor} for factor in FACTORS),
    moment=Moment.LIVE,
    apply=apply,
    edit=lambda settings: "# a measure: there is nothing to edit",
    costs="Memory for activations; each update is that of a larger batch.",
    source="https://arxiv.org/abs/1812.06162",
)
