"""How a loader was made: its sampler, its size, the labels its data set keeps, and where it stands.

Plain attributes of torch's classes are read; no sample is.
"""

from __future__ import annotations

import os
from typing import Any

MAX_LABELS = 2_000_000
"""Labels that are written down; the test of an order needs fewer."""

MAX_DEPTH = 8

LABEL_NAMES = ("targets", "labels", "y")
"""Where torchvision's data sets, and most others, keep the labels of all samples."""


def nature_of(torch: Any, loader: Any) -> dict[str, Any]:
    """Return how a loader draws its samples."""
    data = torch.utils.data
    is_iterable = isinstance(loader.dataset, data.IterableDataset)
    sampler: Any = None if is_iterable else innermost_sampler(data, loader)
    distributed = data.distributed.DistributedSampler
    is_split = isinstance(sampler, distributed)
    return {
        "dataset": type(loader.dataset).__name__,
        "num_samples": length_of(loader.dataset),
        "batch_size": getattr(loader, "batch_size", None)
        or whole(getattr(loader.batch_sampler, "batch_size", None)),
        "num_workers": int(loader.num_workers),
        "drop_last": bool(
            getattr(loader, "drop_last", False) or getattr(loader.batch_sampler, "drop_last", False)
        ),
        "is_iterable": is_iterable,
        "sampler": None if sampler is None else type(sampler).__name__,
        "is_sequential": isinstance(sampler, data.SequentialSampler)
        or (is_split and not sampler.shuffle),
        "is_shuffled": isinstance(sampler, data.RandomSampler) or (is_split and sampler.shuffle),
        "is_replacing": bool(getattr(sampler, "replacement", False)),
        "is_distributed": is_split,
        "replicas": whole(getattr(sampler, "num_replicas", None)),
        "replica": whole(getattr(sampler, "rank", None)),
    }


def innermost_sampler(data: Any, loader: Any) -> Any:
    """Return the sampler that draws: inside torch's batch sampler and what others put around it."""
    sampler = loader.batch_sampler
    for _ in range(MAX_DEPTH):
        if sampler is None:
            break
        inner = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
        if inner is None:
            return sampler
        sampler = inner
    return loader.sampler


def epoch_of(torch: Any, loader: Any) -> int | None:
    """Return the epoch that a sampler was told; None for one that is not told."""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return None
    sampler = innermost_sampler(torch.utils.data, loader)
    return whole(getattr(sampler, "epoch", None))


def whole(value: Any) -> int | None:
    """Return a value if it is a whole number."""
    return value if type(value) is int else None


def length_of(one: Any) -> int | None:
    """Return the length of a data set or a sampler; None where it does not know it."""
    try:
        return len(one)
    except Exception:
        return None


def labels_of(torch: Any, dataset: Any, depth: int = MAX_DEPTH) -> list[int] | None:
    """Return the labels of all samples, by index, where the data set keeps them; else None."""
    data = torch.utils.data
    found: Any = None
    if not depth:
        return None
    if isinstance(dataset, data.Subset):
        inner = labels_of(torch, dataset.dataset, depth - 1)
        found = None if inner is None else [inner[int(i)] for i in dataset.indices]
    elif isinstance(dataset, data.ConcatDataset):
        parts = [labels_of(torch, one, depth - 1) for one in dataset.datasets]
        found = None if None in parts else [label for part in parts for label in part or ()]
    elif isinstance(dataset, data.TensorDataset):
        found = dataset.tensors[-1] if len(dataset.tensors) > 1 else None
    else:
        held = vars(dataset) if hasattr(dataset, "__dict__") else {}
        found = next((held[name] for name in LABEL_NAMES if name in held), None)
    return plain_labels(torch, found, length_of(dataset))


def plain_labels(torch: Any, found: Any, num: int | None) -> list[int] | None:
    """Return labels as whole numbers, if there is one for each sample."""
    if isinstance(found, torch.Tensor):
        is_plain = found.dim() == 1 and not (found.is_floating_point() or found.is_complex())
        found = found.tolist() if is_plain else None
    elif type(found).__module__ == "numpy" and hasattr(found, "tolist"):
        found = found.tolist()
    if not isinstance(found, (list, tuple)) or len(found) != num or len(found) > MAX_LABELS:
        return None
    numbers: dict[Any, int] = {}
    if not all(isinstance(one, (int, str)) for one in found):
        return None
    return [numbers.setdefault(one, len(numbers)) for one in found]


def place_of(frames: Any, frame: Any) -> list[Any] | None:
    """Return the user's innermost file and line among running frames; no frame is kept."""
    stack = frames.stack(frame)
    return [os.path.relpath(stack[-1].file), stack[-1].line] if stack else None
