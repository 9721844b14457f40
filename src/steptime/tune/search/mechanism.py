"""What is known of how levers act beside each other, before anything is measured.

Levers are named here because the mechanism is theirs: threads of operators and workers of a loader
share the cores. docs/explanation/how-we-tune.md says what is made of it.
"""

from __future__ import annotations

MAY_SLOW_DOWN = frozenset({"num_threads"})
"""Levers that slow down as easily as they help: no part of a bundle that was put together unseen,
and tried again beside levers that give cores away or make the input shorter."""
