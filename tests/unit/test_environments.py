"""Steps of environments and generation, found by the bases of their classes: no torch, no time."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from steptime.guest.hooks import environments
from steptime.guest.timeline.journal import Journal
from steptime.guest.timeline.recorder import Recorder
from steptime.record.buckets import BUCKETS, FORWARD, OTHER, ROLLOUT

T = TypeVar("T")


class Script:
    """A process whose hooks are made up, on a clock advanced by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = 0
        recorder = Recorder(str(folder), lambda: {"rank": 0})
        self.journal = Journal(recorder, clock=lambda: self.now, cpu_clock=lambda: 0)
        self.sizes: list[bool] = []
        compiler = SimpleNamespace(is_dynamo_compiling=lambda: False)
        self.context: Any = SimpleNamespace(
            torch=SimpleNamespace(compiler=compiler),
            journal=self.journal,
            guarded=self.guarded,
            trial=None,
            undo=[],
            is_late=False,
            see_plain_call=lambda journal, args, kwargs: self.sizes.append(True),
        )
        self.targets: dict[str, Callable[[Any], None]] = {}

    @staticmethod
    def guarded(place: str, act: Callable[..., None], *args: Any) -> None:
        act(*args)

    def import_(self, name: str, **classes: type) -> None:
        """Executes a library's module."""
        module = ModuleType(name)
        vars(module).update(classes)
        self.targets.pop(name)(module)

    def found(self) -> dict[str, int]:
        """The time by bucket."""
        self.journal.replay()
        timeline = self.journal.timeline
        timeline.rollout.close(timeline)
        return {name: ns for name, ns in zip(BUCKETS, timeline.wall, strict=False) if ns}


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    script = Script(tmp_path)
    environments.hook_libraries(script.context, script.targets)
    yield script
    environments._context.clear()


def make_bases(script: Script) -> tuple[type, type]:
    class Env(Generic[T]):
        def step(self, action: Any) -> Any:
            raise NotImplementedError

        def reset(self) -> Any: ...

    class Wrapper(Env[T]):
        def __init__(self, env: Any) -> None:
            self.env = env

        def step(self, action: Any) -> Any:
            script.now += 1
            return self.env.step(action)

    return Env, Wrapper


def make_walk(script: Script, base: type) -> type:
    class Walk(base):  # type: ignore[misc]
        """Of the user's, derived after the library was hooked."""

        def step(self, action: Any) -> Any:
            script.now += 50
            return action, script.journal.top

    return Walk


def test_every_class_that_is_derived_from_a_base_is_timed(script: Script) -> None:
    env, wrapper = make_bases(script)
    script.import_("gymnasium.core", Env=env)
    walk = make_walk(script, env)()

    assert walk.step(3) == (3, ROLLOUT)
    assert wrapper(walk).step(4) == (4, ROLLOUT)
    assert script.found() == {"rollout": 101}


def test_only_the_outermost_step_is_noted(script: Script) -> None:
    env, wrapper = make_bases(script)
    script.import_("gymnasium.core", Env=env)
    wrapper(wrapper(make_walk(script, env)())).step(1)

    assert len(script.journal.log) == 2 * 3
    assert script.journal.top == OTHER


def test_a_step_inside_another_marker_belongs_to_it(script: Script) -> None:
    env, _ = make_bases(script)
    script.import_("gymnasium.core", Env=env)
    script.journal.note(FORWARD, FORWARD)
    make_walk(script, env)().step(1)

    assert len(script.journal.log) == 3  # of the call alone
    assert script.journal.top == FORWARD


def test_a_library_that_is_here_already_is_hooked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(tmp_path)
    env, _ = make_bases(script)
    module = ModuleType("gymnasium.core")
    module.Env = env  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gymnasium.core", module)
    environments.hook_libraries(script.context, script.targets)
    try:
        assert "gymnasium.core" not in script.targets
        assert make_walk(script, env)().step(3) == (3, ROLLOUT)
    finally:
        environments._context.clear()


def test_a_base_with_arguments_for_its_classes_gets_them(script: Script) -> None:
    class Env:
        names: ClassVar[list[str]] = []

        def __init_subclass__(cls, name: str) -> None:
            cls.names.append(name)

    script.import_("gym.core", Env=Env)

    class Walk(Env, name="walk"): ...

    assert Walk.names == ["walk"]
    with pytest.raises(TypeError, match="__init_subclass__"):
        type("Wrong", (Env,), {})


def test_what_a_step_raises_shows_no_frame_of_ours(script: Script) -> None:
    env, wrapper = make_bases(script)
    script.import_("gymnasium.core", Env=env)
    with pytest.raises(NotImplementedError) as caught:
        wrapper(env()).step(1)

    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    if sys.version_info >= (3, 11):
        assert names[1:] == ["step", "step"]
    assert script.journal.top == OTHER


def test_a_warning_names_the_line_that_it_names_without_us(script: Script) -> None:
    class Env:
        def step(self) -> None:
            warnings.warn("too long", stacklevel=2)

    bare = where_it_warns(Env())
    script.import_("gymnasium.core", Env=Env)

    assert where_it_warns(Env()) == bare


def where_it_warns(env: Any) -> tuple[str, int]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.step()
    return caught[0].filename, caught[0].lineno


def test_a_class_that_was_sent_to_another_process_works_there_without_us() -> None:
    def step(self: Any, action: int) -> int:
        return action + 1

    method = environments.passing_to("run_step", step, module="not_loaded_here")

    assert method(None, 3) == 4
    free = {cell.cell_contents for cell in method.__closure__}
    assert free == {step, "run_step", "not_loaded_here", environments.NOT_OURS}  # goes along
    assert set(method.__code__.co_names) & set(method.__globals__) <= {"sys", "getattr"}


def test_a_generation_is_a_rollout_unless_its_model_is_in_eval_mode(script: Script) -> None:
    class GenerationMixin:
        training = True

        def generate(self, ids: Any) -> Any:
            script.now += 50
            return script.journal.top

    script.import_("transformers.generation.utils", GenerationMixin=GenerationMixin)
    model = GenerationMixin()

    assert model.generate(1) == ROLLOUT
    model.training = False
    assert model.generate(1) == OTHER
    assert script.found() == {"rollout": 50}
    assert script.sizes == [True]
