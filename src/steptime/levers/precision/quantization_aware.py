"""Convolutions and linear layers train as they compute once they are in bytes.

Weights are rounded to signed bytes with a scale for each output channel, and inputs to bytes with
one scale, which follows what was seen. Gradients pass the rounding as if it were not there. The
parameters, their names in checkpoints and the optimizer stay; `steptime quantize` then takes the
checkpoint. Batch normalization only scales output channels, so folding it later changes no byte.

Source: B. Jacob et al., CVPR 2018, section 3; Y. Bengio, N. Léonard, A. Courville, arXiv 1308.3432.
"""

from __future__ import annotations

from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

MOST_WEIGHT, MOST_BYTE = 127, 255
NUM_CALIBRATED = 50
"""Calls of a layer in which ranges are taken and its input stays as it is."""

FOLLOWED = 0.99
"""How much of the range before stays with each call."""


def applies(facts: Facts) -> str | None:
    """It applies where a script trains in torch."""
    if facts.num_parameters == 0:
        return "No parameters of torch were seen."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Round what the layers of each model compute with, in training alone."""
    torch, undos = session.torch, list[Undo]()

    def act(model: Any) -> None:
        for layer in model.modules():
            if is_plain(torch, layer):
                undos.append(round_layer(torch, layer))
                session.count("rounded_layer")

    stop = session.for_each_model(act)

    def undo() -> None:
        stop()
        for each in undos:
            each()

    return undo


def is_plain(torch: Any, layer: Any) -> bool:
    """Return whether a layer is one of torch's own, with a forward of its class."""
    kinds = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d)
    return type(layer) in kinds and "forward" not in vars(layer)


def round_layer(torch: Any, layer: Any) -> Undo:
    """Let a layer compute with rounded numbers while it trains; return what ends that."""
    follower = RangeFollower()
    is_linear = type(layer) is torch.nn.Linear

    def forward(given: Any) -> Any:
        if not layer.training:
            return type(layer).forward(layer, given)
        weight, rounded = rounded_weight(torch, layer.weight), follower.rounded(torch, given)
        if is_linear:
            return torch.nn.functional.linear(rounded, weight, layer.bias)
        return layer._conv_forward(rounded, weight, layer.bias)

    layer.forward = forward

    def undo() -> None:
        vars(layer).pop("forward", None)

    return undo


def rounded_weight(torch: Any, weight: Any) -> Any:
    """Return a weight (num_outputs, ...) as bytes show it; its gradient is that of the weight."""
    with torch.no_grad():
        most = weight.abs().amax(dim=tuple(range(1, weight.dim())), keepdim=True)
        scale = torch.where(most > 0, most, 1.0) / MOST_WEIGHT
        error = torch.round(weight / scale) * scale - weight
    return weight + error


class RangeFollower:
    """Follows between which numbers the input of a layer lies, and rounds it to bytes there."""

    def __init__(self) -> None:
        self.ends: Any = None
        self.num_seen = 0

    def rounded(self, torch: Any, given: Any) -> Any:
        """Return the input as bytes show it; outside of the range its gradient is 0."""
        with torch.no_grad():
            found = torch.stack([given.min(), given.max()]).float()
            found = torch.stack([found[0].clamp(max=0), found[1].clamp(min=0)])
            before = found if self.ends is None else self.ends
            self.ends = FOLLOWED * before + (1 - FOLLOWED) * found
        self.num_seen += 1
        if self.num_seen <= NUM_CALIBRATED:
            return given
        low, high = self.ends
        inside = torch.minimum(torch.maximum(given, low), high)
        with torch.no_grad():
            scale = (high - low).clamp(min=1e-12) / MOST_BYTE
            zero = torch.round(-low / scale)
            error = (torch.round(inside / scale + zero) - zero) * scale - inside
        return inside + error.to(given.dtype)


LEVER = Lever(
    name="quantization_aware",
    title="Train with weights and activations rounded to bytes, for a network of bytes afterwards.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "forward_and_loss"),
    preserves=Preserves.NOTHING,
    when="A model of torch trains, and is meant for `steptime quantize`. It makes no step faster, "
    "so it is put into a recipe by hand: it changes the training.",
    applies=applies,
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: "steptime run --recipe rounded.toml -- python train.py",
    costs="Each layer rounds its weight and its input once more in each step.",
    source="https://arxiv.org/abs/1712.05877",
)
