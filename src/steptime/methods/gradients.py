"""Transforms of gradients as values that compose, for whoever writes the training.

    from steptime.methods import gradients

    gradients.attach(optimizer, gradients.Centralize(), gradients.ClipNorm(1.0))

or, between `loss.backward()` and `optimizer.step()`,

    gradients.transform_gradients(model.parameters(), gradients.ZNorm())

Under a GradScaler, call `scaler.unscale_(optimizer)` before the function; the hook of `attach` acts
on unscaled gradients in any case. The transforms are those of the lever `gradient_transform`.
"""

from steptime.levers.optimizers.gradient_transforms import (
    Centralize,
    ClipAdaptive,
    ClipNorm,
    ClipValue,
    DampedZNorm,
    GradTransform,
    UnitNorm,
    UnitRms,
    ZNorm,
    attach,
    transform_gradients,
)

__all__ = [
    "Centralize",
    "ClipAdaptive",
    "ClipNorm",
    "ClipValue",
    "DampedZNorm",
    "GradTransform",
    "UnitNorm",
    "UnitRms",
    "ZNorm",
    "attach",
    "transform_gradients",
]
