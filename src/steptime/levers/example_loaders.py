"""Example loaders, for `examples.py`."""

from __future__ import annotations

import dataclasses

from steptime.levers.base import LoaderFacts, PaddingFacts

LOADER = LoaderFacts(dataset="ImageFolder", batch_size=32, num_samples=50_000)
ROWS = LoaderFacts(
    dataset="TensorDataset",
    batch_size=32,
    num_samples=50_000,
    sample_bytes=4096,
    is_tensor_dataset=True,
    is_deterministic=True,
    is_collate_deterministic=True,
)
FILES = LoaderFacts(
    dataset="ImageFolder",
    batch_size=32,
    num_samples=1000,
    sample_bytes=200_000,
    sample_s=0.005,
    kept_bytes=200_100,
    saved_s=0.005,
    is_pure=True,
    is_deterministic=True,
    is_collate_deterministic=True,
    joins_rows=True,
    decodes_jpeg=True,
    decodes_png=False,
    prepared="/data/photos.prepared",
)
NEIGHBORS = LoaderFacts(
    dataset="range", batch_size=1024, num_samples=150_000, neighbor_sampling="fusable"
)
PLAIN = dataclasses.replace(LOADER, neighbor_sampling="")
DIGITS = dataclasses.replace(ROWS, dataset="MNIST", is_tensor_dataset=False, is_in_memory=True)

TEXTS = LoaderFacts(
    dataset="Texts",
    batch_size=32,
    num_samples=20_000,
    sample_bytes=2048,
    is_deterministic=True,
    is_collate_deterministic=True,
    is_shuffled=True,
    lengths_from="rows",
    prepared="",
    padding=PaddingFacts(
        num_batches=16,
        side="right",
        useful_fraction=0.3,
        longest_fraction=0.7,
        grouped_fraction=0.35,
        is_fixed=True,
    ),
)
