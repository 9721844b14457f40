"""Reads a margin as people write it: `0.01`, `1%` or `1%-of-training`."""

from __future__ import annotations

from steptime.errors import UsageError
from steptime.verify.values.seed_runs import Margin, Unit

PERCENT, OF_TRAINING = "%", "%-of-training"


def parse_margin(text: str) -> Margin:
    """Return the margin that was written as `0.01`, `1%` or `1%-of-training`.

    Raises:
        UsageError: it is none of these, or not above 0.
    """
    units = ((OF_TRAINING, Unit.TRAINING), (PERCENT, Unit.PERCENT), ("", Unit.METRIC))
    end, unit = next(pair for pair in units if text.endswith(pair[0]))
    try:
        amount = float(text[: len(text) - len(end)])
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise UsageError(
            f"--margin must be a number above 0, as 0.01, 1% or 1%-of-training; got `{text}`."
        )
    return Margin(amount=amount, unit=unit)
