"""The value of what ends a run, and of the command that gets its findings."""

from __future__ import annotations

from dataclasses import dataclass

STOPS = ("non_finite", "stall", "no_learning", "sense")
"""The words of `--stop-on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWish:
    """What ends a run (`on` holds words of `STOPS`), and the command that gets each finding."""

    on: tuple[str, ...] = ()
    after_steps: int = 0
    tell: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be judged."""
        return not self.on and not self.tell
