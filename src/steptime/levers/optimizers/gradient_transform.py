"""Gradients are transformed between the backward and the update, before each step.

Seven transforms of one kind: subtract a mean, scale, or limit. The script's own optimizer then
steps with what they give; a scaler has unscaled and ranks have exchanged their gradients by then.

Source: Yun, ZNorm (arXiv 2408.01215) and Gradient Autoscaled Normalization (2509.03677); Yong et
al., Gradient Centralization (2004.01461); Brock et al., adaptive clipping (2102.06171).
"""

from __future__ import annotations

from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from . import gradient_transforms as transforms

MADE = {
    "centralize": transforms.Centralize,
    "clip_norm": transforms.ClipNorm,
    "clip_adaptive": transforms.ClipAdaptive,
    "unit_rms": transforms.UnitRms,
    "unit_norm": transforms.UnitNorm,
    "damped_znorm": transforms.DampedZNorm,
    "znorm": transforms.ZNorm,
}
"""The mildest change first; each with its own defaults."""

CLASSES = {name: kind.__name__ for name, kind in MADE.items()}


def applies(facts: Facts) -> str | None:
    """It applies wherever an optimizer of torch steps."""
    if facts.optimizers is not None and not facts.optimizers:
        return "No optimizer of torch was seen."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Transform the gradients of each optimizer before its step."""
    transform = MADE[str(settings["transform"])]()

    def act(optimizer: Any) -> None:
        transforms.transform_before_step(optimizer, (transform,))
        session.count("changed")

    return session.before_update(act)


LEVER = Lever(
    name="gradient_transform",
    title="Transform gradients before each update: centralize, scale or limit them.",
    relieves=("BALANCED",),
    phases=("gradient_processing", "optimizer"),
    preserves=Preserves.NOTHING,
    when="An optimizer of torch steps. It changes the training, so it is not tried unless that is "
    "allowed, and not kept without proof over seeds.",
    applies=applies,
    space=lambda facts: tuple({"transform": name} for name in MADE),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: (
        "from steptime.methods import gradients\n\n"
        f"gradients.attach(optimizer, gradients.{CLASSES[str(settings['transform'])]}())"
    ),
    costs="Each step reads and writes all gradients once more. Scaling by tensor changes the "
    "learning rate of each of them, so the rate has to be chosen again.",
    source="https://arxiv.org/abs/2408.01215",
)
