"""Plans a conversion from a sample of the data: the target's columns, and how large a shard is.

In: a source, a treatment. Out: the sample, as it is and as it would be stored, and the
plan. A shape that all of the sample have is taken for everybody's; a conversion that meets another
one begins again with a column that varies.
"""

from __future__ import annotations

import dataclasses
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steptime.data.convert.conversion_journal import ConversionPlan
from steptime.data.convert.prepared_writer import Batch
from steptime.data.convert.treatment import Treatment, can_be_fast, treat
from steptime.data.prepared.layout import Origin, PreparedColumn
from steptime.data.source import Column, SampleSource
from steptime.errors import DataError

SHARD_BYTES = 64 << 20
"""Lost at most by a kill; large enough for a disk to write at its rate."""

SMALL_SHARD_BYTES, SMALL_SHARDS = 8 << 20, 8
"""Of little data: several shards, so that the disk works while the next one is made."""

DAMAGED = "`steptime data check` finds all such files: restore them, or leave them out."

_SAMPLE_BYTES = 32 << 20
_SAMPLE_S = 2.0
_MIN_SAMPLED, _MAX_SAMPLED = 32, 2048
_CHUNK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenSample:
    """Some samples, drawn at random.

    Attributes:
        indices: their numbers.
        stored: by column, the values that the target would hold.
        convert_s: reading and converting took so long, of one thread [s].
        is_fast: the faster decoder gave what Pillow gives.
    """

    indices: list[int]
    stored: dict[str, list[Any]]
    convert_s: float
    is_fast: bool


def take_sample(
    source: SampleSource,
    treatment: Treatment,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> TakenSample:
    """Read some samples, drawn at random, and treat them, for at most some seconds and megabytes.

    Raises:
        DataError: there are none, or one cannot be read or converted.
    """
    if len(source) == 0:
        raise DataError("the source has no samples.")
    drawn = random.Random(0).sample(range(len(source)), min(len(source), _MAX_SAMPLED))
    images = [column.name for column in source.columns if column.kind == "image"]
    stored: dict[str, list[Any]] = {column.name: [] for column in source.columns}
    is_fast, size, started = True, 0, clock()
    taken: list[int] = []
    for at in range(0, len(drawn), _CHUNK):
        chunk = drawn[at : at + _CHUNK]
        batch = {name: list(values) for name, values in source.read(chunk).items()}
        if at == 0 and not treatment.keeps_bytes:
            is_fast = can_be_fast([data for name in images for data in batch[name]])
        for name in images:
            batch[name] = _treated(source, treatment, chunk, batch[name], is_fast=is_fast)
        for name, values in batch.items():
            stored[name] += values
            size += sum(map(size_of, values))
        taken += chunk
        is_enough = size > _SAMPLE_BYTES or clock() - started > _SAMPLE_S
        if is_enough and len(taken) >= _MIN_SAMPLED:
            break
    return TakenSample(indices=taken, stored=stored, convert_s=clock() - started, is_fast=is_fast)


def _treated(
    source: SampleSource,
    treatment: Treatment,
    indices: Sequence[int],
    values: list[Any],
    *,
    is_fast: bool,
) -> list[Any]:
    found = []
    for index, value in zip(indices, values, strict=True):
        try:
            found.append(treat(value, treatment, is_fast=is_fast))
        except (ValueError, TypeError) as error:
            where = source.place_of(index)
            raise DataError(f"{where} cannot be converted: {error}", hint=DAMAGED) from error
    return found


def size_of(value: Any) -> int:
    """Return the bytes of one value as it is stored; those of a number are taken as 8."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    return len(value) if isinstance(value, (bytes, str)) else 8


def make_plan(
    source: SampleSource,
    place: str,
    treatment: Treatment,
    sample: TakenSample,
    *,
    shard_bytes: int | None = None,
) -> ConversionPlan:
    """Return what is to be made.

    Args:
        source: what is read.
        place: where it is, for a person.
        treatment: what is done to pictures.
        sample: of the source.
        shard_bytes: about so large is a shard; None for the usual size.
    """
    columns = tuple(
        _target_column(number, column, sample.stored[column.name], treatment)
        for number, column in enumerate(source.columns)
    )
    total = sum(size_of(value) for values in sample.stored.values() for value in values)
    row_bytes = max(1, total // len(sample.indices))
    if shard_bytes is None:
        few = row_bytes * len(source) // SMALL_SHARDS
        shard_bytes = min(SHARD_BYTES, max(SMALL_SHARD_BYTES, few))
    return ConversionPlan(
        origin=Origin(
            name=source.name,
            place=place,
            num_bytes=source.num_bytes,
            fingerprint=getattr(source, "fingerprint", None),
        ),
        num_samples=len(source),
        columns=columns,
        rows_per_shard=max(1, min(shard_bytes // row_bytes, len(source))),
        treatment=treatment.words,
        is_fast=sample.is_fast,
    )


def _target_column(
    number: int, column: Column, values: list[Any], treatment: Treatment
) -> PreparedColumn:
    if column.kind == "image" and treatment.decode:
        column = column._replace(kind="array", dtype="uint8", shape=None)
    if column.kind in ("text", "bytes", "image"):
        return PreparedColumn(name=column.name, kind=column.kind)
    shapes = {np.shape(value) for value in values}
    is_fixed = len(shapes) == 1 and not any(value is None for value in values)
    return PreparedColumn(
        name=column.name,
        kind=column.kind,
        dtype=column.dtype or np.asarray(values[0]).dtype.name,
        shape=shapes.pop() if is_fixed else None,
        file=f"{number:02}-{_plain(column.name)}.npy" if is_fixed else None,
        classes=column.classes,
    )


def with_varying_shapes(plan: ConversionPlan, name: str) -> ConversionPlan:
    """Return the plan with a column whose shape varies after all."""
    columns = tuple(
        dataclasses.replace(c, shape=None, file=None) if c.name == name else c for c in plan.columns
    )
    return dataclasses.replace(plan, columns=columns)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]


def as_batch(columns: Sequence[PreparedColumn], stored: dict[str, list[Any]]) -> Batch:
    """Return stored values as a writer takes them."""
    batch: dict[str, Any] = {
        column.name: np.array(stored[column.name], column.dtype)
        if column.shape is not None
        else stored[column.name]
        for column in columns
    }
    return batch
