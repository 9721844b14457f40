"""Quantities as text for people."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.core.units import (
    format_bytes,
    format_count,
    format_percent,
    format_rate,
    format_seconds,
    format_speedup,
    format_value,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (3.8e-7, "0.38 µs"),
        (45e-6, "45.0 µs"),
        (0.9996e-3, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.118, "118 ms"),
        (0.99951, "1.00 s"),
        (1.5, "1.50 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125.4, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (11_220, "3 h 07 min"),
        (-0.0123, "-12.3 ms"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023.6, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (24 * 1024**3, "24.0 GiB"),
        (900 * 1024**4, "900 TiB"),
        (5000 * 1024**5, "5000 PiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_bytes(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0.0 %"), (0.3471, "34.7 %"), (1, "100.0 %"), (0.0002, "<0.1 %"), (-0.02, "-2.0 %")],
)
def test_percent(fraction: float, text: str) -> None:
    assert format_percent(fraction) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1, "1.00x"), (1.384, "1.38x"), (9.996, "10.0x"), (12.34, "12.3x")]
)
def test_speedup(ratio: float, text: str) -> None:
    assert format_speedup(ratio) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (512, "512"),
        (2.5, "2.5"),
        (1 / 3, "0.33"),
        (20_000, "20,000"),
        (68_385.02, "68,385"),
        (123_456.7, "123,457"),
        (1_200_000, "1.20 million"),
        (3.5e9, "3.50e+09"),
    ],
)
def test_count(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "s", "12.3 ms"),
        (1536, "bytes", "1.50 KiB"),
        (0.25, "fraction", "25.0 %"),
        (1.25, "x", "1.25x"),
        (1.04, "cores", "1.04 cores"),
        (7, "count", "7"),
    ],
)
def test_a_value_with_the_unit_of_evidence(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


SCALES = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


@given(st.floats(1e-6, 59))
def test_a_time_can_be_read_back_to_three_digits(seconds: float) -> None:
    number, unit = format_seconds(seconds).split()

    assert float(number) * SCALES[unit] == pytest.approx(seconds, rel=0.0051)


@given(st.floats(0, 1e7))
def test_a_time_is_short_and_has_a_unit(seconds: float) -> None:
    assert re.fullmatch(r"[\d.]+ (µs|ms|s)|\d+ (min \d\d s|h \d\d min)", format_seconds(seconds))


@given(st.floats(0, 1e15))
def test_a_size_is_short_and_has_a_unit(size: float) -> None:
    assert re.fullmatch(r"\d{1,4}(\.\d+)? ([KMGTP]i)?B", format_bytes(size))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (160e9, "flops_per_s", "160 GFLOPS"),
        (1.34e12, "flops_per_s", "1.34 TFLOPS"),
        (999.6e9, "ops_per_s", "1.00 TOPS"),
        (13.1e9, "bytes_per_s", "13.1 GB/s"),
        (4e11, "bits_per_s", "400 Gb/s"),
        (12_345.4, "reads_per_s", "12.3 kIOPS"),
        (0.0, "bytes_per_s", "0 B/s"),
    ],
)
def test_rates_are_in_powers_of_a_thousand(value: float, unit: str, text: str) -> None:
    assert format_rate(value, unit) == text
