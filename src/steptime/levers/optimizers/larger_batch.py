"""Batches of several times the size, with a learning rate to match, and fewer steps an epoch.

The order of the samples stays. A loader that shuffles is changed when it is made, so that its
length is the new one from the start; any other when it is first iterated with gradients on, as it
may feed an evaluation. Schedules and the script's own rates stay: the factor is on them for the
time of a step alone. SGD's rate grows with the batch, that of adaptive optimizers with its root.

Source: Goyal et al., Accurate, Large Minibatch SGD (arXiv 1706.02677), the linear rule; Malladi et
al., On the SDEs and Scaling Rules for Adaptive Gradient Algorithms (arXiv 2205.10287), the root.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..lengths.grouping import is_shuffled
from .larger_batches import Enlarger
from .rates import multiply_rates

TIMES = (2, 4)
LEAST_STEPS = 8
"""Steps an epoch that must remain: schedules by epoch would have too few of them to follow."""
LINEAR = ("SGD", "ASGD")
"""Optimizers whose update is as large as the gradient; others divide by its size."""


def applies(facts: Facts) -> str | None:
    """It applies where torch's own DataLoader makes the batches."""
    if facts.loaders is None:
        return None  # each loader is asked
    if not facts.loaders:
        return "No DataLoader fed the training."
    if all(loader.batch_size is None for loader in facts.loaders):
        return "The script's own batch sampler makes the batches, so their size is the script's."
    if not space(facts):
        return f"Twice the batch would leave fewer than {LEAST_STEPS} steps an epoch."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return how many times the batch may be, with enough steps an epoch left."""
    sized = [one for one in facts.loaders or () if one.batch_size is not None]
    return tuple(
        {"times": times}
        for times in TIMES
        if all(
            one.num_samples is None
            or one.num_samples >= LEAST_STEPS * times * (one.batch_size or 1) * facts.world_size
            for one in sized
        )
    )


def rate_factor(name: str, times: int) -> float:
    """Return what the rate is multiplied by, for an optimizer of this class."""
    return float(times) if name in LINEAR else math.sqrt(times)


def apply(settings: Settings, session: Session) -> Undo:
    """Change the loaders of the training, and the rates of optimizers once one was changed."""
    torch, times = session.torch, int(settings["times"])
    loader_class = torch.utils.data.DataLoader
    make, iterate = loader_class.__init__, loader_class.__iter__
    larger = Enlarger(torch, times, session.count)

    @functools.wraps(make)
    def make_and_enlarge(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if is_shuffled(torch, self):
            larger.enlarge(self)

    def enlarge_and_iterate(self: Any) -> Any:
        if torch.is_grad_enabled():
            larger.enlarge(self)
        return iterate(self)

    def factor_of(optimizer: Any) -> float:
        return rate_factor(type(optimizer).__name__, times) if larger.changed else 1.0

    stop = multiply_rates(session, factor_of)
    loader_class.__init__, loader_class.__iter__ = make_and_enlarge, enlarge_and_iterate

    def undo() -> None:
        loader_class.__init__, loader_class.__iter__ = make, iterate
        larger.put_back()
        stop()

    return undo


def edit(settings: Settings) -> str:
    """Return the two lines."""
    times = int(settings["times"])
    return (
        f"loader = DataLoader(..., batch_size={times} * batch_size)\n"
        f"optimizer = torch.optim.SGD(parameters, lr={times} * lr)"
        f"  # an adaptive one, as AdamW: lr={rate_factor('AdamW', times):.4g} * lr"
    )


LEVER = Lever(
    name="larger_batch",
    title="Train on batches of several times the size, with the learning rate scaled to match.",
    relieves=("HOST_BOUND", "COMMUNICATION_BOUND", "BALANCED"),
    phases=("forward", "loss", "forward_and_loss", "backward", "communication", "optimizer"),
    preserves=Preserves.NOTHING,
    when="Torch's DataLoader makes the batches, and an epoch keeps 8 steps and more. It changes "
    "the training, so it is not tried unless that is allowed, and not kept without proof over "
    "seeds.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    apply=apply,
    edit=edit,
    costs="An epoch has fewer steps. A loop that counts steps instead makes as many as before, so "
    "it trains on several times the samples; schedules that count them stretch too. Activations "
    "take more memory, and a model that is made for one batch size fails.",
    source="https://arxiv.org/abs/1706.02677",
)
