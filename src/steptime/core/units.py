"""Writes quantities as text for people: the only place with milliseconds, GiB and percent.

In: seconds, bytes, fractions, counts. Out: three significant digits and a unit. `report` decides
which numbers are shown, and where.
"""

from __future__ import annotations

import math

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_RATES = {
    "flops_per_s": "FLOPS",
    "ops_per_s": "OPS",
    "bytes_per_s": "B/s",
    "bits_per_s": "b/s",
    "reads_per_s": "IOPS",
}
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
_FIRST_WHOLE_COUNT = 1000


def format_seconds(value_s: float) -> str:
    """Return a time: `380 µs`, `12.3 ms`, `1.50 s`, `2 min 05 s`, `3 h 07 min`."""
    if value_s < 0:
        return "-" + format_seconds(-value_s)
    # It rounds (to three digits) before it chooses the unit: 0.9996 s is 1.00 s, not 1000 ms.
    rounded = 0.0 if value_s == 0 else round(value_s, 2 - math.floor(math.log10(abs(value_s))))
    if rounded >= 60:
        return _long_time(round(value_s))
    if rounded == 0:
        return "0 s"
    scale, unit = next((row for row in _SECONDS if rounded >= row[0]), _SECONDS[-1])
    return f"{_digits(rounded / scale)} {unit}"


def format_bytes(value_bytes: float) -> str:
    """Return a size in powers of 1024: `512 B`, `1.50 GiB`."""
    if value_bytes < 0:
        return "-" + format_bytes(-value_bytes)
    size, power = value_bytes, 0
    # 1023.5 would become 1024 of its unit.
    while size >= 1023.5 and power < len(_BYTES) - 1:
        size, power = size / 1024, power + 1
    return f"{round(size) if power == 0 else _digits(size)} {_BYTES[power]}"


def format_flops(value_flops: float) -> str:
    """Return an amount of work in powers of 1000: `512 FLOP`, `1.50 TFLOP`; add an S for a rate."""
    return _in_thousands(value_flops) + "FLOP"


def format_energy(value_j: float) -> str:
    """Return an energy in powers of 1000: `512 J`, `2.31 MJ`."""
    return _in_thousands(value_j) + "J"


def format_rate(value: float, unit: str) -> str:
    """Return a rate in powers of 1000: `160 GFLOPS`, `13.1 GB/s`, `400 Gb/s`, `12.3 kIOPS`.

    Args:
        value: zero or above.
        unit: `flops_per_s`, `ops_per_s`, `bytes_per_s`, `bits_per_s` or `reads_per_s`.
    """
    return _in_thousands(value) + _RATES[unit]


def _in_thousands(value: float) -> str:
    """Return the digits and the prefix of a unit."""
    size, power = float(value), 0
    # 999.5 would become 1000 of its unit.
    while abs(size) >= 999.5 and power < len(_PREFIXES) - 1:
        size, power = size / 1000, power + 1
    digits = f"{round(size)}" if power == 0 else _digits(size)
    return f"{digits} {_PREFIXES[power]}"


def format_percent(fraction: float) -> str:
    """Return a fraction of 1 as percent: `34.7 %`, or `<0.1 %` for what would round to zero."""
    percent = fraction * 100
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.1f} %"


def format_speedup(ratio: float) -> str:
    """Return a ratio of times: `1.38x`."""
    return f"{_digits(ratio)}x"


def format_count(value: float) -> str:
    """Return a number of things: `512`, `2.5`, `99,999`, `1.20 million`.

    A mean of many things has no digits behind the point that mean anything.
    """
    if abs(value) >= 1e6:
        return f"{_digits(value / 1e6)} million" if abs(value) < 1e9 else f"{value:.2e}"
    if value == round(value) or abs(value) >= _FIRST_WHOLE_COUNT:
        return f"{round(value):,}"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def format_value(value: float, unit: str) -> str:
    """Return a number with its unit as `Evidence` has it: s, bytes, fraction, count, cores or x."""
    if unit == "s":
        return format_seconds(value)
    if unit == "bytes":
        return format_bytes(value)
    if unit == "fraction":
        return format_percent(value)
    if unit == "x":
        return format_speedup(value)
    return f"{format_count(value)} cores" if unit == "cores" else format_count(value)


def _digits(value: float) -> str:
    """Return three significant digits without an exponent, and all digits before the point."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _long_time(seconds: int) -> str:
    minutes, rest_s = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"
