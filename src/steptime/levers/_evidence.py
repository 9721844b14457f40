"""Makes the rows of what levers gave.

This is no lever, as it has no `LEVER`.
"""

from __future__ import annotations

from steptime.levers.base import LeverEvidence


def gave(
    training: str,
    source: str,
    speedup: float | None = None,
    low: float | None = None,
    high: float | None = None,
    remark: str = "",
) -> LeverEvidence:
    """Return what a lever gave in a training: a speedup with its range, or words alone."""
    return LeverEvidence(
        training=training, speedup=speedup, low=low, high=high, remark=remark, source=source
    )
