"""What each sample of a source holds, as one number of 64 bits; and which cannot be read.

In: a `SampleSource`. Out: a `SampleDigests`. Two different samples of n have the same number with a
probability of at most n^2 / 2^65: once in 370,000 times for ten million samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from steptime.data.pictures import decode_picture
from steptime.data.source import Column, SampleSource, Values
from steptime.errors import DataError

BATCH = 256

LABEL_NAMES = ("label", "labels", "target", "targets", "class", "cls", "y")
"""Columns of these names hold the class; the others are what a model gets."""

KEY_NAMES = ("__key__", "key", "path", "file", "name", "id", "index")
"""Columns of these names say which sample it is; they are not part of what it holds."""


@dataclass(slots=True)
class SampleDigests:
    """The samples of one source.

    Attributes:
        digests: (n,) uint64, of what each sample holds without its label; 0 for one not read.
        labels: (n,) of each sample, as text; None where there is no label.
        unreadable: number and place of samples that could not be read, with the reason.
        num_samples: of the source; `digests` may be of the first ones alone.
    """

    digests: np.ndarray
    labels: list[str] | None
    num_samples: int
    unreadable: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all samples were looked at."""
        return len(self.digests) == self.num_samples


def digest_source(
    source: SampleSource,
    *,
    is_time_up: Callable[[], bool],
    see: Callable[[int, Mapping[str, Any]], None] | None = None,
    decoded: Collection[str] = (),
) -> SampleDigests:
    """Read a source from its first sample to its last, or until time is up.

    Args:
        source: what is read, some hundred samples at once; one at a time where one is damaged.
        is_time_up: asked between batches.
        see: gets the number and the columns of each sample that could be read.
        decoded: columns of pictures that are told apart by their pixels, as RGB.
    """
    label = label_column(source.columns)
    held = [one.name for one in source.columns if one.name != label]
    held = [name for name in held if name.lower() not in KEY_NAMES] or held
    found: list[int] = []
    labels: list[str] = []
    unreadable: list[tuple[int, str, str]] = []

    def take(first: int, values: Mapping[str, Values], num: int) -> None:
        for row in range(num):
            sample = {name: values[name][row] for name in values}
            parts = {name: _pixels(sample[name]) for name in decoded}
            found.append(digest_of([parts.get(name, sample[name]) for name in held]))
            labels.append("" if label is None else str(sample[label]))
            if see is not None:
                see(first + row, sample)

    for begin in range(0, len(source), BATCH):
        if is_time_up():
            break
        numbers = range(begin, min(begin + BATCH, len(source)))
        try:
            take(begin, source.read(numbers), len(numbers))
            continue
        except DataError:
            del found[begin:], labels[begin:]
        for number in numbers:
            try:
                take(number, source.read([number]), 1)
            except DataError as error:
                unreadable.append((number, source.place_of(number), str(error)))
                found.append(0)
                labels.append("")
    return SampleDigests(
        digests=np.array(found, dtype=np.uint64),
        labels=None if label is None else labels,
        num_samples=len(source),
        unreadable=unreadable,
    )


def _pixels(data: Any) -> Any:
    try:
        return None if data is None else decode_picture(data)
    except ValueError:
        return data  # it is told as not readable


def label_column(columns: Sequence[Column]) -> str | None:
    """Return the column that holds the class; None where none does."""
    names = {one.name.lower(): one.name for one in columns if one.kind in ("number", "text")}
    return next((names[name] for name in LABEL_NAMES if name in names), None)


def digest_of(values: Sequence[Any]) -> int:
    """Return the digest of a sample: dtype, shape and bytes of arrays, text and bytes as they are.

    Numbers are told apart by value alone, so that a copy in another format is the same sample.
    """
    found = blake2b(digest_size=8)
    for value in values:
        if isinstance(value, np.ndarray) and value.ndim:
            content = f"{value.dtype.str}{value.shape}".encode() + value.tobytes()
        elif isinstance(value, (bytes, bytearray, memoryview)):
            content = bytes(value)
        else:
            content = str(value).encode("utf-8", "surrogateescape")
        found.update(len(content).to_bytes(8, "little"))
        found.update(content)
    return int.from_bytes(found.digest(), "little") or 1
