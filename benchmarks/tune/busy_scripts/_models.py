"""The models of the scripts of busy_studies.py."""

from __future__ import annotations

import torch
from torch import nn


def transformer(layers: int, width: int, vocabulary: int = 512) -> nn.Module:
    """A small language model without dropout."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    return nn.Sequential(
        nn.Embedding(vocabulary, width),
        nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
        nn.Linear(width, vocabulary),
    )


def text(number: int, batch: int, length: int) -> torch.Tensor:
    """The batch of a step, the same in each process."""
    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, 512, (batch, length + 1), generator=generator)
