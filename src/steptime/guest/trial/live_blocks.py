"""Compares states inside one process: short blocks in turns, levers on and off between steps.

What the parent shows says what is compared, another text for each experiment
(docs/internals/study-folder.md). Every decision follows from it and from the number of
steps, so the ranks of one training decide alike without communicating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from time import perf_counter_ns
from typing import Any

from ..timeline.cycle import Cycle
from .lever_stack import LeverStack, NotUndoneError
from .shown import ShownFile, ShownMemory
from .trial_plan import Wanted, take_json, take_levers

POLL_NS = 50_000_000
"""How often it is looked at; with several ranks at each step, because all must see it."""

Place = tuple[int, int, int, int]
"""The place of an update: experiment, round, state, and whether it counts."""

NO_EXPERIMENT: Place = (-1, 0, 0, 1)


@dataclass(frozen=True)
class Experiment:
    """What the parent shows."""

    number: int
    starts_at: int
    num_rounds: int
    settle_steps: int
    block_steps: int
    seed: int
    states: tuple[tuple[Wanted, ...], ...]

    @property
    def steps_a_block(self) -> int:
        """The steps that count and the settling steps before them."""
        return self.settle_steps + self.block_steps


def take_experiment(text: bytes) -> Experiment:
    """Return the experiment in a text; raise whatever is wrong with it."""
    values = take_json(text)
    return Experiment(
        number=int(values["experiment"]),
        starts_at=int(values["starts_at"]),
        num_rounds=int(values["num_rounds"]),
        settle_steps=int(values["settle_steps"]),
        block_steps=max(1, int(values["block_steps"])),
        seed=int(values["seed"]),
        states=tuple(take_levers(state) for state in values["states"]),
    )


def order_of(experiment: Experiment, round_number: int) -> list[int]:
    """Return the order in which the states of a round are on, the same on all ranks."""
    order = list(range(len(experiment.states)))
    Random(f"{experiment.seed}:{experiment.number}:{round_number}").shuffle(order)
    return order


def slots_of(experiment: Experiment) -> Iterator[tuple[int, int]]:
    """Yield round and state of each block."""
    for round_number in range(experiment.num_rounds):
        for state in order_of(experiment, round_number):
            yield round_number, state


class Live:
    """Runs the experiments of one process.

    Args:
        shown: by the parent.
        stack: the levers; those of the plan stay on below every state.
        tell: `tell(wanted, place, error)` writes that a lever was put on, or why not.
        end_experiment: `end_experiment(experiment, fallen)` writes that one is over, and in which
            of its states something compiled ran uncompiled from some block on.
        count_fallbacks: returns how often torch.compile has given up so far.
        is_joint: whether other ranks must be in the same state.
        clock: [ns].
    """

    def __init__(
        self,
        shown: ShownFile | ShownMemory,
        stack: LeverStack,
        *,
        tell: Callable[[Wanted, Place, Exception | None], None],
        end_experiment: Callable[[Experiment, list[int]], None],
        count_fallbacks: Callable[[], int] = lambda: 0,
        is_joint: Callable[[], bool],
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.shown = shown
        self.stack = stack
        self.num_fixed = len(stack.owners)
        self.tell = tell
        self.end_experiment = end_experiment
        self.count_fallbacks = count_fallbacks
        self.is_joint = is_joint
        self.clock = clock
        self.poll_due = 0
        self.mark: Any = None
        self.reset()

    def reset(self) -> None:
        """Compare nothing, as at the start and in a forked child."""
        self.cycle = Cycle()
        self.place = NO_EXPERIMENT
        self.running: Experiment | None = None
        self.due: Experiment | None = None
        self.last_number: int | None = None
        self.generation = 0
        self.slots: Iterator[tuple[int, int]] = iter(())
        self.num_steps = 0  # of the current block
        self.failed: set[int] = set()
        self.told: set[int] = set()
        self.num_fallbacks = 0
        self.fallen: set[int] = set()
        self.fallen_before: list[tuple[Wanted, ...]] = []  # what has fallen back once stays so

    def end_update(self, num_updates: int, optimizer: int) -> None:
        """Take the end of the update with the number `num_updates - 1`."""
        ends_step = self.cycle.add(optimizer)
        if self.generation != self.cycle.generation:
            self.generation = self.cycle.generation
            if self.running is not None:
                self.num_steps = 0
                self._set_place(self.running, *self.place[1:3])
        if not ends_step:
            return
        self._poll()
        if self.running is not None:
            self._end_step(self.running)
        elif self.due is not None and num_updates >= self.due.starts_at:
            self._begin(self.due, num_updates)

    # -- what is shown

    def _poll(self) -> None:
        now = self.clock()
        if now < self.poll_due and not self.is_joint():
            return
        self.poll_due = now + POLL_NS
        mark = self.shown.mark()
        if mark is None or mark == self.mark:
            return
        self.mark = mark
        experiment = take_experiment(self.shown.read())
        if experiment.number == self.last_number:
            return
        self.last_number = experiment.number
        self.due = experiment
        if self.running is not None:
            self._leave(self.running)

    # -- an experiment

    def _begin(self, experiment: Experiment, num_updates: int) -> None:
        self.due, self.running = None, experiment
        self.slots = slots_of(experiment)
        self.failed, self.told = set(), set()
        self.num_fallbacks = self.count_fallbacks()
        states = enumerate(experiment.states)
        self.fallen = {number for number, state in states if state in self.fallen_before}
        num_missed = self._steps_since(experiment.starts_at, num_updates) if self.is_joint() else 0
        num_blocks, num_steps = divmod(num_missed, experiment.steps_a_block)
        for _ in range(num_blocks):
            next(self.slots, None)
        self._next_block(experiment)
        if self.running is not None and num_steps:  # the other ranks began it without us
            self.num_steps = num_steps
            self.place = (*self.place[:3], 0)

    def _steps_since(self, starts_at: int, num_updates: int) -> int:
        """Return how many steps ago this experiment began on ranks that saw it in time."""
        cycle = self.cycle
        offset = num_updates - cycle.num
        first = cycle.first_step_at(max(0, starts_at - offset))
        return max(0, cycle.num - first) // max(1, cycle.period)

    def _end_step(self, experiment: Experiment) -> None:
        self.num_steps += 1
        if self.num_steps >= experiment.steps_a_block:
            self._see_fallbacks(experiment)
            self._next_block(experiment)
        elif self.num_steps == experiment.settle_steps:
            self.place = (*self.place[:3], 1)

    def _see_fallbacks(self, experiment: Experiment) -> None:
        """Note whether torch.compile gave up in the block that ended."""
        before, self.num_fallbacks = self.num_fallbacks, self.count_fallbacks()
        if self.num_fallbacks > before:
            state = self.place[2]
            self.fallen.add(state)
            if experiment.states[state]:  # the script's own state is part of every state
                self.fallen_before.append(experiment.states[state])

    def _next_block(self, experiment: Experiment) -> None:
        for round_number, state in self.slots:
            if state not in self.failed and self._enter(experiment, round_number, state):
                self.num_steps = 0
                return
        self._leave(experiment)
        self.end_experiment(experiment, sorted(self.fallen))

    def _set_place(self, experiment: Experiment, round_number: int, state: int) -> None:
        counts = int(experiment.settle_steps == 0)
        self.place = (experiment.number, round_number, state, counts)

    def _enter(self, experiment: Experiment, round_number: int, state: int) -> bool:
        """Put the levers of a state on; return False if that fails."""
        self._set_place(experiment, round_number, state)
        wanted = experiment.states[state]
        error = self._go_to(wanted)
        if error is not None:
            self.failed.add(state)
            self.tell(wanted[len(self.stack.owners) - self.num_fixed], self.place, error)
        elif state not in self.told:
            for one in wanted:
                self.tell(one, self.place, None)
        self.told.add(state)
        return error is None

    def _go_to(self, state: tuple[Wanted, ...]) -> Exception | None:
        try:
            self.stack.go_to(state, above=self.num_fixed)
        except NotUndoneError:
            raise  # nobody knows what is on now
        except Exception as error:
            return error
        return None

    def _leave(self, experiment: Experiment) -> None:
        """Put the reference on until the next experiment."""
        self.running = None
        reference = experiment.states[0] if experiment.states else ()
        if self._go_to(reference) is not None:
            self._go_to(())
        self.place = NO_EXPERIMENT
