"""WebDataset archives: plain tar files in which the members of a sample share their first name.

A picture is a member `.jpg` or `.png`, text `.txt`, a whole number `.cls`, another number `.json`,
an array `.npy`, other bytes `.bin`. Where two columns would have one name, theirs stands before it:
`000000012.left.jpg`. A value that is missing is left out.

Source: POSIX.1-1988 (ustar); https://github.com/webdataset/webdataset for the names.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from steptime.data.convert.record_files import RecordFormat, exactly
from steptime.data.convert.shard_writer import Batch
from steptime.data.prepared.layout import PreparedColumn
from steptime.data.prepared.sample_checksums import to_bytes
from steptime.data.stored_bytes import MAX_FILE_BYTES
from steptime.record.regular_file import open_regular

_BLOCK = 512
_STARTS = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG\r\n", "png"), (b"GIF8", "gif"), (b"RIFF", "webp"))


def encode_members(columns: Sequence[PreparedColumn], first: int, batch: Batch) -> list[bytes]:
    """Return the samples of a batch, each as the members of its archive."""
    rows = zip(*(batch[column.name] for column in columns), strict=True)
    kinds = [_kind_of(column) for column in columns]
    found = []
    for index, row in enumerate(rows, first):
        members = []
        for column, kind, value in zip(columns, kinds, row, strict=True):
            if value is not None:
                is_alone = kinds.count(kind) == 1
                suffix = _suffix(kind, value)
                name = suffix if is_alone else f"{_plain(column.name)}.{suffix}"
                members.append(_member(f"{index:09}.{name}", _content(column, kind, value)))
        found.append(b"".join(members))
    return found


def read_samples(path: Path) -> Iterator[bytes]:
    """Yield the members of each sample, with their headers.

    Raises:
        ValueError: a header is damaged, or the file ends in a member.
    """
    with open_regular(path, max_bytes=MAX_FILE_BYTES) as file:
        for _, members in groupby(_members(file), key=lambda member: member[0]):
            yield b"".join(data for _, data in members)


def _members(file: Any) -> Iterator[tuple[bytes, bytes]]:
    """Yield (name of the sample, header and content) of each member."""
    while (header := exactly(file, _BLOCK)) != bytes(_BLOCK):
        if int(header[148:154], 8) != _sum(header):
            raise ValueError("the header of a member is damaged")
        size = int(header[124:135], 8)
        yield header[:100].split(b".")[0], header + exactly(file, -(-size // _BLOCK) * _BLOCK)


def _member(name: str, content: bytes) -> bytes:
    if len(content) >= 8 << 30:
        raise ValueError(f"a member of a tar archive has less than 8 GiB, {name} has more")
    header = bytearray(_BLOCK)
    header[0 : len(name)] = name.encode("ascii")
    header[100:136] = b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % len(content)
    header[136:148] = b"00000000000\0"  # no time, so that equal data are equal archives
    header[156:265] = b"0" + bytes(100) + b"ustar\x0000"
    header[148:156] = b"%06o\0 " % _sum(header)
    return bytes(header) + content + bytes(-len(content) % _BLOCK)


def _sum(header: bytes | bytearray) -> int:
    """Return the sum of a header's bytes, its own field taken as blanks."""
    return sum(header[:148]) + 8 * 32 + sum(header[156:])


def _kind_of(column: PreparedColumn) -> str:
    if column.kind == "number":
        return "cls" if np.dtype(column.dtype).kind in "bui" else "json"
    return {"text": "txt", "array": "npy", "image": "image"}.get(column.kind, "bin")


def _suffix(kind: str, value: Any) -> str:
    if kind != "image":
        return kind
    return next((suffix for start, suffix in _STARTS if value.startswith(start)), "img")


def _content(column: PreparedColumn, kind: str, value: Any) -> bytes:
    if kind == "cls":
        return b"%d" % int(value)
    if kind == "json":
        return json.dumps(float(value)).encode("ascii")
    if kind == "npy":
        file = io.BytesIO()
        np.save(file, np.asarray(value), allow_pickle=False)
        return file.getvalue()
    return to_bytes(value)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:40]


TAR_SAMPLES = RecordFormat(
    suffix="tar",
    encode=encode_members,
    frame=b"".join,
    end=bytes(2 * _BLOCK),
    records_of=read_samples,
)
