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

EVIDENCE: Mapping[str, tuple[LeverEvidence, ...]] = {
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
