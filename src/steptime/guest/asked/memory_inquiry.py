"""Finds who holds the memory in one update: at its backward call, and at its end.

A probe of its own does what the run's own memory probe did in the first update
(`memory/memory_probe.py`), and stands in for it meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..count.operators.operator_probe import PROBE_AT
from ..memory.dissect import make_probe
from ..memory.memory_probe import MemoryProbe
from ..watchers.process_memory import load_resource, make_reader
from .question_watcher import RefusedError

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext
    from ..timeline.journal import Journal

MAX_GROUPS = 12
"""Groups of tensors that belong to no part: those with most bytes."""

OWN_UPDATES = PROBE_AT + 1
"""Until then the run's own probe is at work."""


class AskedProbe(MemoryProbe):
    """The probe of one update; it hands on to the probe for which it stands in."""

    before: MemoryProbe | None = None

    def count_update(self, operators: Any) -> str | None:
        """Hand on the end of the update before ours."""
        return None if self.before is None else self.before.count_update(operators)

    def see_end(self) -> None:
        """Hand on what is due at the end of the update before ours."""
        if self.before is not None:
            self.before.see_end()

    def groups_alive(self) -> list[dict[str, Any]]:
        """Return the tensors that belong to no part, by type and shape, the largest first."""
        largest = sorted(self.groups.items(), key=lambda one: -one[1][0])[:MAX_GROUPS]
        return [{"name": name, "bytes": size, "num": num} for name, (size, num) in largest]

    @property
    def others_bytes(self) -> int:
        """Return the bytes of all tensors that belong to no part."""
        return sum(size for size, _ in self.groups.values())


class MemoryInquiry:
    """Takes the memory of the update that begins when it begins."""

    def __init__(self, context: TorchContext) -> None:
        self.context = context
        self.is_over = False
        self.told: dict[str, Any] | None = None
        self.probe: AskedProbe | None = None

    @property
    def is_recording(self) -> bool:
        """Whether an update is examined."""
        return self.probe is not None and not self.is_over

    def begin(self, journal: Journal) -> bool:
        """Begin with the update that begins here, unless it is counted or followed anyway."""
        context, before = self.context, self.context.anatomy
        is_followed = before is not None and before.storages is not None
        if journal.num_updates <= OWN_UPDATES or journal.probe is not None or is_followed:
            return False
        probe = make_probe(context, self._take, AskedProbe)
        probe.num_updates = journal.num_updates
        probe.before = before
        context.anatomy = self.probe = probe
        return True

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """Take what the update left."""
        if self.probe is not None:
            self.probe.num_updates = journal.num_updates
        self.context.dissect("see_update")
        self.is_over = True
        self._leave()

    def result(self) -> dict[str, Any]:
        """Return the facts of a line `mem`, with the tensors that belong to no part."""
        probe = self.probe
        if self.told is None or probe is None or "failed" in probe.facts:
            raise RefusedError("failed")
        return {
            "memory": self.told,
            "others_bytes": probe.others_bytes,
            "others": probe.groups_alive(),
            "resident_bytes": make_reader(load_resource())(),
        }

    def give_up(self) -> None:
        """Let the run's own probe take its place again."""
        self._leave()

    def _take(self, kind: str, facts: dict[str, Any]) -> None:
        """Take what is known so far; the last word counts."""
        self.told = facts

    def _leave(self) -> None:
        probe, context = self.probe, self.context
        if probe is not None and context.anatomy is probe:
            before = probe.before
            context.anatomy = None if before is None or before.is_over else before
