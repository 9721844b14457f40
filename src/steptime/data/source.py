"""What a source of samples is: a number of samples, read many at once by their numbers.

Each format is one `SampleSource`. Nobody else needs to know where a sample lies: the bench, the
converter, the loader and the checks read through this. A reader never unpickles what a file
holds, and evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values: TypeAlias = "Sequence[Any] | NDArray[Any]"
"""The values of one column for a batch: a numpy array of shape `(B, *shape)` where all samples have
the shape, else a list of B values (bytes, str, numbers, arrays)."""


class Column(NamedTuple):
    """One value that each sample has."""

    name: str
    kind: str
    """`array`, `number`, `text`, `bytes`, or `image`: bytes of an encoded picture."""
    dtype: str | None = None
    """numpy's name of the numbers; None for text and bytes."""
    shape: tuple[int, ...] | None = None
    """The shape that all samples have; None where it varies or is not known."""
    classes: tuple[str, ...] | None = None
    """The names that the numbers of a label stand for; None where there are none."""


class SampleSource(Protocol):
    """Samples with numbers from 0, in an order that does not change."""

    @property
    def name(self) -> str:
        """The format's name, as a person knows it."""
        ...

    @property
    def columns(self) -> tuple[Column, ...]:
        """What each sample has."""
        ...

    @property
    def num_bytes(self) -> int | None:
        """Bytes of all samples as they are stored; None where only reading them would tell."""
        ...

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def read(self, indices: Sequence[int]) -> Mapping[str, Values]:
        """Return the samples with these numbers, in this order, by column.

        Raises:
            DataError: a sample cannot be read; it names shard and row (`place_of`).
        """
        ...

    def place_of(self, index: int) -> str:
        """Return where a sample lies, for a person: the file, and the row in it."""
        ...

    def close(self) -> None:
        """Give back files and maps; the source reads nothing more."""
        ...
