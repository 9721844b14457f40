"""CRC-32C as TFRecord stores it: masked, so that a checksum may lie among what it sums up.

Source: https://www.tensorflow.org/tutorials/load_data/tfrecord for the mask.
"""

from __future__ import annotations

import google_crc32c

_MASK_DELTA = 0xA282EAD8


def masked_crc(data: bytes | memoryview) -> bytes:
    """Return the four bytes that stand behind a length or a record."""
    crc: int = google_crc32c.value(bytes(data))
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return (rotated + _MASK_DELTA & 0xFFFFFFFF).to_bytes(4, "little")
