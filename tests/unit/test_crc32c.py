"""CRC-32C in numpy, against its published values and a bit by bit computation."""

import random

import numpy as np
import pytest

from steptime.data.crc32c import crc32c, crc32c_many, crc32c_rows, mask


def slow_crc32c(data):
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_the_published_values(data, expected):
    assert crc32c(data) == expected


def test_records_of_all_lengths_at_once():
    draw = random.Random(0)
    records = [draw.randbytes(n) for n in (0, 1, 3, 4, 5, 8, 255, 256, 257, 511, 512, 1500, 3072)]

    assert crc32c_many(records).tolist() == [slow_crc32c(record) for record in records]


def test_rows_of_eight_bytes():
    rows = np.arange(5, dtype="<u8").view(np.uint8).reshape(5, 8)

    assert crc32c_rows(rows).tolist() == [slow_crc32c(row.tobytes()) for row in rows]


def test_the_mask_of_tfrecord():
    crc = crc32c(b"123456789")
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF

    assert mask(np.array([crc], np.uint32))[0] == (rotated + 0xA282EAD8) & 0xFFFFFFFF
