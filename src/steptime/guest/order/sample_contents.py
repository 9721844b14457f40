"""What the samples of a data set hold, without its transforms, for the search for leaks.

The data sets of all loaders are read at the end of a child that is thrown away, within a time.
Transforms are switched off there: a picture that is cropped by chance is the same picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from .row_digests import LABELS, digest, is_array, rows_of

TRANSFORMS = ("transform", "transforms", "augment", "augmentation")
MAX_SAMPLES = 20_000
LIMIT_S = 20.0
"""For all data sets together."""

MAX_DEPTH = 6


def innermost(torch: Any, dataset: Any) -> tuple[Any, list[int] | None]:
    """Return the data set inside subsets, and which of its samples are meant; None for all."""
    indices: list[int] | None = None
    for _ in range(MAX_DEPTH):
        if not isinstance(dataset, torch.utils.data.Subset):
            break
        own = [int(index) for index in dataset.indices]
        indices = own if indices is None else [own[index] for index in indices]
        dataset = dataset.dataset
    return dataset, indices


def read_contents(
    torch: Any, dataset: Any, *, until_s: float, clock: Callable[[], float] = perf_counter
) -> dict[str, Any]:
    """Return the digests of a data set's samples, and how many it has; it is changed."""
    base, indices = innermost(torch, dataset)
    for name in TRANSFORMS:
        if callable(getattr(base, name, None)) and name in vars(base):
            setattr(base, name, None)
    num = len(base) if indices is None else len(indices)
    found: list[str] = []
    for place in range(min(num, MAX_SAMPLES)):
        if clock() > until_s:
            break
        index = place if indices is None else indices[place]
        found.append(digest(parts_of(torch, inputs_of(base[index]))))
    first = 0 if indices is None else indices[0]
    again = digest(parts_of(torch, inputs_of(base[first])))
    return {"num": num, "digests": found, "is_same": found[:1] == [again]}


def inputs_of(sample: Any) -> Any:
    """Return a sample without its label."""
    if isinstance(sample, Mapping):
        return [value for name, value in sample.items() if name not in LABELS]
    if isinstance(sample, (list, tuple)) and len(sample) > 1:
        return list(sample[:-1])
    return sample


def parts_of(torch: Any, value: Any, depth: int = MAX_DEPTH) -> list[bytes]:
    """Return the bytes of all parts of a value, in their order."""
    if isinstance(value, torch.Tensor):
        return [str(tuple(value.shape)).encode(), *rows_of(torch, value.reshape(1, -1))]
    if is_array(value):
        return [str(value.shape).encode(), value.tobytes()]
    if isinstance(value, Mapping) and depth:
        value = list(value.values())
    if isinstance(value, (list, tuple)) and depth:
        return [part for one in value for part in parts_of(torch, one, depth - 1)]
    if hasattr(value, "tobytes") and hasattr(value, "size"):  # a picture of Pillow's
        return [str((value.mode, value.size)).encode(), value.tobytes()]
    return [value if isinstance(value, bytes) else repr(value).encode()]
