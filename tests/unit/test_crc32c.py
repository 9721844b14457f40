"""The checksum of TFRecord, against the published values of CRC-32C."""

import pytest

from steptime.data.crc32c import masked_crc


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"", 0),
    ],
)
def test_the_published_values_are_masked(data, crc):
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF

    assert masked_crc(data) == ((rotated + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")
    assert masked_crc(memoryview(b"x" + data)[1:]) == masked_crc(data)
