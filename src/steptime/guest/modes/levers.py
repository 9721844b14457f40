"""Levers are on: under a recipe, or in a trial, which learns about the script besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..longest.largest_first import LargestFirst
from ..trial.device_limit import limit_devices
from ..trial.trial_guest import install_trial
from .mode import GuestMode, Targets

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext
    from ..timeline.kept_beside import CountedUpdates
    from ..trial.trial_plan import TrialPlan


class WithLevers(GuestMode):
    """Apply the plan's levers, and do what else it wants of a trial."""

    may_rest = looks_at_script = False

    def __init__(self, plan: TrialPlan) -> None:
        self.plan = plan
        is_alone = plan.is_live  # each step is timed against others
        self.looks_at_memory = self.looks_at_weights = self.looks_at_batches = not is_alone
        self.looks_at_epochs = not (is_alone or plan.hands_out_largest)
        self.walks_frames = not is_alone
        self.answers = self.records_calls = plan.is_recipe  # a trial leaves nothing outside

    def install(
        self, context: TorchContext, targets: Targets, finish: Callable[[TorchContext], None]
    ) -> None:
        """Put the levers on; what judges the quality comes last, outside their hooks."""
        plan = self.plan
        install_trial(context, plan, lambda: finish(context))
        if plan.device_bytes is not None:
            context.guarded("device_limit", limit_devices, context.torch, plan.device_bytes)
        if plan.hands_out_largest:
            LargestFirst(context.torch).install()
        if plan.quality is not None:
            from ..quality.quality_setup import install

            install(context, plan.quality, targets)

    def new_plan(self, context: TorchContext) -> CountedUpdates | None:
        """Count once, unless each step is timed."""
        return None if self.plan.is_live else context.plan_counts(is_once=True)
