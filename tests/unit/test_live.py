"""Which state is on in which step, by the file and the number of steps alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from steptime.guest.trial.lever_session import Registry
from steptime.guest.trial.lever_stack import LeverStack, NotUndoneError
from steptime.guest.trial.live_blocks import NO_EXPERIMENT, Experiment, Live, Place, order_of
from steptime.guest.trial.shown import ShownFile
from steptime.guest.trial.trial_plan import Wanted


class World:
    """One process with levers `a`, `b`, … that only say when they go on and off."""

    def __init__(self, folder: Path, *, is_joint: bool = False) -> None:
        self.path = folder / "live.json"
        self.log: list[str] = []
        self.told: list[tuple[str, Place, str | None]] = []
        self.ended: list[int] = []
        self.fallen: list[list[int]] = []
        self.num_fallbacks = 0
        self.failing: set[str] = set()
        self.now = 0
        self.num_updates = 0
        self.num_written = 0
        registry = Registry(None, lambda owner, error: None, is_lenient=False)
        self.stack = LeverStack(registry, load=self.load)
        self.live = Live(
            ShownFile(str(self.path)),
            self.stack,
            tell=self.tell,
            end_experiment=self.end,
            count_fallbacks=lambda: self.num_fallbacks,
            is_joint=lambda: is_joint,
            clock=lambda: self.now,
        )

    def end(self, experiment: Experiment, fallen: list[int]) -> None:
        self.ended.append(experiment.number)
        self.fallen.append(fallen)

    def load(self, wanted: Wanted) -> Any:
        name = wanted.name

        def apply(settings: Any, session: Any) -> Any:
            if name in self.failing:
                raise ValueError(f"{name} fails")
            self.log.append(f"+{name}")
            return undo

        def undo() -> None:
            if f"undo {name}" in self.failing:
                raise ValueError(f"{name} stays")
            self.log.append(f"-{name}")

        class Lever:
            pass

        Lever.apply = staticmethod(apply)  # type: ignore[attr-defined]
        return Lever

    def tell(self, wanted: Wanted, place: Place, error: Exception | None) -> None:
        self.told.append((wanted.name, place, None if error is None else str(error)))

    def write(self, *states: str, **fields: Any) -> None:
        """Each state is the names of its levers."""
        values = {
            "schema": 1,
            "experiment": self.num_written,
            "starts_at": 0,
            "num_rounds": 2,
            "settle_steps": 1,
            "block_steps": 2,
            "seed": 7,
            "states": [[{"name": n, "settings": {}, "file": ""} for n in s] for s in states],
        }
        self.num_written += 1
        self.path.write_text(json.dumps({**values, **fields}))
        os.utime(self.path, ns=(self.num_written, self.num_written))

    def step(self, optimizer: int = 0) -> Place:
        """One update; where it was made."""
        place = self.live.place
        self.now += 60_000_000
        self.num_updates += 1
        self.live.end_update(self.num_updates, optimizer)
        return place

    def steps(self, num: int) -> list[Place]:
        return [self.step() for _ in range(num)]


def experiment(num_states: int, **fields: Any) -> Experiment:
    values = {
        "number": 0,
        "starts_at": 0,
        "num_rounds": 2,
        "settle_steps": 1,
        "block_steps": 2,
        "seed": 7,
    }
    return Experiment(**{**values, **fields, "states": ((),) * num_states})


def expected(order: list[list[int]], number: int = 0) -> list[Place]:
    """One settling step and two that count, a block."""
    return [
        (number, round_number, state, counts)
        for round_number, states in enumerate(order)
        for state in states
        for counts in (0, 1, 1)
    ]


def test_every_state_is_on_once_a_round_in_the_order_of_the_seed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.steps(3)
    world.write("", "a", "")
    world.steps(1)
    orders = [order_of(experiment(3), number) for number in range(2)]

    assert world.steps(18) == expected(orders)
    assert world.ended == [0]
    assert world.steps(2) == [NO_EXPERIMENT] * 2


def test_the_order_is_shuffled_and_differs_between_rounds_and_seeds() -> None:
    orders = {tuple(order_of(experiment(4, seed=seed), r)) for seed in (1, 2) for r in range(6)}

    assert len(orders) > 4
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)


def test_equal_states_in_turn_switch_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("a", "a", "a")
    world.steps(30)

    assert world.log == ["+a"]
    assert world.ended == [0]


def test_after_the_last_round_the_reference_is_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("a", "ab", "")
    world.steps(30)

    assert [owner.wanted.name for owner in world.stack.owners] == ["a"]


def test_an_experiment_waits_for_its_update(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", starts_at=10)
    places = world.steps(14)

    assert places[:10] == [NO_EXPERIMENT] * 10
    assert places[10][0] == 0


def test_the_next_experiment_follows_when_its_file_is_there(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", num_rounds=1)
    world.steps(12)
    world.write("", "b", num_rounds=1)
    world.steps(12)

    assert world.ended == [0, 1]
    assert world.log == ["+a", "-a", "+b", "-b"]


def test_a_file_that_is_replaced_ends_the_experiment_that_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", num_rounds=99)
    world.steps(20)
    world.write("", "b", num_rounds=1)
    world.steps(12)

    assert world.ended == [1]


def test_the_same_file_is_not_run_twice(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", num_rounds=1)
    world.steps(12)
    os.utime(world.path, ns=(5, 5))

    assert world.steps(5) == [NO_EXPERIMENT] * 5


def test_a_state_that_cannot_be_entered_is_told_and_left_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.failing = {"b"}
    world.write("", "ab", "a")
    places = world.steps(20)

    assert {place[2] for place in places if place[0] == 0} == {0, 2}
    errors = [(name, place[2], error) for name, place, error in world.told if error]
    assert errors == [("b", 1, "b fails")]
    assert world.ended == [0]


def test_a_lever_that_goes_on_is_told_once_a_state(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", num_rounds=5)
    world.steps(40)

    assert [(name, place[2], error) for name, place, error in world.told] == [("a", 1, None)]


def test_a_lever_that_cannot_be_taken_off_is_raised(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.failing = {"undo a"}
    world.write("", "a")

    with pytest.raises(NotUndoneError, match="a"):
        world.steps(20)


def test_a_gan_changes_state_between_its_rounds_of_optimizers(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", num_rounds=3)
    places = [world.step(number % 2) for number in range(60)]

    counted = [place for place in places if place[0] == 0]
    assert len(counted) == 3 * 2 * 3 * 2
    pairs = [places[number : number + 2] for number in range(0, 60, 2)]
    assert all(first == second for first, second in pairs)


def test_a_block_begins_again_when_the_optimizers_change_their_order(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", num_rounds=3, settle_steps=1, block_steps=5)
    world.steps(6)
    assert world.live.place[3] == 1
    place = world.live.place
    world.step(optimizer=1)

    assert world.live.place == (*place[:3], 0)


def test_nothing_counts_as_settling_where_nothing_is_to_settle(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", settle_steps=0, num_rounds=1)
    places = [place for place in world.steps(10) if place[0] == 0]

    assert [place[3] for place in places] == [1] * 4


def test_a_damaged_file_is_raised_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.path.write_text("{")
    world.steps(1)
    with pytest.raises(ValueError, match="Expecting"):
        world.steps(1)

    assert world.steps(3) == [NO_EXPERIMENT] * 3


def test_a_state_in_which_compile_gave_up_is_named_then_and_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("", "a", "b")
    while world.live.place[:1] + world.live.place[2:] != (0, 2, 1):
        world.step()
    world.num_fallbacks = 1
    world.steps(30)
    world.write("b", "a")
    world.steps(30)

    assert world.fallen == [[2], [0]]


def test_what_the_script_compiles_itself_falls_back_in_one_experiment(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(2):
        world.write("", "a")
        while world.live.place[:3] != (world.num_written - 1, 0, 0):
            world.step()
        world.num_fallbacks = 1
        world.steps(30)

    assert world.fallen == [[0], []]


# -- several ranks


def test_ranks_that_see_the_file_at_different_times_end_in_the_same_state(tmp_path: Path) -> None:
    for name in ("early", "late"):
        (tmp_path / name).mkdir()
    early = World(tmp_path / "early", is_joint=True)
    late = World(tmp_path / "late", is_joint=True)
    early.write("", "a", "b", starts_at=4)
    early_places = early.steps(8)
    late.steps(8)
    late.write("", "a", "b", starts_at=4)
    early_places += early.steps(20)
    late_places = late.steps(20)

    assert [p[:3] for p in late_places[1:]] == [p[:3] for p in early_places[9:]]
    cut = next(place for place in late_places if place[0] == 0)
    assert cut[3] == 0  # it did not see the block begin


def test_with_several_ranks_the_file_is_looked_at_in_each_step(tmp_path: Path) -> None:
    world = World(tmp_path, is_joint=True)
    world.steps(2)
    world.write("", "a", starts_at=5)
    world.now -= 120_000_000  # no time has passed
    world.steps(4)

    assert world.live.place[0] == 0
