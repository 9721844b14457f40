"""Computes the activations of a transformer's training in closed form.

In: sizes, and the number of hidden-state-sized tensors that a layer keeps. Out: bytes on one
device, without any parallelism. What a model of any kind takes is measured, not computed here.

Source: stas00/ml-engineering, training/performance, "Anatomy of model's memory usage".
"""

from __future__ import annotations

from dataclasses import dataclass

HIDDEN_COPIES = {
    "SmolLM2-360M": 24.0,
    "Llama-3.1-8B": 28.0,
    "Mistral-7B": 28.0,
    "DeepSeek-R1-Qwen3-8B": 29.8,
    "Qwen3-4B": 38.0,
    "gemma-1.1-2b": 48.0,
}
"""Measured hidden-state-sized tensors that one layer holds, by model, as the source has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerActivations:
    """The sizes that activations depend on.

    Attributes:
        layers: number of blocks.
        hidden: width of the model.
        seq: tokens of a sequence.
        micro_batch: sequences of a micro-batch.
        vocab: rows of the embedding.
        copies: hidden-state-sized tensors that a layer holds; see `HIDDEN_COPIES`.
        dtype_bytes: bytes of one element.
    """

    layers: int
    hidden: int
    seq: int
    micro_batch: int
    vocab: int
    copies: float
    dtype_bytes: int = 2

    @property
    def hidden_bytes(self) -> float:
        """The bytes of one hidden state (micro-batch, seq, hidden)."""
        return float(self.dtype_bytes * self.micro_batch * self.seq * self.hidden)

    @property
    def layer_bytes(self) -> float:
        """The bytes that the forward of one layer holds."""
        return self.copies * self.hidden_bytes

    @property
    def checkpoint_bytes(self) -> float:
        """The bytes that checkpointing keeps: the input of every layer."""
        return self.layers * self.hidden_bytes

    @property
    def logits_bytes(self) -> float:
        """The bytes of the logits in fp32."""
        return 4.0 * self.micro_batch * self.seq * self.vocab

    @property
    def logits_peak_bytes(self) -> float:
        """The bytes of the logits while their half copy is alive, too."""
        return 6.0 * self.micro_batch * self.seq * self.vocab

    @property
    def checkpointed_bytes(self) -> float:
        """All activations with checkpointing: one layer, the checkpoints, and the logits."""
        return self.layer_bytes + self.checkpoint_bytes + self.logits_bytes

    @property
    def whole_bytes(self) -> float:
        """All activations without checkpointing: every layer, and the logits."""
        return self.layers * self.layer_bytes + self.logits_bytes
