"""The guest's timeline with a clock that is advanced by hand: no torch, no time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.guest.timeline.watch_budget import SAMPLE_BLOCK, SAMPLE_EVERY, SAMPLED_AT_FIRST
from steptime.record.buckets import (
    BACKWARD,
    BUCKETS,
    CHECKPOINT,
    COLLATE,
    COMMUNICATION,
    COMPILE,
    EPOCH_START,
    FETCH,
    FORWARD,
    GRADIENT_PROCESSING,
    INPUT_WAIT,
    NUM_BUCKETS,
    OPTIMIZER,
    OTHER,
    SYNC,
)
from unit.guest_loop import FIRST_TIME, Loop


@pytest.fixture
def loop() -> Loop:
    loop = Loop()
    loop.start()
    return loop


# -- the plain loop


def test_each_instant_of_a_textbook_step_has_its_phase(loop: Loop) -> None:
    loop.batch(100)
    loop.spend(1)  # zero_grad
    loop.forward(20)
    loop.spend(3)  # a functional loss
    loop.backward(40)
    loop.spend(5)  # a look at the gradients
    loop.step(10)

    assert loop.update.wall == {
        "input_wait": 100,
        "other": 1,
        "forward": 20,
        "loss": 3,
        "backward": 40,
        "gradient_processing": 5,
        "optimizer": 10,
    }
    assert loop.update.counts == {"batches": 1, "forwards": 1, "backwards": 1, "prepare_ns": 1}


def test_what_lies_between_a_batch_and_the_model_is_preparing(loop: Loop) -> None:
    loop.spend(1)
    loop.batch(100)
    loop.spend(30)  # augmentation
    with loop.marker(SYNC):
        loop.spend(7)
    loop.spend(3)
    loop.forward(20)
    loop.spend(5)
    loop.forward(20)
    loop.backward(40)
    loop.step(10)

    assert loop.update.counts["prepare_ns"] == 33


def test_a_batch_fetched_ahead_is_prepared_on_both_sides_of_the_update(loop: Loop) -> None:
    loop.forward(20)
    loop.backward(40)
    loop.batch(100)
    loop.spend(2)
    loop.step(10)
    loop.spend(5)
    loop.forward(20)
    loop.backward(40)
    loop.step(10)

    assert [update.counts["prepare_ns"] for update in loop.updates] == [2, 5]


def test_a_batch_that_no_model_is_called_with_is_not_prepared(loop: Loop) -> None:
    loop.batch(100)
    loop.spend(30)
    loop.evaluate(50)
    loop.spend(3)
    loop.forward(20)
    loop.backward(40)
    loop.batch(100)
    loop.spend(30)
    loop.backward(40)
    loop.forward(1)
    loop.step(10)

    assert "prepare_ns" not in loop.update.counts


def test_an_update_begins_where_the_one_before_ended(loop: Loop) -> None:
    loop.spend(7)
    loop.step(10)
    loop.spend(3)
    loop.step(10)

    first, second = loop.updates
    assert (first.end - first.start, second.end - second.start) == (17, 13)
    assert second.start == first.end


def test_what_came_before_the_first_marker_is_no_step() -> None:
    loop = Loop()
    loop.spend(1_000_000)  # imports, building the model
    loop.forward(20)
    loop.backward(30)
    loop.step(10)

    assert loop.update.start == FIRST_TIME + 1_000_000
    assert loop.update.wall == {"forward": 20, "backward": 30, "optimizer": 10}
    assert loop.update.cpu == loop.update.wall


def test_a_marker_inside_another_takes_its_time_out_of_it(loop: Loop) -> None:
    with loop.marker(INPUT_WAIT):
        loop.spend(1)
        with loop.marker(FETCH):
            loop.spend(10)
            with loop.marker(COLLATE):
                loop.spend(100)
        loop.spend(1000)
    with loop.marker(FORWARD):
        with loop.marker(SYNC):
            loop.spend(5)
        loop.spend(50)
    loop.step()

    assert loop.update.wall == {
        "input_wait": 1001,
        "fetch": 10,
        "collate": 100,
        "sync": 5,
        "forward": 50,
    }


def test_one_leave_too_many_does_no_harm(loop: Loop) -> None:
    loop.timeline.leave()
    loop.spend(4)
    loop.timeline.leave()
    loop.step(10)

    assert loop.update.wall == {"other": 4, "optimizer": 10}


def test_a_call_that_moved_nothing_gives_its_time_back(loop: Loop) -> None:
    with loop.marker(FORWARD):
        loop.timeline.enter(SYNC)
        loop.spend(6)
        loop.timeline.leave_unmoved()
        loop.spend(1)
    loop.timeline.enter(SYNC)
    loop.spend(9)
    loop.timeline.leave_unmoved()
    loop.step()

    assert loop.update.wall == {"forward": 7, "other": 9}


# -- what is named only later


def test_time_after_a_call_is_loss_only_if_a_backward_follows(loop: Loop) -> None:
    loop.forward(10)
    loop.spend(3)  # into the next model: other
    loop.forward(10)
    loop.spend(5)
    loop.backward(1)
    loop.step()

    assert loop.update.wall == {"forward": 20, "other": 3, "loss": 5, "backward": 1}


def test_where_the_call_returned_the_loss_what_follows_is_other(loop: Loop) -> None:
    loop.forward(10, loss_inside=True)
    loop.spend(5)
    loop.backward(1)
    loop.step()

    assert loop.update.wall == {"forward": 10, "other": 5, "backward": 1}


def test_where_a_loss_module_is_known_only_its_own_time_is_loss(loop: Loop) -> None:
    loop.forward(10)
    loop.spend(3)
    loop.loss_module(7)
    loop.spend(2)
    loop.backward(1)
    loop.step()

    assert loop.update.wall == {"forward": 10, "other": 5, "loss": 7, "backward": 1}


def test_the_second_forward_of_an_update_may_have_another_kind_of_loss(loop: Loop) -> None:
    loop.forward(10)
    loop.loss_module(7)
    loop.backward(1)
    loop.forward(10)
    loop.spend(5)
    loop.backward(1)
    loop.step()

    assert loop.update.wall == {"forward": 20, "loss": 12, "backward": 2}


def test_a_forward_that_leads_nowhere_leaves_no_loss(loop: Loop) -> None:
    loop.forward(10)
    loop.spend(3)
    loop.step(2)

    assert loop.update.wall == {"forward": 10, "other": 3, "optimizer": 2}


def test_clipping_and_the_time_around_it_are_gradient_processing(loop: Loop) -> None:
    loop.forward(1)
    loop.backward(1)
    loop.spend(2)
    with loop.marker(GRADIENT_PROCESSING):
        loop.spend(30)
    loop.spend(4)
    loop.step(1)

    assert loop.update.wall["gradient_processing"] == 36


def test_time_between_micro_batches_is_other_and_only_the_last_is_gradient_processing(
    loop: Loop,
) -> None:
    for _ in range(3):
        loop.batch(100)
        loop.forward(10)
        loop.spend(1)
        loop.backward(20)
        loop.spend(5)
    loop.step(7)

    assert loop.update.wall == {
        "input_wait": 300,
        "forward": 30,
        "loss": 3,
        "backward": 60,
        "other": 10,
        "gradient_processing": 5,
        "optimizer": 7,
    }
    assert loop.update.counts == {"batches": 3, "forwards": 3, "backwards": 3}


def test_without_a_call_of_a_model_the_time_since_the_batch_is_forward_and_loss(
    loop: Loop,
) -> None:
    loop.spend(2)  # the end of the step before
    loop.batch(100)
    loop.spend(30)  # a compiled function
    loop.backward(20)
    loop.spend(5)
    loop.batch(100)
    loop.spend(40)
    loop.backward(20)
    loop.step(1)

    assert loop.update.wall == {
        "other": 7,
        "input_wait": 200,
        "forward_and_loss": 70,
        "backward": 40,
        "optimizer": 1,
    }


def test_compiling_inside_a_call_is_not_forward(loop: Loop) -> None:
    loop.timeline.enter_forward()
    loop.spend(1)
    with loop.span(COMPILE):
        loop.spend(1000)
    loop.spend(2)
    loop.timeline.leave_forward(loss_inside=True)
    loop.backward(1)
    loop.step()

    assert loop.update.wall == {"forward": 3, "compile": 1000, "backward": 1}


# -- evaluation


def test_an_evaluation_takes_all_since_the_update(loop: Loop) -> None:
    loop.spend(1)  # model.eval()
    loop.batch(100)
    loop.evaluate(10)
    loop.spend(5)  # a metric
    loop.batch(100)
    loop.evaluate(10)
    loop.spend(3)  # from here on it may be the next step
    loop.batch(50)
    loop.forward(20)
    loop.backward(30)
    loop.step(2)

    assert loop.update.wall == {
        "evaluation": 1 + 100 + 10 + 5 + 100 + 10,
        "other": 3,
        "input_wait": 50,
        "forward": 20,
        "backward": 30,
        "optimizer": 2,
    }
    assert loop.update.cpu == loop.update.wall
    assert loop.update.counts == {"batches": 1, "forwards": 1, "backwards": 1}


def test_an_evaluation_takes_the_start_of_its_own_workers(loop: Loop) -> None:
    loop.batch(500, spins_up=True)
    loop.evaluate(10)
    loop.batch(300, spins_up=True)
    loop.step()

    assert loop.update.wall == {"evaluation": 510, "epoch_start": 300}


def test_an_evaluation_in_the_middle_of_an_accumulation_takes_no_training(loop: Loop) -> None:
    loop.batch(100)
    loop.forward(10)
    loop.spend(1)
    loop.backward(20)
    loop.spend(4)
    loop.batch(70)  # the validation's
    loop.evaluate(30)
    loop.batch(100)
    loop.forward(10)
    loop.spend(1)
    loop.backward(20)
    loop.step(2)

    assert loop.update.wall == {
        "evaluation": 104,
        "input_wait": 200,
        "forward": 20,
        "loss": 2,
        "backward": 40,
        "optimizer": 2,
    }


def test_an_evaluation_between_backward_and_update_leaves_the_backward_alone(loop: Loop) -> None:
    loop.forward(10, loss_inside=True)
    loop.backward(20)
    loop.spend(3)
    loop.evaluate(30)
    loop.spend(5)
    loop.step(2)

    assert loop.update.wall == {
        "forward": 10,
        "backward": 20,
        "evaluation": 33,
        "gradient_processing": 5,
        "optimizer": 2,
    }


def test_a_checkpoint_among_evaluations_stays_a_checkpoint(loop: Loop) -> None:
    loop.evaluate(10)
    with loop.span(CHECKPOINT):
        loop.spend(200)
    loop.evaluate(10)
    loop.step()

    assert loop.update.wall == {"evaluation": 20, "checkpoint": 200}


# -- optimizers


def test_nested_steps_count_once(loop: Loop) -> None:
    with loop.inside_step(optimizer="outer"):
        loop.spend(1)
        loop.step(10, optimizer="inner")
        loop.spend(1)

    assert loop.update.optimizer == "outer"
    assert loop.update.wall == {"optimizer": 12}


def test_two_optimizers_after_one_backward_are_two_updates(loop: Loop) -> None:
    loop.forward(10, loss_inside=True)
    loop.backward(20)
    loop.spend(1)
    loop.step(3, optimizer="actor")
    loop.spend(2)
    loop.step(4, optimizer="critic")

    assert [update.optimizer for update in loop.updates] == ["actor", "critic"]
    assert loop.updates[1].wall == {"other": 2, "optimizer": 4}
    assert loop.updates[1].counts == {}


def test_a_closure_is_divided_and_its_rest_is_the_optimizers(loop: Loop) -> None:
    loop.batch(100)
    with loop.inside_step(has_closure=True):
        loop.spend(1)  # before the closure
        loop.spend(2)  # zero_grad, inside it
        loop.forward(10)
        loop.spend(3)
        loop.backward(20)
        loop.spend(40)  # the update itself

    assert loop.update.wall == {
        "input_wait": 100,
        "other": 3,
        "forward": 10,
        "loss": 3,
        "backward": 20,
        "optimizer": 40,
    }


def test_a_closure_that_is_never_called_is_the_optimizers_time(loop: Loop) -> None:
    with loop.inside_step(has_closure=True):
        loop.spend(40)

    assert loop.update.wall == {"optimizer": 40}


def test_a_closure_called_twice_is_divided_twice(loop: Loop) -> None:
    with loop.inside_step(has_closure=True):
        for _ in range(2):
            loop.forward(10, loss_inside=True)
            loop.backward(20)
            loop.spend(5)

    assert loop.update.counts == {"forwards": 2, "backwards": 2}
    assert loop.update.wall == {"forward": 20, "backward": 40, "optimizer": 10}


def test_a_skipped_update_counts_and_is_marked(loop: Loop) -> None:
    loop.forward(10, loss_inside=True)
    loop.backward(20)
    loop.spend(5)  # unscale and look
    loop.timeline.skip_update("optimizer")
    loop.spend(1)
    loop.step(3)

    skipped, taken = loop.updates
    assert (skipped.skipped, taken.skipped) == (1, 0)
    assert skipped.wall == {"forward": 10, "backward": 20, "gradient_processing": 5}
    assert taken.wall == {"other": 1, "optimizer": 3}


def test_an_update_inside_a_backward_ends_there_and_the_backward_goes_on(loop: Loop) -> None:
    loop.forward(10, loss_inside=True)
    with loop.inside_backward():
        loop.spend(20)
        loop.step(3, optimizer="last layer")
        loop.spend(30)
        loop.step(3, optimizer="first layer")
        loop.spend(2)
    loop.spend(1)
    loop.forward(10, loss_inside=True)
    loop.backward()
    loop.step(optimizer="last layer")

    assert [update.wall for update in loop.updates] == [
        {"forward": 10, "backward": 20, "optimizer": 3},
        {"backward": 30, "optimizer": 3},
        {"backward": 2, "other": 1, "forward": 10},
    ]
    assert [update.counts.get("backwards", 0) for update in loop.updates] == [1, 0, 1]


def test_a_step_left_by_an_exception_does_not_swallow_the_steps_after_it(loop: Loop) -> None:
    loop.timeline.enter_optimizer(has_closure=False)
    loop.spend(8)  # raises, and the script goes on
    loop.timeline.drop_optimizers()
    loop.batch(100)
    loop.forward(10, loss_inside=True)
    loop.backward(20)
    loop.step(3)
    loop.forward(10, loss_inside=True)
    loop.backward(20)
    loop.step(3)

    assert len(loop.updates) == 2
    assert loop.updates[0].wall["forward"] == 10
    assert loop.updates[1].wall == {"forward": 10, "backward": 20, "optimizer": 3}


@pytest.mark.parametrize("has_backward", [False, True])
def test_a_closure_left_by_an_exception_does_not_swallow_the_steps_after_it(
    loop: Loop, *, has_backward: bool
) -> None:
    loop.timeline.enter_optimizer(has_closure=True)
    loop.forward(10)
    if has_backward:
        loop.backward(20)  # raises, out of memory say, and the script goes on
    loop.timeline.drop_optimizers()
    for _ in range(2):
        loop.batch(100)
        with loop.inside_step(has_closure=True):
            loop.forward(10, loss_inside=True)
            loop.backward(20)

    assert len(loop.updates) == 2
    assert loop.updates[1].wall == {"input_wait": 100, "forward": 10, "backward": 20}


def test_a_step_may_call_the_closure_and_then_another_step(loop: Loop) -> None:
    with loop.inside_step(has_closure=True, optimizer="outer"):
        loop.forward(10, loss_inside=True)
        loop.backward(20)
        loop.step(3, optimizer="base")
    outer = loop.inside_step(has_closure=True, optimizer="outer")
    with outer, loop.inside_step(has_closure=True, optimizer="outer"):  # super().step(closure)
        loop.forward(10, loss_inside=True)
        loop.backward(20)
        loop.spend(3)

    assert [update.optimizer for update in loop.updates] == ["outer", "outer"]
    assert loop.updates[1].wall == {"forward": 10, "backward": 20, "optimizer": 3}


def test_a_step_that_began_before_the_hooks_is_left_out(loop: Loop) -> None:
    loop.timeline.leave_optimizer("optimizer", 0)

    assert loop.updates == []


# -- sampling


def test_cpu_time_by_bucket_is_taken_at_first_and_then_for_one_block_in_eight(loop: Loop) -> None:
    num_updates = SAMPLED_AT_FIRST + 2 * SAMPLE_BLOCK * SAMPLE_EVERY
    for _ in range(num_updates - 1):
        loop.forward(10, loss_inside=True)
        loop.backward(20)
        loop.step()

    sampled = [number for number, update in enumerate(loop.updates, start=1) if update.is_sampled]
    assert sampled[: SAMPLED_AT_FIRST - 1] == list(range(1, SAMPLED_AT_FIRST))
    later = [number for number in sampled if number >= SAMPLED_AT_FIRST]
    block = SAMPLE_BLOCK * SAMPLE_EVERY
    assert later == [
        start + i
        for start in range(SAMPLED_AT_FIRST, num_updates, block)
        for i in range(SAMPLE_BLOCK)
    ]


def test_without_a_sample_cpu_time_is_given_as_a_whole_and_spans_apart(loop: Loop) -> None:
    loop.timeline.is_sampled = loop.timeline.is_detailed = False
    loop.batch(100, spins_up=True)
    with loop.marker(FORWARD):
        loop.spend(20, cpu=40)  # two threads
    with loop.span(CHECKPOINT):
        loop.spend(200, cpu=3)
    loop.step(5)

    assert loop.update.cpu == {"epoch_start": 100, "other": 45, "checkpoint": 3}
    assert not loop.update.is_sampled


def test_without_a_sample_an_evaluation_keeps_its_cpu_time_apart(loop: Loop) -> None:
    loop.timeline.is_sampled = loop.timeline.is_detailed = False
    loop.batch(100)
    loop.evaluate(10)
    loop.forward(20)
    loop.step(5)

    assert loop.update.cpu == {"evaluation": 110, "other": 25}


def test_events_hold_what_time_flows_into(loop: Loop) -> None:
    loop.timeline.events = []
    loop.spend(1)
    loop.forward(20)
    loop.spend(3)
    loop.backward(40)

    pairs = zip(loop.timeline.events[::2], loop.timeline.events[1::2], strict=True)
    assert [bucket for _, bucket in pairs][:2] == [FORWARD, OTHER]
    assert loop.timeline.events[::2] == [1, 21, 24, 64]


def test_a_reset_forgets_what_was_open(loop: Loop) -> None:
    loop.timeline.enter_optimizer(has_closure=True)
    loop.timeline.enter(COMMUNICATION)
    loop.spend(1000)
    loop.timeline.reset(loop.now, loop.cpu_now)
    assert (loop.timeline.thread, loop.timeline.num_updates) == (-1, 0)
    loop.step(5)

    assert loop.update.wall == {"optimizer": 5}


# -- the partition

anything = st.one_of(
    st.tuples(st.just("enter"), st.integers(1, NUM_BUCKETS - 1)),
    st.tuples(st.just("enter_input"), st.sampled_from((INPUT_WAIT, EPOCH_START))),
    st.tuples(
        st.sampled_from(
            (
                "leave",
                "leave_unmoved",
                "leave_input",
                "enter_forward",
                "leave_loss",
                "enter_backward",
                "leave_backward",
                "enter_evaluation",
                "leave_evaluation",
                "mark_batch",
                "settle",
            )
        )
    ),
    st.tuples(st.just("leave_forward"), st.booleans()),
    st.tuples(st.just("enter_optimizer"), st.booleans()),
    st.just(("leave_optimizer",)),
    st.just(("skip_update",)),
)
happenings = st.lists(st.tuples(anything, st.integers(0, 1000)), max_size=80)


def happen(loop: Loop, call: tuple[Any, ...]) -> None:
    name, *arguments = call
    act = getattr(loop.timeline, name)
    if name == "leave_forward":
        act(loss_inside=arguments[0])
    elif name == "enter_optimizer":
        act(has_closure=arguments[0])
    elif name == "leave_optimizer":
        act("optimizer", 0)
    elif name == "skip_update":
        act("optimizer")
    else:
        act(*arguments)


@given(happenings)
def test_whatever_happens_in_whatever_order_the_buckets_sum_to_the_update(
    calls: list[tuple[tuple[Any, ...], int]],
) -> None:
    loop = Loop()
    loop.start()
    for call, wall in calls:
        loop.spend(wall)
        happen(loop, call)
    for _ in range(len(loop.timeline.stack) + 1):
        loop.spend(7)
        loop.timeline.leave()
    for _ in range(loop.timeline.optimizer_depth):
        loop.timeline.leave_optimizer("optimizer", 0)

    ends = [loop.first_start, *(update.end for update in loop.updates)]
    assert ends[:-1] == [update.start for update in loop.updates]
    for update in loop.updates:
        assert sum(update.wall.values()) == update.end - update.start
        assert sum(update.cpu.values()) == update.end - update.start
        assert update.pending == 0


statement = st.deferred(
    lambda: st.one_of(
        st.tuples(st.just("spend"), st.integers(1, 1000)),
        st.tuples(st.just("batch"), st.integers(1, 1000)),
        st.tuples(st.just("spin up"), st.integers(1, 1000)),
        st.tuples(st.just("forward"), st.integers(1, 1000)),
        st.tuples(st.just("loss module"), st.integers(1, 1000)),
        st.tuples(st.just("backward"), st.integers(1, 1000)),
        st.tuples(st.just("evaluate"), st.integers(1, 1000)),
        st.tuples(st.just("checkpoint"), st.integers(1, 1000)),
        st.tuples(st.just("clip"), st.integers(1, 1000)),
        st.tuples(st.just("step"), st.integers(1, 1000)),
        st.tuples(st.just("closure"), st.lists(statement, max_size=4)),
        st.tuples(st.just("in backward"), st.lists(statement, max_size=4)),
    )
)


def run(loop: Loop, program: list[tuple[str, Any]]) -> None:
    """A loop as a script may hold it: every marker is closed by who opened it."""
    for name, value in program:
        if name == "spend":
            loop.spend(value)
        elif name in ("batch", "spin up"):
            loop.batch(value, spins_up=name == "spin up")
        elif name == "loss module":
            loop.loss_module(value)
        elif name == "checkpoint":
            with loop.span(CHECKPOINT):
                loop.spend(value)
        elif name == "clip":
            with loop.marker(GRADIENT_PROCESSING):
                loop.spend(value)
        elif name == "closure":
            with loop.inside_step(has_closure=True):
                run(loop, value)
        elif name == "in backward":
            with loop.inside_backward():
                run(loop, value)
        else:
            getattr(loop, name)(value)


@given(st.lists(statement, max_size=40))
def test_no_phase_of_a_possible_loop_is_ever_negative(program: list[tuple[str, Any]]) -> None:
    loop = Loop()
    loop.start()
    run(loop, program)
    loop.step(1)

    for update in loop.updates:
        assert min([*update.wall.values(), *update.cpu.values()], default=0) >= 0
        assert sum(update.wall.values()) == update.end - update.start


def test_the_names_are_in_step() -> None:
    assert len(set(BUCKETS)) == len(BUCKETS) == NUM_BUCKETS
    assert (BUCKETS[OTHER], BUCKETS[BACKWARD], BUCKETS[OPTIMIZER]) == (
        "other",
        "backward",
        "optimizer",
    )
