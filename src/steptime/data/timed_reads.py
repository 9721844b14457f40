"""Times how batches of a source are made: read, decoded, joined; with their bytes cached, and cold.

In: a source and the files that it reads. Out: `ReadTimes`. The same batches, in a shuffled order,
are read three times: once untimed, once with their bytes in the page cache, once after the files
were dropped from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steptime.data.source import SampleSource, Values
from steptime.errors import DataError

MAX_FILES = 100_000
PART_NAMES = ("fetch", "decode", "collate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTimes:
    """What batches of a source cost.

    Attributes:
        num_batches: that were timed.
        num_samples: that they hold.
        wall_s: wall time by part, `fetch`, `decode` and `collate`, of each batch [s].
        cpu_s: CPU time by part over all batches [s], of all threads.
        cold_s: wall time by part over all batches with their bytes dropped from the page cache [s];
            None where that could not be.
        cold_missing: machine word of the reason for that.
        first_s: until the first batch was there [s], which is not timed otherwise.
    """

    num_batches: int
    num_samples: int
    wall_s: Sequence[Mapping[str, float]]
    cpu_s: Mapping[str, float]
    first_s: float
    cold_s: Mapping[str, float] | None = None
    cold_missing: str | None = None


@dataclass
class _Clock:
    """Wall and CPU time by part, of one batch after another."""

    wall_s: list[dict[str, float]] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PART_NAMES, 0.0))

    def take(self, part: str, act: Callable[[], Any]) -> Any:
        """Do a part of the newest batch, timed."""
        began, cpu = time.perf_counter(), time.process_time()
        found = act()
        self.wall_s[-1][part] = time.perf_counter() - began
        self.cpu_s[part] += time.process_time() - cpu
        return found


def time_reads(
    source: SampleSource, *, files: Iterable[Path], batch_size: int, seconds: float
) -> ReadTimes:
    """Read batches of a source in a shuffled order, and time their parts.

    Args:
        source: not empty.
        files: that it reads; empty where they are not on this machine.
        batch_size: samples of a batch.
        seconds: how long the untimed pass reads; the others read the same batches.

    Raises:
        DataError: the source is empty, or a sample cannot be read or decoded.
        MissingExtraError: pictures cannot be decoded without a package.
    """
    if not len(source):
        raise DataError(f"the {source.name} holds no samples.")
    order = np.random.default_rng(0).permutation(len(source))
    batches = [order[at : at + batch_size] for at in range(0, len(order), batch_size)]
    first_s, num = _warm_up(source, batches, seconds)
    cached = _pass(source, batches[:num])
    cold, why = _cold_pass(source, batches[:num], files)
    return ReadTimes(
        num_batches=num,
        num_samples=sum(map(len, batches[:num])),
        wall_s=cached.wall_s,
        cpu_s=cached.cpu_s,
        first_s=first_s,
        cold_s=None if cold is None else _totals(cold),
        cold_missing=why,
    )


def _warm_up(source: SampleSource, batches: Sequence[Any], seconds: float) -> tuple[float, int]:
    """Read untimed; return the time to the first batch, and how many there was time for."""
    began, ends_s = time.perf_counter(), list[float]()
    for indices in batches:
        _make_batch(source, indices, _Clock())
        ends_s.append(time.perf_counter() - began)
        if ends_s[-1] > seconds:
            break
    return ends_s[0], len(ends_s)


def _pass(source: SampleSource, batches: Sequence[Any]) -> _Clock:
    clock = _Clock()
    for indices in batches:
        _make_batch(source, indices, clock)
    return clock


def _cold_pass(
    source: SampleSource, batches: Sequence[Any], files: Iterable[Path]
) -> tuple[_Clock | None, str | None]:
    """Read with the files dropped from the page cache, if that can be."""
    if not _drop(files):
        return None, "cold_no_files"
    before = _read_bytes()
    clock = _pass(source, batches)
    after = _read_bytes()
    if before is not None and after == before:
        return None, "cold_kept_in_memory"
    return clock, "cold_not_checked" if after is None else None


def _drop(files: Iterable[Path]) -> int:
    """Drop files from the page cache; return of how many that was asked."""
    num = 0
    for path in files:
        with suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                num += 1
            finally:
                os.close(file)
    return num


def _read_bytes() -> int | None:
    """Return what this process has read from a disk [bytes]; None where nothing says it."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line[12:]) for line in lines if line.startswith("read_bytes: ")), None)


def files_of(where: str) -> Iterator[Path]:
    """Yield the files at a place on this machine: itself, or all below a folder."""
    if os.path.isfile(where):
        yield Path(where)
        return
    num = 0
    for folder, _, names in os.walk(where):
        for name in names:
            num += 1
            if num > MAX_FILES:
                return
            yield Path(folder, name)


# -- one batch


def _make_batch(source: SampleSource, indices: Any, clock: _Clock) -> None:
    clock.wall_s.append(dict.fromkeys(PART_NAMES, 0.0))
    read = clock.take("fetch", lambda: source.read([int(index) for index in indices]))
    images = [column.name for column in source.columns if column.kind == "image"]
    if images:
        read = clock.take("decode", lambda: _decoded(source, indices, read, images))
    clock.take("collate", lambda: {name: _joined(values) for name, values in read.items()})


def _decoded(
    source: SampleSource, indices: Any, read: Mapping[str, Values], images: Sequence[str]
) -> dict[str, Values]:
    found = dict(read)
    for name in images:
        pictures = []
        for index, data in zip(indices, read[name], strict=True):
            try:
                pictures.append(decode(bytes(data)))
            except (OSError, ValueError) as error:
                place = source.place_of(int(index))
                raise DataError(f"{place} cannot be decoded: {error}.") from error
        found[name] = pictures
    return found


def decode(data: bytes) -> Any:
    """Return the pixels of an encoded picture, uint8 of shape `(height, width, 3)`.

    Raises:
        OSError, ValueError: this is no picture.
        MissingExtraError: Pillow is needed and not installed.
    """
    from steptime.data.feed.image_decoder import ImageDecoder

    return ImageDecoder().decode(data)


def _joined(values: Values) -> Values:
    """Return the values of a column as one array where they have one shape."""
    first = values[0]
    if isinstance(values, np.ndarray) or not isinstance(first, np.ndarray):
        return values
    alike = all(value.shape == first.shape and value.dtype == first.dtype for value in values)
    return np.stack(values) if alike else values


def _totals(clock: _Clock) -> dict[str, float]:
    return {part: sum(batch[part] for batch in clock.wall_s) for part in PART_NAMES}
