"""Which part of an update is a rollout, with a clock that is advanced by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from steptime.guest.frameworks.torch.device_clock import DeviceClock
from steptime.guest.timeline.rollout_time import MIN_CALLS, ActingCalls
from steptime.record.buckets import BUCKETS, FORWARD, SYNC
from unit.guest_loop import Loop, by_name

MS = 1_000_000


@pytest.fixture
def loop() -> Loop:
    loop = Loop()
    loop.start()
    return loop


def train(loop: Loop) -> None:
    loop.forward(20)
    loop.spend(3)  # a functional loss
    loop.backward(40)
    loop.step(10)


TRAINED = {"forward": 20, "loss": 3, "backward": 40, "optimizer": 10}


# -- loops of reinforcement learning


def test_acting_and_environments_up_to_the_first_forward_are_a_rollout(loop: Loop) -> None:
    loop.spend(7)  # a log of the update before
    for _ in range(2):
        loop.act(5)
        loop.spend(1)
        loop.environment(50)
        loop.spend(2)
    loop.act(4)  # the value of the last state
    loop.spend(30)  # returns
    train(loop)
    loop.spend(9)  # the next minibatch is drawn
    train(loop)

    first, second = loop.updates
    assert first.wall == {**TRAINED, "other": 7, "rollout": 2 * 58 + 34}
    assert second.wall == {**TRAINED, "other": 9}
    assert first.cpu == first.wall
    assert not first.pending
    assert first.end - first.start == sum(first.wall.values())


def test_calls_with_gradients_before_an_environments_step_chose_the_action(loop: Loop) -> None:
    for _ in range(3):
        loop.forward(5)
        loop.spend(1)
        loop.environment(50)
        loop.spend(2)
    loop.environment(50)  # a random action
    loop.spend(6)  # drawing from the buffer
    with loop.marker(FORWARD):  # the target network, which is never trained
        loop.spend(8)
    loop.spend(1)
    train(loop)

    # Before the first step of an environment nobody knows that there are any.
    assert loop.update.wall == {**TRAINED, "forward": 20 + 8 + 5, "rollout": 3 * 58 + 57 - 5}
    train_again(loop)


def train_again(loop: Loop) -> None:
    """The second update knows from its beginning that there are environments."""
    loop.updates.clear()
    loop.forward(5)
    loop.spend(1)
    loop.environment(50)
    loop.spend(2)
    train(loop)
    assert loop.update.wall == {**TRAINED, "rollout": 58}


def test_an_episode_whose_calls_are_trained_on_ends_with_its_last_step(loop: Loop) -> None:
    loop.environment(1)
    loop.step()
    loop.updates.clear()
    for _ in range(2):
        loop.forward(5)
        loop.spend(1)
        loop.environment(50)
        loop.spend(2)
    loop.spend(30)  # the loss, from what the calls have returned
    loop.backward(40)
    loop.step(10)

    wall = loop.update.wall
    assert wall["rollout"] == 2 * 55 + 3
    assert wall["loss"] == 1 + 2 + 30
    assert "forward" not in wall
    assert "other" not in wall


def test_a_rollout_between_two_backward_calls_belongs_to_the_later_one(loop: Loop) -> None:
    loop.forward(20)
    loop.backward(40)
    loop.environment(50)
    loop.forward(20)
    loop.backward(40)
    loop.step(10)

    assert loop.update.wall == {"forward": 40, "backward": 80, "rollout": 50, "optimizer": 10}


def test_an_environment_without_training_counts_to_its_last_step(loop: Loop) -> None:
    loop.environment(50)
    loop.spend(3)
    loop.environment(50)
    loop.spend(8)
    loop.step(10)

    assert loop.update.wall == {"rollout": 103, "other": 8, "optimizer": 10}


def test_an_update_inside_an_environments_step_ends_the_rollout_there(loop: Loop) -> None:
    loop.timeline.rollout.enter_step(loop.timeline)
    loop.spend(5)
    loop.step(10)
    loop.spend(6)
    loop.timeline.rollout.leave_certain(loop.timeline)
    loop.spend(7)
    loop.step(10)

    first, second = loop.updates
    assert first.wall == {"rollout": 5, "optimizer": 10}
    assert second.wall == {"rollout": 6, "other": 7, "optimizer": 10}


# -- generation


def test_a_text_generated_call_by_call_is_a_rollout_with_its_rewards(loop: Loop) -> None:
    loop.batch(100)
    loop.spend(2)  # a prompt is encoded
    for _ in range(MIN_CALLS):
        loop.act(5)
        loop.spend(1)
    loop.spend(30)  # rewards
    with loop.marker(FORWARD):  # the reference
        loop.spend(8)
    loop.spend(1)
    train(loop)

    rolled = MIN_CALLS * 6 + 31
    assert loop.update.wall == {
        **TRAINED,
        "input_wait": 100,
        "other": 2,
        "forward": 28,
        "rollout": rolled,
    }
    assert loop.update.counts["prepare_ns"] == 2


def test_a_few_calls_are_no_rollout(loop: Loop) -> None:
    for _ in range(MIN_CALLS - 1):
        loop.act(5)
        loop.spend(1)
    train(loop)

    calls = MIN_CALLS - 1
    assert loop.update.wall == {**TRAINED, "forward": 20 + 5 * calls, "other": calls}


def test_calls_of_one_size_are_no_rollout_without_an_environment(loop: Loop) -> None:
    for _ in range(5 * MIN_CALLS):  # an evaluation, a frozen encoder, targets of a replay buffer
        loop.act(5, grows=False)
        loop.spend(1)
    train(loop)

    calls = 5 * MIN_CALLS
    assert loop.update.wall == {**TRAINED, "forward": 20 + 5 * calls, "other": calls}


def test_calls_on_batches_of_a_loader_are_no_rollout(loop: Loop) -> None:
    for _ in range(2 * MIN_CALLS):  # a validation in training mode
        loop.batch(10)
        loop.act(5)
        loop.spend(1)
    train(loop)

    calls = 2 * MIN_CALLS
    assert loop.update.wall["input_wait"] == 10 * calls
    assert loop.update.wall["forward"] == 20 + 5 * calls
    assert "rollout" not in loop.update.wall


def test_calls_after_the_updates_own_forward_are_no_rollout(loop: Loop) -> None:
    for _ in range(MIN_CALLS):
        loop.act(5)
    loop.forward(20)
    loop.act(6)  # how far the policy has moved
    loop.generate(4)  # a text to look at
    loop.backward(40)
    loop.step(10)

    assert loop.update.wall["rollout"] == 5 * MIN_CALLS + 4
    assert loop.update.wall["forward"] == 26


def test_one_generation_is_certain(loop: Loop) -> None:
    loop.generate(50)
    loop.spend(5)
    train(loop)

    assert loop.update.wall == {**TRAINED, "rollout": 55}


def test_an_evaluation_after_a_rollout_takes_nothing_of_it(loop: Loop) -> None:
    loop.environment(50)
    loop.spend(5)
    loop.evaluate(100)
    loop.spend(2)
    loop.evaluate(100)
    train(loop)

    assert loop.update.wall == {**TRAINED, "rollout": 55, "evaluation": 202}


def test_a_few_calls_before_an_evaluation_belong_to_it(loop: Loop) -> None:
    loop.act(5)
    loop.spend(1)
    loop.evaluate(100)
    train(loop)

    assert loop.update.wall == {**TRAINED, "evaluation": 106}
    assert not loop.update.pending


def test_the_work_of_a_compiled_function_begins_where_the_rollout_ends(loop: Loop) -> None:
    for _ in range(MIN_CALLS):
        loop.act(5)
        loop.spend(1)
    loop.spend(30)  # rewards, and a compiled function that swallows the model's call
    loop.backward(40)
    loop.step(10)

    assert loop.update.wall == {
        "rollout": MIN_CALLS * 6 - 1,
        "forward_and_loss": 31,
        "backward": 40,
        "optimizer": 10,
    }


def test_a_marker_inside_a_rollout_keeps_its_time(loop: Loop) -> None:
    loop.environment(50)
    with loop.marker(SYNC):
        loop.spend(7)
    loop.environment(50)
    train(loop)

    assert loop.update.wall == {**TRAINED, "rollout": 100, "sync": 7}


# -- on a device


class Event:
    """An event that has always passed."""

    now_ms = 0.0

    def record(self) -> None:
        self.at_ms = Event.now_ms

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return float(end.at_ms - self.at_ms)


def test_device_time_has_the_name_that_the_hosts_has(loop: Loop) -> None:
    clock = loop.timeline.device = DeviceClock(Event)

    def spend(ms: int) -> None:
        Event.now_ms += ms
        loop.spend(ms)

    spend(1)
    loop.timeline.enter(FORWARD)  # opens the books of the device
    loop.timeline.leave()
    spend(2)
    for _ in range(MIN_CALLS):
        loop.timeline.rollout.enter_call(loop.timeline, grows=True)
        spend(5)
        loop.timeline.rollout.leave_call(loop.timeline)
        spend(1)
    loop.timeline.enter_forward()
    spend(20)
    loop.timeline.leave_forward(loss_inside=True)
    spend(3)
    loop.timeline.enter_backward()
    loop.timeline.leave_backward()
    loop.step()
    clock.close_update(0)

    (line,) = clock.pop_lines()
    found = {name: ns // MS for name, ns in by_name(BUCKETS, json.loads(line)["d"]).items()}
    assert found == {"other": 2 + 3, "rollout": 6 * MIN_CALLS, "forward": 20}


# -- which calls act


def test_a_trained_model_acts_on_less_than_it_trains_on() -> None:
    calls = ActingCalls()
    calls.trained = 512

    assert calls.is_acting(4, is_trained=True, in_training=True)
    assert not calls.is_acting(512, is_trained=True, in_training=True)
    assert not calls.is_acting(4, is_trained=False, in_training=True)
    assert not calls.is_acting(0, is_trained=True, in_training=True)


def test_a_text_that_grows_is_generated_however_long_it_is() -> None:
    calls = ActingCalls()
    calls.trained = 64
    found, grows = [], []
    for size in (200, 220, 240, 240):
        found.append(calls.is_acting(size, is_trained=True, in_training=True))
        grows.append(calls.grows)

    assert found == grows == [False, True, True, False]


def test_a_copy_acts_where_environments_are_stepped_after_it() -> None:
    calls = ActingCalls()
    calls.trained = 512
    assert not calls.is_acting(24, is_trained=False, in_training=True)
    calls.see_environment(has_graph=False)

    assert calls.is_acting(24, is_trained=False, in_training=True)
    assert not calls.is_acting(512, is_trained=False, in_training=True)  # a target network


def test_the_call_of_an_update_before_chooses_no_action() -> None:
    calls = ActingCalls()
    calls.trained = 512
    calls.is_acting(512, is_trained=False, in_training=True)  # a target network
    calls.begin(1)
    calls.see_environment(has_graph=True)

    assert not calls.is_acting(512, is_trained=False, in_training=True)


@pytest.mark.parametrize(
    "before",
    [
        (True, False),  # an agent that is evaluated by playing
        (None, False),  # the same, where it acts with gradients
    ],
)
def test_an_agent_that_acts_in_training_mode_is_evaluated_in_eval_mode(
    before: tuple[bool | None, ...],
) -> None:
    calls = ActingCalls()
    for mode in before:
        calls.mode = mode
        calls.see_environment(has_graph=mode is None)

    assert not calls.acts_only_in_eval


def test_some_libraries_act_in_eval_mode_alone() -> None:
    calls = ActingCalls()
    calls.mode = False
    calls.see_environment(has_graph=False)

    assert calls.acts_only_in_eval
