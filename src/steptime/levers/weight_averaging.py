"""Evaluation reads a running average of the weights; the training goes on with its own.

The average is moved after each step. When a model goes to evaluation (`model.eval()`) its weights
and the statistics of its batch norms change places with their averages, and when it comes back
(`model.train()`), or is called with gradients, its own are put back, bit for bit. So the steps are
those of the script; what it evaluates, and what it saves meanwhile, is the average. An average is
often as good as weights whose rate has fallen further: the gain is a training that ends sooner.

Source: Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging (1992); Izmailov
et al., Averaging Weights Leads to Wider Optima (2018, arXiv 1803.05407); torch.optim.swa_utils.
"""

from __future__ import annotations

from typing import Any

from ._averages import Averages
from ._module_modes import Evaluations
from ._versions import is_before
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

DECAYS = (0.99, 0.999, 0.9999)
"""The shortest memory first: about 100, 1000 and 10,000 steps."""

FIRST_TORCH = (2, 1)
"""The first whose swa_utils update all averages at once."""


def applies(facts: Facts) -> str | None:
    """It applies wherever an optimizer of torch steps."""
    if facts.optimizers is not None and not facts.optimizers:
        return "No optimizer of torch was seen."
    if is_before(facts.torch_version, FIRST_TORCH):
        return "Torch averages many weights at once from 2.1 on."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Average after each step, and exchange where models go to evaluation and come back."""
    averages = Averages(session.torch, float(settings["decay"]))
    handles = []

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        averages.after_step(optimizer)

    def follow(optimizer: Any) -> None:
        handles.append(optimizer.register_step_post_hook(after))
        session.count("changed")

    evaluations = Evaluations(
        session, holds=averages.covers, enter=averages.put_in, leave=averages.put_back
    )
    undos = [
        evaluations.watch(),
        session.for_each_model(averages.add_model),
        session.for_each_optimizer(follow),
    ]

    def undo() -> None:
        for take_back in (*undos, *(handle.remove for handle in handles)):
            take_back()

    return undo


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    return (
        "from torch.optim import swa_utils\n\n"
        "average = swa_utils.AveragedModel(\n"
        f"    model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn({settings['decay']}), "
        "use_buffers=True\n"
        ")\n"
        "average.update_parameters(model)  # after each optimizer.step()\n"
        "evaluate(average)  # in the place of the model"
    )


LEVER = Lever(
    name="weight_averaging",
    title="Evaluate a running average of the weights, while the training goes on with its own.",
    relieves=("BALANCED",),
    phases=("optimizer", "evaluation"),
    preserves=Preserves.NOTHING,
    when="An optimizer of torch steps, and the script calls `eval()` and `train()` of its model, "
    "and evaluates without gradients. It changes what is evaluated, so it is not tried unless that "
    "is allowed, and not kept without proof over seeds.",
    applies=applies,
    space=lambda facts: tuple({"decay": decay} for decay in DECAYS),
    moment=Moment.STARTUP,
    apply=apply,
    edit=edit,
    costs="A copy of all weights, and one read of them a step. A script that evaluates without "
    "`eval()`, or with gradients, evaluates its own weights. What is saved between `eval()` and "
    "`train()` are averages, and a training that goes on from them begins there.",
    source="https://arxiv.org/abs/1803.05407",
)
