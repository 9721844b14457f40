"""The peaks that a user gives for a device that no table knows, or knows otherwise.

In: `bf16=312`, or a mapping from Python. Out: FLOP/s by type, checked for range; errors say what
was expected. `diagnose.peaks` uses them before those of the datasheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steptime.core.devices.accelerators import DTYPES
from steptime.errors import UsageError

PEAK_TYPES = ("fp64", *DTYPES)

MIN_TFLOPS, MAX_TFLOPS = 0.001, 100_000.0
"""One core does more, and no device does as much: what is outside was given in another unit."""

_EXAMPLE = "--peak bf16=312"


def parse_peaks(texts: Iterable[str], *, flag: str = "--peak") -> dict[str, float]:
    """Return the peaks in texts such as `bf16=312` by type [FLOP/s].

    Raises:
        UsageError: a text has another form, an unknown type, or a number out of range.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, sign, number = text.partition("=")
        if not sign:
            message = f"{flag} must be TYPE=TFLOPS, got `{text}`."
            raise UsageError(message, hint=f"Write: {_EXAMPLE}")
        if name.strip() in found:
            raise UsageError(f"{flag} gives {name.strip()} twice.", hint="Give each type once.")
        found |= check_peaks({name.strip(): number.strip()}, flag=flag)
    return found


def check_peaks(peaks: Mapping[str, float | str], *, flag: str = "peak") -> dict[str, float]:
    """Return peaks that were given in TFLOPS by type [FLOP/s].

    Raises:
        UsageError: an unknown type, or a number out of range.
    """
    found: dict[str, float] = {}
    for name, given in peaks.items():
        if name not in PEAK_TYPES:
            known = ", ".join(PEAK_TYPES)
            message = f"{flag}: the type must be one of {known}, got `{name}`."
            raise UsageError(message, hint=f"Write: {_EXAMPLE}")
        try:
            tflops = float(given)
        except (TypeError, ValueError):
            tflops = float("nan")
        if not MIN_TFLOPS <= tflops <= MAX_TFLOPS:
            raise UsageError(
                f"{flag} {name} must be a number of TFLOPS from {MIN_TFLOPS:g} to "
                f"{MAX_TFLOPS:,.0f}, got `{given}`.",
                hint=f"1 TFLOPS is 1e12 FLOP per second, without sparsity. Write: {_EXAMPLE}",
            )
        found[name] = tflops * 1e12
    return found
