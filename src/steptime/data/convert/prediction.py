"""Predicts what a conversion would give, by doing it to a sample and reading both.

In: a source, the sample that was taken, the plan, a folder on the target's disk. Out: a
`Prediction`. Both sides are read in turn, shuffled and in batches, and decode what a training would
decode. A round's time is that of the process without the time in which it could run but others had
the core; so waiting for a disk or a store counts, and a busy machine does not.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import cycle
from pathlib import Path

from steptime.core.codec import render
from steptime.core.interval import Interval
from steptime.core.stats import median, median_interval
from steptime.data.convert.conversion_journal import ConversionPlan
from steptime.data.convert.planning import DAMAGED, TakenSample, as_batch, size_of
from steptime.data.convert.prepared_writer import PreparedWriter
from steptime.data.pictures import decode_by_pillow, decode_picture, has_pillow
from steptime.data.prepared.layout import INDEX, PreparedIndex
from steptime.data.prepared.prepared_source import PreparedSource
from steptime.data.source import SampleSource
from steptime.data.values.conversion_values import Prediction
from steptime.errors import DataError

BATCH = 64
NUM_ROUNDS = 11
_ROUND_S = 0.1
"""Rounds of this length last longer than the clock's noise, and eleven pairs some two seconds."""
_DISK_BYTES = 32 << 20


def predict(
    source: SampleSource,
    sample: TakenSample,
    plan: ConversionPlan,
    scratch: Path,
    *,
    memory_bytes: int,
) -> Prediction:
    """Return what the conversion would give.

    Args:
        source: what is read.
        sample: that was taken of it.
        plan: what would be made.
        scratch: an empty folder on the disk of the target.
        memory_bytes: that the page cache could hold data in.

    Raises:
        DataError: a picture cannot be decoded.
    """
    n = len(sample.indices)
    stored_bytes, copy, write_s = _write_copy(sample, plan, scratch)
    target_bytes = _total_bytes(sample, plan, stored_bytes)
    disk = disk_rate(scratch)
    with closing(copy):
        # Neighbors would be a view that nobody reads.
        shuffled = random.Random(1).sample(range(n), n)
        rounds = _alternate(_reader(source, sample.indices), _reader(copy, shuffled))
    source_s = median([one for one, _ in rounds])
    target_s = median([other for _, other in rounds])
    slow = {
        which: size / plan.num_samples / disk if disk and size > memory_bytes else 0.0
        for which, size in (("source", source.num_bytes or 0), ("target", target_bytes.estimate))
    }
    status = os.statvfs(scratch)
    return Prediction(
        source_format=source.name,
        target_format="prepared",
        treatment=plan.treatment,
        num_samples=plan.num_samples,
        num_sampled=n,
        source_bytes=source.num_bytes,
        target_bytes=target_bytes,
        source_s=max(source_s, slow["source"]),
        target_s=max(target_s, slow["target"]),
        gain=_gain(rounds, slow["source"], slow["target"]),
        convert_s=(sample.convert_s + write_s) / n * plan.num_samples,
        disk_bytes_per_s=disk,
        free_bytes=status.f_bavail * status.f_frsize,
        memory_bytes=memory_bytes,
        is_disk_bound=slow["target"] > target_s,
    )


def _write_copy(
    sample: TakenSample, plan: ConversionPlan, scratch: Path
) -> tuple[float, PreparedSource, float]:
    """Write the sample as the plan says; return its bytes, its reader, and the time it took."""
    n = len(sample.indices)
    started = time.perf_counter()
    with closing(PreparedWriter(scratch, plan.columns, n)) as writer:
        shard = writer.write(0, 0, [as_batch(plan.columns, sample.stored)])()
    write_s = time.perf_counter() - started
    size = sum(shard.sizes.values())
    index = PreparedIndex(num_samples=n, columns=plan.columns, shards=(shard,), origin=plan.origin)
    (scratch / INDEX).write_text(render(index), encoding="ascii")
    return size, PreparedSource(scratch, index), write_s


def _total_bytes(sample: TakenSample, plan: ConversionPlan, stored_bytes: float) -> Interval:
    """Return the bytes of the whole target, from those of the sample."""
    n = len(sample.indices)
    sizes = [
        float(sum(size_of(values[row]) for values in sample.stored.values())) for row in range(n)
    ]
    mean = sum(sizes) / n
    deviation = math.sqrt(sum((size - mean) ** 2 for size in sizes) / max(1, n - 1))
    half = 1.96 * deviation / math.sqrt(n) if n < plan.num_samples else 0.0
    per_sample = stored_bytes / n
    estimate, margin = per_sample * plan.num_samples, half * plan.num_samples
    return Interval(estimate=estimate, low=estimate - margin, high=estimate + margin, n=n)


def _reader(source: SampleSource, indices: Sequence[int]) -> Callable[[], int]:
    """Return what reads the next batch and decodes its pictures; it returns how many it read."""
    images = [column.name for column in source.columns if column.kind == "image"]
    decoding = decode_by_pillow if has_pillow() else decode_picture
    batches = cycle([indices[at : at + BATCH] for at in range(0, len(indices), BATCH)])

    def read() -> int:
        rows = next(batches)
        batch = source.read(rows)
        for name in images:
            for row, data in zip(rows, batch[name], strict=True):
                try:
                    decoding(data)
                except ValueError as error:
                    raise DataError(f"{source.place_of(row)}: {error}", hint=DAMAGED) from error
        return len(rows)

    return read


def _alternate(one: Callable[[], int], other: Callable[[], int]) -> list[tuple[float, float]]:
    """Return the seconds a sample of both sides, of rounds in turn."""
    with _Running() as clock:
        for read in (one, other):
            _round(read, clock)  # the first round warms caches
        return [(_round(one, clock), _round(other, clock)) for _ in range(NUM_ROUNDS)]


def _round(read: Callable[[], int], clock: _Running) -> float:
    started, num_read, taken_s = clock.now_s(), 0, 0.0
    while taken_s < _ROUND_S:
        num_read += read()
        taken_s = clock.now_s() - started
    return taken_s / num_read


def _gain(rounds: list[tuple[float, float]], slow_source: float, slow_target: float) -> Interval:
    return median_interval([max(a, slow_source) / max(b, slow_target) for a, b in rounds])


def disk_rate(folder: Path) -> float | None:
    """Return how fast a new file is read from the disk [bytes/s]; None where it cannot be told.

    The page cache is told to forget the file first. A host that caches for this machine still may
    answer faster than its disk.
    """
    path = folder / "disk"
    try:
        with open(path, "w+b", buffering=0) as file:
            block = os.urandom(1 << 20)
            file.writelines(block for _ in range(_DISK_BYTES >> 20))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            started = time.perf_counter()
            file.seek(0)
            while file.read(1 << 20):
                pass
            return _DISK_BYTES / (time.perf_counter() - started)
    except (OSError, AttributeError):
        return None
    finally:
        with suppress(OSError):
            path.unlink()


class _Running:
    """A clock of this thread that stands still while others have the core that it could run on.

    Where the kernel does not say how long that was, it is the wall clock.

    Source: Documentation/scheduler/sched-stats.rst of Linux, `/proc/<pid>/schedstat`.
    """

    def __enter__(self) -> _Running:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1
        return self

    def now_s(self) -> float:
        """Return the time [s]."""
        now_s = time.perf_counter()
        if self._file < 0:
            return now_s
        return now_s - int(os.pread(self._file, 128, 0).split()[1]) * 1e-9

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
