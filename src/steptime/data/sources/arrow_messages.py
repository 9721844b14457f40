"""The messages of Arrow's format for files and streams: where each batch lies, how long it is.

Arrow's own reader opens a whole file; this finds the batches without decoding them, and refuses
lengths that cannot be before Arrow takes memory for them. Source: the Arrow columnar format,
"Encapsulated message format" and "File format"; Message.fbs and Schema.fbs; FlatBuffers internals.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from steptime.data.sources.decoded_groups import MAX_GROUP_BYTES
from steptime.data.stored_bytes import DamagedBytesError, StoredBytes, read_exactly

MAGIC = b"ARROW1"
CONTINUATION = b"\xff\xff\xff\xff"
SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""MessageHeader, in Message.fbs."""
MAX_METADATA_BYTES = 64 << 20
USUAL_METADATA_BYTES = 4096
"""Read at once with the length before it; more is read where there is more."""
MAX_LZ4_RATIO = 256
"""A byte of LZ4 stands for at most 255 bytes (the block format's lengths)."""


class Message(NamedTuple):
    """One message: its metadata and its body, from one offset on."""

    kind: int
    begin: int
    """Of the whole message in the file [bytes]."""
    head_bytes: int
    """The length before it, the metadata and their padding [bytes]."""
    body_bytes: int
    num_rows: int
    """Of a batch; 0 of others."""
    unpacks: bool
    """Whether its buffers are compressed."""

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return self.head_bytes + self.body_bytes


def messages_of(stored: StoredBytes) -> list[Message]:
    """Return the messages of a file or a stream, as far as its end marker.

    Raises:
        DamagedBytesError: it ends too early, or says what cannot be.
    """
    is_file = read_exactly(stored, 0, 8).startswith(MAGIC)
    at = 8 if is_file else 0
    if is_file and read_exactly(stored, stored.size - 6, 6) != MAGIC:
        raise DamagedBytesError("it does not end as an Arrow file does: it was cut off")
    found: list[Message] = []
    while at < stored.size:
        message = _message_at(stored, at)
        if message is None:
            break
        found.append(message)
        at += message.size
    if not found or found[0].kind != SCHEMA:
        raise DamagedBytesError("it does not begin with a schema")
    return found


def _message_at(stored: StoredBytes, at: int) -> Message | None:
    """The message at an offset; None at the marker of the end."""
    start = read_exactly(stored, at, min(USUAL_METADATA_BYTES, stored.size - at))
    if len(start) < 8:
        raise DamagedBytesError(f"a message at offset {at:,} is cut off")
    if not start.startswith(CONTINUATION):
        raise DamagedBytesError(f"there is no message at offset {at:,}")
    (length,) = struct.unpack_from("<i", start, 4)
    if length == 0:
        return None
    if not 0 < length <= MAX_METADATA_BYTES:
        raise DamagedBytesError(f"a message at offset {at:,} should have {length:,} bytes")
    metadata = (
        start[8 : 8 + length] if 8 + length <= len(start) else read_exactly(stored, at + 8, length)
    )
    try:
        message = _parse(metadata, at, 8 + length)
    except (struct.error, IndexError) as error:
        raise DamagedBytesError(f"the message at offset {at:,} is damaged") from error
    if not 0 <= message.body_bytes <= stored.size - at - message.head_bytes:
        what = f"{message.body_bytes:,} bytes, and the file ends before"
        raise DamagedBytesError(f"the message at offset {at:,} should have {what}")
    if message.num_rows < 0:
        raise DamagedBytesError(f"the batch at offset {at:,} has {message.num_rows:,} rows")
    return message


def _parse(metadata: bytes, begin: int, head_bytes: int) -> Message:
    (root,) = struct.unpack_from("<I", metadata)
    kind = _field(metadata, root, 1, "<B")
    body = _field(metadata, root, 3, "<q")
    rows, unpacks = 0, False
    header = _table(metadata, root, 2)
    if kind == BATCH and header is not None:
        rows = _field(metadata, header, 0, "<q")
        unpacks = _table(metadata, header, 3) is not None
    return Message(kind, begin, head_bytes, body, rows, unpacks)


def _slot(data: bytes, table: int, field: int) -> int:
    """Where a field of a table lies; 0 where it is left out."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    if vtable < 0:
        raise IndexError
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * field >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * field)
    return table + offset if offset else 0


def _field(data: bytes, table: int, field: int, form: str) -> int:
    at = _slot(data, table, field)
    return int(struct.unpack_from(form, data, at)[0]) if at else 0


def _table(data: bytes, table: int, field: int) -> int | None:
    at = _slot(data, table, field)
    return at + int(struct.unpack_from("<I", data, at)[0]) if at else None


def check_unpacked_size(message: Message, data: memoryview) -> int:
    """Return the bytes that a compressed batch says it unpacks to.

    Each of its buffers begins with its own length (-1: it is stored as it is).

    Raises:
        DamagedBytesError: no batch for random access is as large.
    """
    metadata = bytes(data[8 : message.head_bytes])
    (root,) = struct.unpack_from("<I", metadata)
    header = _table(metadata, root, 2)
    codec_table = _table(metadata, header, 3) if header is not None else None
    if header is None or codec_table is None:
        return message.body_bytes
    is_lz4 = _field(metadata, codec_table, 0, "<b") == 0
    body = data[message.head_bytes :]
    total = 0
    for offset, length in _buffers(metadata, header):
        if length < 8:
            continue
        if offset < 0 or offset + length > len(body):
            raise DamagedBytesError("a buffer of it lies outside of it")
        (unpacked,) = struct.unpack_from("<q", body, offset)
        if is_lz4 and unpacked > length * MAX_LZ4_RATIO:
            raise DamagedBytesError(f"{length:,} bytes cannot unpack to {unpacked:,}")
        total += max(unpacked, 0)
    if total > MAX_GROUP_BYTES:
        raise DamagedBytesError(f"a batch should unpack to {total:,} bytes")
    return total


def _buffers(metadata: bytes, header: int) -> list[tuple[int, int]]:
    vector = _table(metadata, header, 2)
    if vector is None:
        return []
    (count,) = struct.unpack_from("<I", metadata, vector)
    if count * 16 > len(metadata):
        raise DamagedBytesError("a batch says that it has more buffers than it can have")
    return list(struct.iter_unpack("<qq", metadata[vector + 4 : vector + 4 + count * 16]))
