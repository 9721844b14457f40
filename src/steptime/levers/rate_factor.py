"""Each step is made with the script's own learning rate, times a factor.

It is the sweep that a changed training has to be compared by: with another optimizer or transform
the best rate is another, so both sides get the same rates to choose from. The factor is on the
groups for the time of a step alone: schedules and scripts that set rates see their own.

Source: Choi et al., On Empirical Comparisons of Optimizers for Deep Learning (arXiv 1910.05446).
"""

from __future__ import annotations

from ._rates import multiply_rates
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

FACTORS = (0.3, 3.0, 0.1, 10.0)
"""With 1, five points that lie half a decade apart; the nearest first."""


def applies(facts: Facts) -> str | None:
    """It applies wherever an optimizer of torch steps."""
    if facts.optimizers is not None and not facts.optimizers:
        return "No optimizer of torch was seen."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Put the factor on the rates before each step, and take it off after it."""
    factor = float(settings["factor"])
    return multiply_rates(session, lambda optimizer: factor)


LEVER = Lever(
    name="rate_factor",
    title="Multiply the learning rate of each step by a factor.",
    relieves=("BALANCED",),
    phases=("optimizer",),
    preserves=Preserves.NOTHING,
    when="An optimizer of torch steps. It changes the training, so it is not tried unless that is "
    "allowed, and not kept without proof over seeds.",
    applies=applies,
    space=lambda facts: tuple({"factor": factor} for factor in FACTORS),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: (
        f"optimizer = torch.optim.AdamW(parameters, lr={settings['factor']} * lr)"
    ),
    costs="Nothing in a step. A rate that is too high diverges.",
    source="https://arxiv.org/abs/1910.05446",
)
