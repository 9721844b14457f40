"""Gathers what tells whether a training does what its owner thinks; writes one line of it.

In: what the hooks see of the thread that steps first. Out: the line `se`; the last one counts.
"""

from __future__ import annotations

from json import dumps
from types import FrameType, FunctionType
from typing import Any

from ...record import kinds
from ..hooks.patching import without_dynamo
from ..sites.frames import Frames
from ..timeline.journal import Journal
from ..timeline.recorder import Recorder
from .accumulated import Accumulated
from .few_elements import Elements
from .kept_outputs import OutputWatch
from .learning_rates import Rates
from .loss_graph import NEVER, LossGraph, factor_of, nodes_of, shapes_of
from .modes import Modes
from .replicas import Replicas
from .sampler_orders import SamplerOrders
from .uncleared import FollowedGradient, Uncleared
from .worker_facts import MAX_DATA_SETS, EpochBook


class SenseWatch:
    """Hands what the hooks see to the parts that watch for it.

    A thread that is not the first to step has no watch of losses, and is left alone here, too.
    """

    place = "sense"

    def __init__(self, torch: Any, recorder: Recorder, frames: Frames, trained: set[int]) -> None:
        self.torch = torch
        self.recorder = recorder
        self.frames = frames
        self.is_off = False
        self.trained = trained
        self.epochs = EpochBook(trained)  # a worker, which is forked, knows its epoch by it
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.uncleared = Uncleared(self.torch)
        self.loss = LossGraph(self.torch, self.frames)
        self.rates = Rates(self.frames)
        self.modes = Modes(self.torch, self.frames, self._is_seen)
        self.accumulated = Accumulated()
        self.kept = OutputWatch(self.torch)
        self.replicas = Replicas(self.torch)
        self.look = without_dynamo(self.torch, self._look)
        self.orders = SamplerOrders(self.torch, self.trained)
        self.num_rested = 0
        self.first: int | None = None
        self.number = 0
        self.turns: dict[int, tuple[int, int]] = {}  # by data set: epochs, updates as one began
        self.told = ""
        if self.is_off:
            self.stop()

    def stop(self) -> None:
        """Watch nothing in this process."""
        self.is_off = True
        self.loss.due = NEVER

    def begin_epoch(self, loader: Any) -> None:
        """Take the beginning of an epoch of a loader; one without an update counts no further."""
        self.epochs.begin(loader)
        self.accumulated.begin_epoch()
        key, now = id(loader.dataset), self.number
        num, before = self.turns.get(key, (0, -1))
        if now > before and (key in self.turns or len(self.turns) < MAX_DATA_SETS):
            self.turns[key] = num + 1, now

    def begin_backward(self, journal: Journal, args: Any) -> None:
        """Take the beginning of a backward call that is not inside another one."""
        may_read = journal.probe is None  # it would count what a look allocates
        has_rested = journal.num_rested != self.num_rested
        if has_rested:
            self.num_rested = journal.num_rested
            self.accumulated.skip()
        if self._leaves_gradients():
            pass
        elif has_rested:
            self.uncleared.skip()
        else:
            self.uncleared.begin_backward(may_read=may_read)
        if self.replicas.models:
            self.look(self.replicas.begin_backward, may_read=may_read and not self._is_seen())
        accumulated, is_due = self.accumulated, may_read and journal.num_updates >= self.loss.due
        if is_due:
            self.loss.plan(journal.num_updates)
        awaits = may_read and accumulated.awaits_gradients
        accumulated.begin_backward()
        if (is_due or awaits or accumulated.awaits_part) and may_read and not self._is_seen():
            self._see_loss(args, is_due=is_due, awaits=awaits)

    def _see_loss(self, args: Any, *, is_due: bool, awaits: bool) -> None:
        """Read what is due of the loss and of the gradients before a backward call."""
        if awaits:
            self.accumulated.see_gradients()
        if is_due:
            self.loss.see(args)
        if self.accumulated.awaits_part and (part := self.loss.see_part(args)) is not None:
            self.accumulated.parts.append(part)

    def end_backward(self) -> None:
        """Take the end of that call."""
        if not self._leaves_gradients():
            self.uncleared.end_backward()

    def _leaves_gradients(self) -> bool:
        """Return whether no gradient is followed: none any more where a mode would see us read."""
        if self.uncleared.watched and self._is_seen():
            self.uncleared.watched.clear()
        return not self.uncleared.watched

    def _is_seen(self) -> bool:
        """Return whether a mode of the script sees what is asked of a tensor."""
        own = self.torch._C
        return bool(own._len_torch_function_stack() or own._len_torch_dispatch_stack())

    def end_step(self, journal: Journal, optimizer: Any) -> None:
        """Take the end of an update."""
        if self.is_off or journal.losses is None:
            return
        if self.first is None:  # backward calls before it were counted as updates
            self.first = journal.num_updates - 1
        key, number = id(optimizer), journal.num_updates - self.first
        self.number = number
        self.rates.end_step(key, optimizer, number)
        self.modes.end_step(optimizer, number)
        self.accumulated.end_step(optimizer)
        if self.replicas.models:
            self.look(self.replicas.end_step, optimizer, may_read=not self._is_seen())
        if self.uncleared.awaits(key) and not self._is_seen():
            self.uncleared.end_step(key, optimizer)

    def end_rested(self, optimizer: Any, num_updates: int) -> None:
        """Take the end of an update that is only timed."""
        self.number = num_updates - (self.first or 0)
        self.rates.end_step(id(optimizer), optimizer, self.number)

    def begin_call(self, module: Any, args: Any, kwargs: Any) -> None:
        """Take an outermost call of a model with gradients."""
        self.modes.see_call(module)
        if (awaited := self.replicas.awaits) is not None and awaited() is module:
            may_read = not self._is_seen()
            self.look(self.replicas.begin_call, module, args, kwargs, may_read=may_read)

    def _look(self, act: Any, *args: Any, may_read: bool) -> None:
        """Look at the replicas of this process, and at none any more where that fails."""
        try:
            act(*args, may_read=may_read)
        except BaseException:
            self.recorder.fail("replicas")
            self.replicas = Replicas(self.torch)

    def end_epoch(self, iterator: Any) -> None:
        """Take the end of an epoch of a loader."""
        if not self.is_off:
            self.orders.end_epoch(iterator)

    def see_scheduler(self, scheduler: Any, frame: FrameType) -> None:
        """Take a step of a scheduler that begins."""
        self.rates.see_scheduler(scheduler, frame)

    def see_eval(self, module: Any, frame: FrameType) -> None:
        """Take a call of `eval()` that begins."""
        if module.training:
            self.modes.see_eval(module, frame)

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the lines with what is new."""
        return self.replicas.poll() + self._tell()

    def _tell(self) -> str:
        facts = {
            "uncleared": next(iter(self.uncleared.found.values()), None),
            "rates": self.rates.tell(),
            "num_epochs": max(
                (num for key, (num, _) in self.turns.items() if key in self.epochs.trained),
                default=0,
            ),
            "evaluated": self.modes.tell(),
            "broadcast": self.loss.broadcast,
            "targets": self.loss.targets,
            "left_over": self.accumulated.tell_left(),
            "unequal": self.accumulated.tell_unequal(),
            "kept_outputs": self.kept.found,
            "epochs": self.epochs.tell(),
            "order": self.orders.tell(),
        }
        if not any(facts.values()) or (told := dumps(facts)) == self.told:
            return ""
        self.told = told
        return dumps({"k": kinds.SENSE, "n": self.recorder.num_updates} | facts) + "\n"


def _functions_of(kind: type) -> list[Any]:
    return [one for one in vars(kind).values() if isinstance(one, FunctionType)]


TAKE_TENSORS = (
    *(nodes_of, shapes_of, factor_of),
    *(
        one
        for kind in (
            *(SenseWatch, Uncleared, FollowedGradient, LossGraph, Modes, Accumulated),
            *(Replicas, Elements),
        )
        for one in _functions_of(kind)
    ),
)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
