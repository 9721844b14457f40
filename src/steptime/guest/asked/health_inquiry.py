"""Probes the layers of some updates: what `run --health` does from the first update on.

The lines of the probe go into the record (`health/layer_look.py`), so the answer only says that
they are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..count.operators.operator_probe import is_compiling_at_all
from ..frameworks.torch.layer_hooks import layer_look
from .question_watcher import RefusedError

if TYPE_CHECKING:
    from ...record.live.questions import Question
    from ..frameworks.torch.torch_context import TorchContext
    from ..health.layer_look import LayerLook
    from ..timeline.journal import Journal


class HealthInquiry:
    """A probe of the layers that ends after some updates."""

    def __init__(self, context: TorchContext, question: Question) -> None:
        self.context = context
        self.num_steps = question.num_steps
        self.look: LayerLook | None = None
        self.num_updates = 0
        self.is_over = False

    @property
    def is_recording(self) -> bool:
        """Whether layers are probed."""
        return self.look is not None and self.look.is_on

    def begin(self, journal: Journal) -> bool:
        """Probe from the update that begins here.

        Raises:
            RefusedError: layers are probed already, cannot be without compiling again, or another
                thread than the first one steps.
        """
        context = self.context
        if is_compiling_at_all():
            raise RefusedError("compiled")
        if context.recorder.journals[0] is not journal:
            raise RefusedError("other_thread")
        look = layer_look(context)
        if look.is_on:
            raise RefusedError("run_health")
        look.start(num_updates=self.num_steps * max(1, context.recorder.num_optimizers))
        self.look = look
        journal.disturb()
        return True

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """Take the end of an update; when the probe is over, its lines must be on the disk."""
        look = self.look
        if look is None or look.is_on:
            self.num_updates += 1
            journal.disturb()
            return
        self.is_over = not (look.lines or look.device.fetch.waiting)

    def result(self) -> dict[str, Any]:
        """Return how many updates were probed; the record has what was seen."""
        return {"num_updates": self.num_updates + 1}

    def give_up(self) -> None:
        """End the probe early."""
        if self.look is not None:
            self.look.stop()
