"""The index of prepared data: what `index.json` says, read and written.

A prepared folder holds, for each column whose values all have one shape, one `.npy` file with all
samples, in their order; for the other columns, one Arrow IPC file a shard. A shard is a range of
samples: the unit that is written, checksummed and, after a kill, written again. `checksums.npy`
has the CRC-32 of each sample (`sample_checksums`). Nothing in it needs Steptime to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steptime.core.codec import decode
from steptime.data.source import Column
from steptime.errors import DamagedRunError, DataError, install_command
from steptime.record.regular_file import read_regular

INDEX = "index.json"
CHECKSUMS = "checksums.npy"
FORMAT = "steptime-prepared"
VERSION = 1
MAX_INDEX_BYTES = 1 << 30
"""A shard takes some 300 bytes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedColumn:
    """One column, and where it lies.

    Attributes:
        name: its name.
        kind: as in `Column`.
        dtype: numpy's name of its numbers; null for text and bytes.
        shape: of one sample; null where it varies.
        file: its `.npy` file; null where it lies in the Arrow file of each shard.
        classes: the names that the numbers of a label stand for.
    """

    name: str
    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    file: str | None = None
    classes: tuple[str, ...] | None = None

    def as_column(self) -> Column:
        """Return it as a source says it."""
        return Column(self.name, self.kind, self.dtype, self.shape, self.classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Where the values of a column lie in the Arrow file of a shard, for whoever maps it.

    Attributes:
        offsets_at: where its `rows + 1` offsets begin, of 8 bytes each, little-endian [bytes].
        values_at: where the values begin, one behind the other [bytes].
        shapes_at: where the shapes begin: for each sample `ndim` numbers of 8 bytes; null for
            text and bytes.
        ndim: how many numbers a shape has; 0 for text and bytes.
    """

    offsets_at: int
    values_at: int
    shapes_at: int | None = None
    ndim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A range of samples that was written, and what was written.

    Attributes:
        first: its first sample.
        rows: how many samples it has.
        checksums: the CRC-32 of the shard's part of each file, in hexadecimal.
        sizes: the bytes of that part.
        arrow: its Arrow file; null where no column varies.
        buffers: by column, where its values lie in the Arrow file.
    """

    first: int
    rows: int
    checksums: Mapping[str, str]
    sizes: Mapping[str, int]
    arrow: str | None = None
    buffers: Mapping[str, Buffers] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What the data was made from.

    Attributes:
        name: the format, as a person knows it.
        place: where it was.
        num_bytes: of all its samples; null where only reading them would tell.
        fingerprint: a word that changes with its files; null where it has none.
        files: the list of its files (`files.tsv`), if each sample was one.
    """

    name: str
    place: str
    num_bytes: int | None
    fingerprint: str | None = None
    files: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedIndex:
    """What `index.json` holds.

    Attributes:
        format: the word by which it is known.
        version: of the format.
        num_samples: of all shards.
        columns: what each sample has.
        shards: in the order of their samples.
        origin: what it was made from.
        treatment: what was done to the pictures, in words; empty where bytes were kept.
    """

    num_samples: int
    columns: tuple[PreparedColumn, ...]
    shards: tuple[Shard, ...]
    origin: Origin
    treatment: str = ""
    format: str = FORMAT
    version: int = VERSION


def read_index(folder: Path) -> PreparedIndex:
    """Return the index of a prepared folder.

    Raises:
        DataError: it is not there, damaged, of a newer version, or contradicts itself.
    """
    path = folder / INDEX
    try:
        text = read_regular(path, max_bytes=MAX_INDEX_BYTES)
        index = decode(PreparedIndex, text, where=str(path))
    except FileNotFoundError as error:
        raise DataError(f"{folder} holds no prepared data: it has no {INDEX}.") from error
    except (OSError, DamagedRunError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if index.format != FORMAT:
        raise DataError(f"{path} is the index of another format: `{index.format:.40}`.")
    if index.version > VERSION:
        raise DataError(
            f"{path} has version {index.version}, and this Steptime reads up to {VERSION}.",
            hint=f"Upgrade it: {install_command('-U', 'steptime')}",
        )
    _check(index, path)
    return index


def _check(index: PreparedIndex, path: Path) -> None:
    """Refuse shards that leave a gap, and names that lead out of the folder."""
    at = 0
    for shard in index.shards:
        if shard.first != at or shard.rows < 1:
            raise DataError(f"{path} is damaged: no shard begins at sample {at}.")
        at += shard.rows
    if at != index.num_samples:
        raise DataError(
            f"{path} is damaged: its shards have {at} samples, not {index.num_samples}."
        )
    files = [column.file for column in index.columns] + [s.arrow for s in index.shards]
    outside = [file for file in files if file is not None and Path(file).name != file]
    if outside:
        raise DataError(f"{path} is damaged: it names the file `{outside[0]}`.")
