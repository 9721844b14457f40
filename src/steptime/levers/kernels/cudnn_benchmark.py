"""Lets cuDNN try its algorithms of a convolution, and take the fastest for each shape.

Without it, cuDNN chooses by a rule of thumb. What it chose is in a profile (`steptime run
--profile`): Winograd, FFT, implicit GEMM. Untested on a device.

Source: NVIDIA cuDNN, cudnnFindConvolutionForwardAlgorithm; PyTorch Performance Tuning Guide
(https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html).
"""

from __future__ import annotations

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device != "cuda":
        return f"It is for cuDNN on a CUDA device, and the model is on {facts.device}."
    if facts.uses_cudnn_benchmark:
        return "The script lets cuDNN try its algorithms already."
    if facts.has_convolution is False:
        return "The model convolves no images."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Turn torch's switch on; what it returns puts it back."""
    switches = session.torch.backends.cudnn
    before = switches.benchmark
    switches.benchmark = True
    return lambda: setattr(switches, "benchmark", before)


LEVER = Lever(
    name="cudnn_benchmark",
    title="Let cuDNN try its algorithms for each convolution, and take the fastest.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when="The model convolves images on a CUDA device, and the script has not turned it on.",
    applies=applies,
    moment=Moment.LIVE,
    apply=apply,
    edit=lambda settings: "torch.backends.cudnn.benchmark = True  # before training",
    costs="Each new shape is tried once, which takes time and memory: where sizes vary from step "
    "to step, it loses. Another run may choose another algorithm, and round in another way.",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
)
