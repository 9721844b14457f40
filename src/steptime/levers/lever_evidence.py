"""What our own levers gave in trainings: published figures, and ours, bad ones too.

In: a lever. Out: its `LeverEvidence`. It stands apart from the levers' files because the guest
loads those inside the training, and needs none of it. The reference of the levers shows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.levers.base import Lever, LeverEvidence


def evidence_of(lever: Lever) -> tuple[LeverEvidence, ...]:
    """Return what the lever declares itself, then what stands here."""
    return *lever.evidence, *EVIDENCE.get(lever.name, ())


def _tried(
    training: str,
    speedup: float,
    low: float | None = None,
    high: float | None = None,
    *,
    remark: str = "",
) -> LeverEvidence:
    """Return a figure of ours: CPU time of one thread, with the range of its rounds."""
    return LeverEvidence(
        training=training,
        speedup=speedup,
        low=low,
        high=high,
        remark=remark,
        source=_SMALL_MODELS,
    )


_SMALL_MODELS = "docs/explanation/tried.md#small-models-on-one-thread"
GPT = "GPT, 6 layers of 384, batches of 2 x 256"
RESNET = "ResNet-18 at half width, batches of 32 x 32 x 32"
MLP = "MLP, 100-512-512-512-2, batches of 512"
LSTM = "LSTM, 2 layers of 128, batches of 32 x 64"

_FUSED = "benchmarks/results/fused_levers.json"


def _fused(
    training: str, speedup: float, low: float, high: float, *, remark: str = ""
) -> LeverEvidence:
    """Return a figure of ours: CPU time of one thread, with the quartiles of its rounds."""
    figures = {"speedup": speedup, "low": low, "high": high}
    return LeverEvidence(training=training, source=_FUSED, remark=remark, **figures)


WRITTEN = "language model with attention written out, 2 layers of 128"
LOOP = "language model with a loop over an LSTMCell of 128"

EVIDENCE: Mapping[str, tuple[LeverEvidence, ...]] = {
    "fused_attention": (
        LeverEvidence(
            training="GPT-2 on texts of 1,024 tokens",
            speedup=3.0,
            remark="A GPU, beside the implementation of Hugging Face of 2022.",
            source="https://arxiv.org/abs/2205.14135",
        ),
        _fused(f"{WRITTEN}, batches of 4 x 512", 1.86, 1.74, 1.99),
        _fused(f"{WRITTEN}, batches of 8 x 256", 1.36, 1.32, 1.45),
        _fused(f"{WRITTEN}, batches of 16 x 128", 1.19, 1.16, 1.25),
        _fused(f"{WRITTEN}, batches of 128 x 16", 0.96, 0.95, 1.00),
        _fused(f"{WRITTEN}, batches of 4 x 16", 0.91, 0.88, 0.92),
    ),
    "fused_rnn": (
        _fused(f"{LOOP}, batches of 4 x 64", 3.00, 2.88, 3.05),
        _fused(f"{LOOP}, batches of 32 x 64", 1.68, 1.65, 1.72),
        _fused(f"{LOOP}, batches of 256 x 8", 1.16, 1.14, 1.18),
        _fused(f"{LOOP}, batches of 32 x 64", 0.96, 0.95, 1.03, remark="States are used at once."),
    ),
    "fused_optimizer": (
        _tried(GPT, 1.12, 1.10, 1.15, remark="Fused."),
        _tried(MLP, 1.11, 1.09, 1.12, remark="Fused."),
        _tried(LSTM, 1.03, remark="Fused."),
        _tried(RESNET, 1.00, remark="Fused."),
        _tried(GPT, 0.98, remark="Foreach."),
        _tried(MLP, 1.00, remark="Foreach."),
        _tried(LSTM, 0.96, remark="Foreach."),
    ),
}
"""LeverEvidence by the name of the lever."""
