"""Where levers hang what they bring, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from steptime.guest.trial.lever_session import LeverSession, Owner, Registry
from steptime.guest.trial.lever_stack import LeverStack
from steptime.guest.trial.trial_plan import Wanted


class Model:
    """Anything that can be referred to weakly."""


class World:
    """A registry, what was given up, and what was called."""

    def __init__(self, *, is_lenient: bool = False) -> None:
        self.given_up: list[str] = []
        self.log: list[str] = []
        self.model = Model()
        self.registry = Registry(None, self.give_up, is_lenient=is_lenient)
        self.levers: dict[str, Callable[..., Any]] = {}
        self.stack = LeverStack(self.registry, load=self.load)

    def give_up(self, owner: Owner, error: BaseException) -> None:
        self.given_up.append(f"{owner.wanted.name}: {error}")
        self.stack.drop(owner)

    def load(self, wanted: Wanted) -> Any:
        class Lever:
            @staticmethod
            def apply(settings: Any, session: LeverSession) -> Any:
                return self.levers[wanted.name](session)

        return Lever

    def put_on(self, name: str, apply: Callable[..., Any]) -> None:
        self.levers[name] = apply
        self.stack.put_on(Wanted(name, {}, ""), must_undo=False)

    def go_to(self, *names: str, above: int = 0) -> None:
        self.stack.go_to([Wanted(name, {}, "") for name in names], above=above)

    def call(self, *args: Any) -> Any:
        def model_call(model: Any, *args: Any) -> Any:
            self.log.append("model")
            if "raise" in args:
                raise RuntimeError("the model's own")
            return sum(args)

        return self.registry.run_call(model_call, self.model, args, {})


def plus(number: int) -> Callable[..., Any]:
    """A lever that adds to the first argument and takes it off the result, ten times."""
    return lambda session: session.wrap_calls(
        lambda call, model, args, kwargs: 10 * call(model, args[0] + number, *args[1:]) + number
    )


def raising(session: LeverSession) -> Any:
    def wrapper(call: Any, model: Any, args: Any, kwargs: Any) -> Any:
        raise ValueError("the lever's own")

    return session.wrap_calls(wrapper)


def test_the_first_lever_is_the_outermost() -> None:
    world = World()
    world.put_on("one", plus(1))
    world.put_on("two", plus(2))

    assert world.call(0) == 10 * (10 * 3 + 2) + 1


def test_what_was_undone_is_not_called_any_more() -> None:
    world = World()
    world.put_on("one", plus(1))
    world.stack.take_off()

    assert world.call(5) == 5


def test_an_exception_of_the_models_passes_through_untouched() -> None:
    world = World()
    world.put_on("one", plus(1))

    with pytest.raises(RuntimeError, match="the model's own"):
        world.call(1, "raise")
    assert world.given_up == []


@pytest.mark.parametrize("is_lenient", [False, True])
def test_a_wrapper_that_raises_is_given_up_and_the_call_made_without_it(
    *, is_lenient: bool
) -> None:
    world = World(is_lenient=is_lenient)
    world.put_on("bad", raising)

    assert world.call(3) == 3
    assert world.given_up == ["bad: the lever's own"]
    assert world.call(4) == 4
    assert world.log == ["model", "model"]


def test_the_model_is_not_called_twice_where_a_wrapper_fails_after_it() -> None:
    world = World(is_lenient=True)

    def wrapper(call: Any, model: Any, args: Any, kwargs: Any) -> Any:
        call(model, *args)
        raise ValueError("too late")

    world.put_on("bad", lambda session: session.wrap_calls(wrapper))

    assert world.call(3) == 3
    assert world.log == ["model"]


def test_a_model_that_raises_anyway_raises_under_a_recipe_and_keeps_it() -> None:
    world = World(is_lenient=True)
    world.put_on("one", plus(0))

    with pytest.raises(RuntimeError, match="the model's own"):
        world.call(1, "raise")
    with pytest.raises(RuntimeError, match="the model's own"):
        world.call(1, "raise")
    assert world.given_up == []
    assert world.log == ["model"] * 3  # tried again once, not each time
    assert world.call(1) == 10


def test_a_backward_call_that_a_wrapper_breaks_is_made_once() -> None:
    world = World(is_lenient=True)
    calls = []

    def wrapper(call: Any, args: Any, kwargs: Any) -> Any:
        raise ValueError("no")

    world.put_on("bad", lambda session: session.wrap_backward(wrapper))
    world.registry.run_backward(lambda *args: calls.append(args), (1,), {})

    assert calls == [(1,)]
    assert world.given_up == ["bad: no"]


def test_models_and_optimizers_are_met_once_each_those_before_too() -> None:
    world = World()
    early, late = Model(), Model()
    world.registry.meet_model(early)
    met: list[Any] = []
    world.put_on("one", lambda session: session.for_each_model(met.append))
    world.registry.meet_model(late)
    world.registry.meet_model(early)
    assert met == [early, late]

    world.put_on("two", lambda session: session.for_each_optimizer(met.append))
    for _ in range(2):
        world.registry.meet_optimizer(early)
    assert met == [early, late, early]


def test_the_gradients_are_there_before_an_update_where_a_closure_makes_them() -> None:
    world = World()
    world.put_on("one", lambda session: session.before_update(lambda _: world.log.append("act")))
    closed = world.registry.closing(world.model, lambda: world.log.append("closure") or 3.0)

    assert closed() == 3.0
    assert world.log == ["closure", "act"]


def test_what_a_lever_hung_before_its_apply_failed_is_gone() -> None:
    world = World()

    def apply(session: LeverSession) -> Any:
        plus(1)(session)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        world.put_on("bad", apply)
    assert world.call(3) == 3
    assert world.stack.owners == []


def noted(world: World, name: str) -> Callable[..., Any]:
    def apply(session: LeverSession) -> Any:
        world.log.append(f"+{name}")
        return lambda: world.log.append(f"-{name}")

    return apply


def test_only_levers_that_differ_are_switched_last_on_first_off() -> None:
    world = World()
    world.levers = {name: noted(world, name) for name in "abc"}
    world.go_to("a", "b")
    world.log.clear()
    world.go_to("a", "c")
    assert world.log == ["-b", "+c"]
    world.log.clear()
    world.go_to("a", "c")
    assert world.log == []
    world.go_to()
    assert world.log == ["-c", "-a"]


def test_the_levers_of_the_plan_stay_on_below_every_state() -> None:
    world = World()
    world.put_on("a", noted(world, "a"))
    world.levers["b"] = noted(world, "b")
    world.go_to("b", above=1)
    world.go_to(above=1)

    assert world.log == ["+a", "+b", "-b"]


def test_a_live_lever_without_a_way_back_cannot_be_put_on() -> None:
    world = World()
    world.levers["a"] = lambda session: None

    with pytest.raises(TypeError, match="no way back"):
        world.go_to("a")
