"""Linear layers multiply in float8 or int8, forward and backward; weights stay as they are.

torchao does it: each tensor is scaled and rounded as it enters a product. Layers whose sides are
multiples of 16 are taken, but not the last one, which makes the logits, none that has hooks, and
none of a class of its own. It acts as the first call of a model begins, on the same parameters, so
the optimizer and the names in checkpoints stay.

Source: Micikevicius et al., FP8 Formats for Deep Learning (2022, arXiv 2209.05433); torchao,
`torchao.float8` and `torchao.prototype.quantized_training` (0.18).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

FIRST_DEVICE = {"float8": 89, "int8": 80}
"""Compute capabilities, times ten: the first with float8, and the first with bf16 beside int8."""

MULTIPLE = 16
"""Sides of a product must be multiples of this in float8."""

NEEDS = (
    "It needs torchao in the script's Python (`pip install torchao`) and a CUDA device: of compute "
    "capability 8.9 or later for float8, 8.0 or later for int8."
)


def applies(facts: Facts) -> str | None:
    """It applies to trainings in 16 bits on one CUDA device where torchao is."""
    if facts.device != "cuda" or facts.has_torchao is False:
        return NEEDS
    if facts.has_torchao is None or facts.capabilities is None:
        return "Whether torchao is there, and which device, was not observed."
    if not space(facts):
        return NEEDS
    if facts.world_size > 1:
        return "It has not been tried where several ranks train."
    if not is_in_16_bits(facts):
        return "Products are in float32: 16 bits (`autocast`) change less, and come first."
    return None


def is_in_16_bits(facts: Facts) -> bool:
    """Return whether products may be in 16 bits already; so it is where that is not known."""
    dtypes = facts.parameter_dtypes
    return facts.uses_autocast is not False or dtypes is None or set(dtypes) != {"float32"}


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the kinds of products that the device has, the stable one of torchao first."""
    found = [int(word[3:]) for word in facts.capabilities or () if word[:3] == "sm_"]
    kinds = [kind for kind, first in FIRST_DEVICE.items() if any(one >= first for one in found)]
    return tuple({"products": kind} for kind in kinds)


def apply(settings: Settings, session: Session) -> Undo:
    """Convert the linear layers of each model before its first call with gradients."""
    torch, convert = session.torch, converter(str(settings["products"]))

    def act(model: Any) -> None:
        taken = layers_to_take(torch, model)
        if not taken:
            session.count("left_alone")
            return
        convert(model, lambda module, name: module in taken)
        for _ in taken:
            session.count("quantized_layer")

    return session.for_each_model(act)


def layers_to_take(torch: Any, model: Any) -> set[Any]:
    """Return the linear layers inside a model whose products may be rounded."""
    layers = [one for one in model.modules() if type(one) is torch.nn.Linear]
    return {one for one in layers[:-1] if one is not model and is_plain(one)}


def is_plain(layer: Any) -> bool:
    """Return whether a layer has no hooks, and sides that a product in 8 bits takes."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    sides = (layer.in_features, layer.out_features)
    return not any(one % MULTIPLE for one in sides) and not any(getattr(layer, h) for h in hooks)


def converter(kind: str) -> Callable[[Any, Callable[[Any, str], bool]], Any]:
    """Return what puts torchao's layers into a model, where a filter says so.

    Raises:
        ModuleNotFoundError: torchao is not there; the message says what to install.
    """
    try:
        if kind == "float8":
            float8 = import_module("torchao.float8")
            # Rows are samples or tokens, of whatever number; that side is filled up with zeros.
            config = float8.Float8LinearConfig(pad_inner_dim=True)
            return lambda model, takes: float8.convert_to_float8_training(
                model, module_filter_fn=takes, config=config
            )
        quantize = import_module("torchao.quantization").quantize_
        training = import_module("torchao.prototype.quantized_training")
        scheme = training.Int8MixedPrecisionTrainingConfig(module_swap=True)
        return lambda model, takes: quantize(model, scheme, filter_fn=takes)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NEEDS) from error


def edit(settings: Settings) -> str:
    """Return the line that does it in the script, before `torch.compile`."""
    if settings["products"] == "float8":
        return "torchao.float8.convert_to_float8_training(model, module_filter_fn=is_large)"
    return (
        "from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingConfig\n"
        "quantize_(model, Int8MixedPrecisionTrainingConfig(module_swap=True))"
    )


LEVER = Lever(
    name="quantized_training",
    title="Multiply in float8 or int8 in linear layers (torchao), forward and backward.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NOTHING,
    when="The training computes in 16 bits on one CUDA device, of compute capability 8.9 or later "
    "for float8 and 8.0 or later for int8, and its Python has torchao. It changes the training, "
    "so it is not tried unless that is allowed, and not kept without proof over seeds.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    apply=apply,
    edit=edit,
    costs="It has not been run on a device by us, only its rounding on a CPU. Faster only for "
    "large layers (torchao names 4096 rows and sides of 8192 as a gain, 1024 and 2048 as a loss) "
    "in a compiled model, where scaling is fused. int8 is a prototype of torchao.",
    source="https://docs.pytorch.org/ao/stable/api_reference/api_ref_float8.html",
)
