"""A source that keeps its promises whatever the reader of its format meets.

In: the reader of a format, which may raise what its libraries raise. Out: a `SampleSource` that
raises `DataError` with file and row, checks the numbers asked for, knows pictures by their first
bytes, and opens itself again in another process.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.errors import DataError

FAILURES = (
    *(OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError),
    *(MemoryError, EOFError, AttributeError, AssertionError, struct.error, zlib.error),
    pa.ArrowException,
)
"""What damaged bytes make numpy, Arrow, h5py and the standard library raise; never everything."""

IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
"""Of JPEG (ITU T.81: SOI and a marker) and PNG (ISO 15948)."""


class FormatReader(Protocol):
    """One format: as `SampleSource`, with the errors of its libraries."""

    name: str
    columns: tuple[Column, ...]

    @property
    def num_bytes(self) -> int | None:
        """Bytes of all samples as they are stored; None where only reading them would tell."""
        ...

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Return samples by their numbers, which are checked: at least one, all within."""
        ...

    def place_of(self, index: int) -> str:
        """Return the file and the row."""
        ...

    def index(self) -> Any:
        """Return what makes opening again quick and the same; None where nothing is needed."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class OpensAgain(Protocol):
    """How a source was opened; it can be pickled."""

    def __call__(self, index: Any) -> CheckedSource:
        """Open the source, with the index of its reader where that is known."""
        ...

    def fingerprint(self) -> str:
        """Return a text that changes with the files."""
        ...


class CheckedSource:
    """See the module; the open file of a format behind the contract `SampleSource`."""

    def __init__(
        self,
        reader: FormatReader,
        again: OpensAgain,
        reads_in_flight: int | None = None,
    ) -> None:
        self._reader = reader
        self._in_flight = reads_in_flight
        self._again = again
        self._columns: tuple[Column, ...] | None = None

    @property
    def name(self) -> str:
        """The format's name."""
        return self._reader.name

    @property
    def columns(self) -> tuple[Column, ...]:
        """What each sample has; bytes that begin as a picture does are an `image`."""
        if self._columns is None:
            self._columns = _with_images(self._reader)
        return self._columns

    @property
    def num_bytes(self) -> int | None:
        """Bytes of all samples as they are stored; None where only reading them would tell."""
        return self._reader.num_bytes

    @property
    def reads_in_flight(self) -> int:
        """How many reads at once pay: 0 of what is mapped, 1 of what a processor must decode.

        A store answers late, so many reads of it go on at once.
        """
        if self._in_flight is not None:
            return self._in_flight
        return int(getattr(self._reader, "reads_in_flight", 1))

    @property
    def fingerprint(self) -> str:
        """A text that changes with the files: who keeps samples of them asks for it.

        Raises:
            DataError: the files cannot be asked.
        """
        return self._again.fingerprint()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._reader)

    def read(self, indices: Sequence[int]) -> Mapping[str, Values]:
        """Return the samples with these numbers, in this order, by column.

        Raises:
            DataError: a sample cannot be read; it names file and row.
            ValueError: a number is not that of a sample.
        """
        rows = np.asarray(indices, dtype=np.int64).reshape(-1)
        if not len(rows):
            return {column.name: _nothing(column) for column in self.columns}
        if rows.min() < 0 or rows.max() >= len(self):
            limit = f"0 to {len(self) - 1}" if len(self) else "none"
            raise ValueError(f"samples have the numbers {limit}, got {rows.min()} to {rows.max()}")
        try:
            values = self._reader.read(rows)
            _check_counts(values, len(rows))
        except FAILURES as error:
            raise self._with_place(rows, error) from error
        return values

    def _with_place(self, rows: NDArray[np.int64], error: BaseException) -> DataError:
        """Find the row at fault by reading them one by one; only after a failure."""
        for row in rows.tolist():
            try:
                _check_counts(self._reader.read(np.array([row])), 1)
            except FAILURES as again:
                return DataError(f"{self.place_of(row)} cannot be read: {sentence(again)}")
        place = self.place_of(int(rows[0]))
        return DataError(f"the batch that begins at {place} cannot be read: {sentence(error)}")

    def place_of(self, index: int) -> str:
        """Return where a sample lies: the file, and the row in it."""
        return self._reader.place_of(index)

    def close(self) -> None:
        """Give back files and maps; the source reads nothing more."""
        self._reader.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return open_again, (self._again, self._reader.index(), len(self))


def open_again(again: OpensAgain, index: object, num_samples: int) -> CheckedSource:
    """Open a pickled source in this process.

    Raises:
        DataError: it has other samples than it had.
    """
    source = again(index)
    if len(source) != num_samples:
        what = f"it had {num_samples:,} samples when it was opened first, and has {len(source):,}"
        raise DataError(f"the data changed: {what}", hint="Leave the data alone while it is read.")
    return source


def sentence(error: BaseException) -> str:
    """Return the first line of an error's text, without control characters, or its kind."""
    lines = str(error).strip().splitlines()
    text = "".join(c if c.isprintable() else "?" for c in lines[0])[:300] if lines else ""
    if isinstance(error, MemoryError):
        return text or "it asks for more memory than there is"
    return text or type(error).__name__


def is_image(data: bytes | memoryview) -> bool:
    """Whether bytes begin as JPEG or PNG do."""
    return bytes(data[:8]).startswith(IMAGE_STARTS)


def _with_images(reader: FormatReader) -> tuple[Column, ...]:
    found = reader.columns
    if not any(column.kind == "bytes" for column in found) or not len(reader):
        return found
    images: set[str] = set()
    for row in sorted({0, len(reader) // 2, len(reader) - 1}):  # one may be damaged
        with suppress(*FAILURES):  # whoever reads that sample is told
            one = reader.read(np.array([row]))
            values = ((c.name, one[c.name][0]) for c in found if c.kind == "bytes")
            images |= {name for name, v in values if isinstance(v, bytes) and is_image(v)}
        if images:
            break
    return tuple(c._replace(kind="image") if c.name in images else c for c in found)


def _check_counts(values: Mapping[str, Values], expected: int) -> None:
    for name, column in values.items():
        if len(column) != expected:
            raise ValueError(f"column {name} has {len(column)} of {expected} values")


def _nothing(column: Column) -> Values:
    if column.dtype is None or column.shape is None:
        return []
    return np.empty((0, *column.shape), column.dtype)
