"""What a sample in a batch holds, as a digest, and its label.

A batch is a collated structure of tensors, arrays and lists. A sample is a row of all of them.
Nothing of the script's is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

LABELS = ("labels", "label", "targets", "target", "y")
"""Names under which a batch holds its labels."""

DIGEST_BYTES = 8
"""Two different samples of n have one digest with a probability of at most n^2 / 2^65."""

MAX_DEPTH = 6


def leaves_of(torch: Any, value: Any, depth: int = MAX_DEPTH) -> Iterator[Any]:
    """Yield the tensors, the arrays and the lists of plain values in a batch, in its order."""
    if isinstance(value, torch.Tensor) or is_array(value):
        yield value
    elif isinstance(value, Mapping) and depth:
        for part in value.values():
            yield from leaves_of(torch, part, depth - 1)
    elif isinstance(value, (list, tuple)) and depth:
        if value and all(isinstance(one, (str, bytes, int, float)) for one in value):
            yield value
            return
        for part in value:
            yield from leaves_of(torch, part, depth - 1)


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy's, which may not be imported."""
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes")


def num_rows(leaf: Any) -> int | None:
    """Return how many samples a leaf holds; None for a single number."""
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return len(leaf)
    return int(shape[0]) if len(shape) else None


def rows_of(torch: Any, leaf: Any) -> list[bytes]:
    """Return the bytes of each row of a leaf."""
    if isinstance(leaf, torch.Tensor):
        flat = leaf.detach().cpu().contiguous().reshape(leaf.shape[0], -1)
        if not flat.numel():
            return [b""] * int(leaf.shape[0])
        return [row.tobytes() for row in flat.view(torch.uint8).numpy()]
    if is_array(leaf):
        return [row.tobytes() for row in leaf]
    return [one if isinstance(one, bytes) else repr(one).encode() for one in leaf]


def digest_rows(torch: Any, batch: Any) -> list[str] | None:
    """Return the digest of each sample of a batch; None where it cannot be taken apart."""
    leaves = list(leaves_of(torch, batch))
    sizes = {num_rows(leaf) for leaf in leaves}
    if len(sizes) != 1 or None in sizes:
        return None
    parts = [rows_of(torch, leaf) for leaf in leaves]
    return [digest(row) for row in zip(*parts)]


def digest(parts: Any) -> str:
    """Return the digest of a sample's parts, which are told apart by their lengths."""
    found = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def labels_in(torch: Any, batch: Any) -> list[int] | None:
    """Return the labels of the samples of a batch: one whole number each; None without any."""
    found: Any = None
    if isinstance(batch, Mapping):
        found = next((batch[name] for name in LABELS if name in batch), None)
    elif isinstance(batch, (list, tuple)) and len(batch) > 1:
        found = batch[-1]
    if not is_labels(torch, found):
        return None
    labels: list[int] = found.detach().cpu().tolist()
    return labels


def is_labels(torch: Any, value: Any) -> bool:
    """Return whether a value is a tensor of one whole number for each sample."""
    if not isinstance(value, torch.Tensor) or value.dim() != 1 or not len(value):
        return False
    return not (value.is_floating_point() or value.is_complex())
