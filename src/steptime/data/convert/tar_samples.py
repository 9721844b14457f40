"""WebDataset archives: plain tar files in which the members of a sample share their first name.

A picture is a member `.jpg` or `.png`, text `.txt`, a whole number `.cls`, another number `.json`,
an array `.npy`, other bytes `.bin`. Where two columns would have one name, theirs stands before it:
`000000012.left.jpg`. A value that is missing is left out.

Source: https://github.com/webdataset/webdataset for the names.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from steptime.data.convert.record_files import RecordFormat
from steptime.data.convert.shard_writer import Batch
from steptime.data.prepared.layout import PreparedColumn
from steptime.data.prepared.sample_checksums import to_bytes

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


def _member(name: str, content: bytes) -> bytes:
    info = tarfile.TarInfo(name)  # it has no time, so that equal data are equal archives
    info.size, info.mode = len(content), 0o444
    padding = bytes(-len(content) % tarfile.BLOCKSIZE)
    return info.tobuf(tarfile.GNU_FORMAT) + content + padding


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
    end=bytes(2 * tarfile.BLOCKSIZE),
)
