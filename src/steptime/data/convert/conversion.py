"""Converts: writes shard by shard into TARGET.partial, checks all of it, and renames it at last.

In: a source, a target, a plan. Out: the finished folder. A second thread forces each shard to the
disk and reads it back while the next one is written. Killed at any moment, it goes on after
the last whole shard; nothing ever stands under the target's name that is not whole and checked.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from steptime.core.codec import render
from steptime.core.units import format_bytes
from steptime.data.convert.conversion_journal import (
    JOURNAL,
    PLAN,
    ConversionJournal,
    ConversionPlan,
    sync_folder,
    write_durably,
)
from steptime.data.convert.folder_list import FILES, write_files
from steptime.data.convert.planning import DAMAGED, with_varying_shapes
from steptime.data.convert.prepared_writer import Batch, PreparedWriter, Settle
from steptime.data.convert.treatment import Treatment, treat
from steptime.data.prepared.layout import INDEX, PreparedIndex
from steptime.data.prepared.sample_checksums import VaryingShapeError
from steptime.data.source import SampleSource
from steptime.data.values.conversion_values import Conversion, ConversionProgress
from steptime.errors import DataError, InterruptedByUserError, SteptimeError, UsageError

MAX_BATCH_ROWS = 512
MAX_UNSETTLED = 1
"""Shards that wait for the disk beside the one that is written: what varies is in memory."""

Show = Callable[[ConversionProgress], None]


def partial_of(target: Path) -> Path:
    """Return the folder in which a target is made."""
    return target.with_name(target.name + ".partial")


def refuse_target(target: Path, source: str | None = None) -> None:
    """Refuse a target that is there, as nothing is ever written over, or that is in its source.

    Raises:
        UsageError: it is there, it is the source or in it, or its folder is not there.
    """
    hint = "Name a new folder outside of the source."
    if source is not None and os.path.exists(source):
        inner, outer = os.path.realpath(target), os.path.realpath(source)
        if os.path.commonpath((inner, outer)) == outer:
            where = "the source itself" if inner == outer else f"in its source {source}"
            raise UsageError(f"{target} is {where}: what is read must stay as it is.", hint=hint)
    if os.path.lexists(target):
        raise UsageError(f"{target} is there already, and stays as it is.", hint=hint)
    if not target.parent.is_dir():
        raise UsageError(
            f"there is no folder `{target.parent}`.", hint=f"Make it: mkdir -p {target.parent}"
        )


def convert(
    source: SampleSource,
    target: Path,
    plan: ConversionPlan,
    treatment: Treatment,
    *,
    show: Show = lambda progress: None,
    num_threads: int = 1,
) -> Conversion:
    """Make the target; go on with an unfinished one.

    Args:
        source: what is read.
        target: the folder that is made.
        plan: what is made of it.
        treatment: what is done to pictures.
        show: is told how far it is.
        num_threads: that decode pictures.

    Raises:
        DataError: a sample cannot be read, the disk is full or fails, what was read back is not
            what was written, the target is there, or another process makes it.
    """
    refuse_target(target)
    partial = partial_of(target)
    started, cpu = time.monotonic(), time.process_time()
    try:
        with closing(ConversionJournal(partial, plan)) as journal:
            try:
                num_resumed = _run(source, partial, journal, treatment, show, num_threads)
                _finish(source, partial, target, journal)
            except (OSError, DataError, KeyboardInterrupt) as error:
                raise _ended(error, partial, journal) from error
    except OSError as error:
        raise ended_by(error, partial.parent, "Nothing was written.") from error
    shards = journal.shards.values()
    return Conversion(
        num_samples=journal.plan.num_samples,
        num_shards=len(journal.shards),
        num_resumed=num_resumed,
        num_bytes=sum(size for shard in shards for size in shard.sizes.values()),
        wall_s=time.monotonic() - started,
        cpu_s=time.process_time() - cpu,
        was_checked=True,
    )


def _run(
    source: SampleSource,
    partial: Path,
    journal: ConversionJournal,
    treatment: Treatment,
    show: Show,
    num_threads: int,
) -> int:
    """Write and check all shards; once more where a shape varies that was taken for everybody's."""
    while True:
        try:
            return _ShardRun(source, partial, journal, treatment, show, num_threads).run()
        except VaryingShapeError as error:
            journal.begin_again(with_varying_shapes(journal.plan, error.column))


class _ShardRun:
    """One process' work on a conversion."""

    def __init__(
        self,
        source: SampleSource,
        partial: Path,
        journal: ConversionJournal,
        treatment: Treatment,
        show: Show,
        num_threads: int,
    ) -> None:
        self._source, self._partial, self._journal = source, partial, journal
        self._treatment, self._show, self._num_threads = treatment, show, num_threads
        self._plan = journal.plan
        self._images = [column.name for column in source.columns if column.kind == "image"]

    def run(self) -> int:
        """Write and check all shards; return how many were finished before."""
        before = set(self._journal.shards)
        writer = PreparedWriter(self._partial, self._plan.columns, self._plan.num_samples)
        with closing(writer), ThreadPoolExecutor(self._num_threads) as pool:
            self._pool = pool
            self._write_all(writer)
            self._check_all(writer, before)
        return len(before & set(self._journal.shards))

    def _write_all(self, writer: PreparedWriter) -> None:
        """Write the shards that are missing; each is settled while the next one is written."""
        missing = [n for n in range(self._plan.num_shards) if n not in self._journal.shards]
        pace = _Pace(self._show, "convert", self._plan, len(missing))
        unsettled: deque[Future[None]] = deque()
        with ThreadPoolExecutor(1) as settler:
            for number in missing:
                settle = self._write(writer, number, pace)
                unsettled.append(settler.submit(self._settle, writer, number, settle))
                if len(unsettled) > MAX_UNSETTLED:
                    unsettled.popleft().result()
        for one in unsettled:
            one.result()

    def _write(self, writer: PreparedWriter, number: int, pace: _Pace) -> Settle:
        rows = self._rows_of(number)
        return writer.write(number, rows.start, self._batches(rows.start, rows.stop, pace))

    def _settle(self, writer: PreparedWriter, number: int, settle: Settle) -> None:
        """Have a shard on the disk and in the journal, and read it back."""
        shard, num_rows = settle(), len(self._rows_of(number))
        if shard.rows != num_rows:
            raise DataError(f"the source gave {shard.rows} samples in place of {num_rows}.")
        self._journal.add(number, shard)
        damage = writer.damaged(number, shard)
        if damage is not None:
            raise DataError(
                f"what was read back is not what was written: {damage}.",
                hint="The disk or the memory of this machine may be failing.",
            )

    def _rows_of(self, number: int) -> range:
        first = number * self._plan.rows_per_shard
        return range(first, min(first + self._plan.rows_per_shard, self._plan.num_samples))

    def _batches(self, first: int, end: int, pace: _Pace) -> Iterator[Batch]:
        size = max(1, min(MAX_BATCH_ROWS, self._plan.rows_per_shard))
        for at in range(first, end, size):
            rows = range(at, min(at + size, end))
            batch = dict(self._source.read(rows))
            for name in self._images if not self._treatment.keeps_bytes else ():
                batch[name] = self._treated(batch[name], rows)
            pace.add(len(rows))
            yield batch

    def _treated(self, values: Any, rows: range) -> list[Any]:
        def one(pair: tuple[int, bytes]) -> Any:
            try:
                return treat(pair[1], self._treatment, is_fast=self._plan.is_fast)
            except (ValueError, TypeError) as error:
                where = self._source.place_of(pair[0])
                raise DataError(f"{where} cannot be converted: {error}", hint=DAMAGED) from error

        return list(self._pool.map(one, zip(rows, values, strict=True)))

    def _check_all(self, writer: PreparedWriter, before: set[int]) -> None:
        """Read the shards of an earlier process back; one that is damaged is written again."""
        pace = _Pace(self._show, "check", self._plan, self._plan.num_shards)
        for number in range(self._plan.num_shards):
            shard = self._journal.shards[number]
            if number in before and writer.damaged(number, shard) is not None:
                self._journal.forget(number)
                quiet = _Pace(lambda progress: None, "convert", self._plan, 1)
                self._settle(writer, number, self._write(writer, number, quiet))
            pace.add(shard.rows)


class _Pace:
    """Tells how far a phase is, and how long it still takes by what was done so far."""

    def __init__(self, show: Show, phase: str, plan: ConversionPlan, num_shards: int) -> None:
        self._show, self._phase, self._num_samples = show, phase, plan.num_samples
        self._num_todo = min(num_shards * plan.rows_per_shard, plan.num_samples)
        self._num_done, self._started = 0, time.monotonic()

    def add(self, num_rows: int) -> None:
        self._num_done += num_rows
        taken_s = time.monotonic() - self._started
        left_s = taken_s * max(0, self._num_todo - self._num_done) / self._num_done
        done = self._num_samples - self._num_todo + self._num_done
        self._show(
            ConversionProgress(
                phase=self._phase,
                num_done=min(done, self._num_samples),
                num_samples=self._num_samples,
                left_s=left_s,
            )
        )


def _finish(source: SampleSource, partial: Path, target: Path, journal: ConversionJournal) -> None:
    """Write the index, take away what only resuming needs, and give the folder its name."""
    plan = journal.plan
    origin = plan.origin
    if write_files(source, Path(origin.place), partial / FILES):
        origin = dataclasses.replace(origin, files=FILES)
    index = PreparedIndex(
        num_samples=plan.num_samples,
        columns=plan.columns,
        shards=tuple(journal.shards[number] for number in range(plan.num_shards)),
        origin=origin,
        treatment=plan.treatment,
    )
    write_durably(partial / INDEX, render(index).encode("ascii"))
    refuse_target(target)  # somebody may have made it meanwhile
    os.rename(partial, target)
    sync_folder(target.parent)
    # Last, so that a kill before leaves a conversion that can go on, and one after leaves two
    # small files too many.
    for name in (PLAN, JOURNAL):
        (target / name).unlink(missing_ok=True)


def _ended(error: BaseException, partial: Path, journal: ConversionJournal) -> SteptimeError:
    """Return the error with what stays on the disk; what could not be continued is removed."""
    stays = "Nothing of it stays on the disk."
    if journal.shards:
        stays = (
            f"{len(journal.shards)} finished shards stay in {partial}: give the same command again "
            f"to go on, or remove them: rm -r {partial}"
        )
    else:
        shutil.rmtree(partial, ignore_errors=True)
    return ended_by(error, partial.parent, stays)


def ended_by(error: BaseException, folder: Path, stays: str) -> SteptimeError:
    """Return what a disk failed with, what is wrong with the data, or Ctrl-C; and what stays."""
    if isinstance(error, DataError):
        return DataError(str(error), hint="\n".join(filter(None, (error.hint, stays))))
    if not isinstance(error, OSError):
        return InterruptedByUserError("interrupted", hint=stays)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return DataError(str(error), hint=stays)
    status = os.statvfs(folder)
    free = format_bytes(status.f_bavail * status.f_frsize)
    return DataError(
        f"the disk of {folder} is full: {free} are free without what was begun.",
        hint=f"Make room on it. {stays}",
    )
