"""The lever `gc_control`: garbage is collected at its updates alone."""

import gc

import pytest

from steptime.levers import load
from steptime.levers.base import Facts
from steptime.testing.lever_session_double import PlainSession

torch = pytest.importorskip("torch")


def make_facts(**fields):
    return Facts(**({"torch_version": "2.13.0"} | fields))


@pytest.fixture
def put_on():
    """Applies a lever, and takes it off at the end."""
    undos = []
    with PlainSession(torch) as session:

        def put(name, **settings):
            undo = load(name).apply(settings, session)
            undos.append(undo)
            return lambda: (undos.remove(undo), undo())

        yield put
        while undos:
            undos.pop()()


@pytest.mark.parametrize(("fraction", "words"), [(0.0, "0.00%"), (None, "not observed")])
def test_collections_are_left_alone_where_they_take_no_time(fraction, words):
    assert words in load("gc_control").applies(make_facts(gc_fraction=fraction))


class Steps:
    """Updates of an optimizer of its own, and the collections that happen in them."""

    def __init__(self):
        weight = torch.ones(1, requires_grad=True)
        weight.grad = torch.ones(1)
        self.optimizer = torch.optim.SGD([weight], lr=0.1)
        self.num_collections = 0

    def see(self, phase, info):
        self.num_collections += phase == "stop"

    def run(self, number):
        gc.callbacks.append(self.see)
        try:
            before = self.num_collections
            for _ in range(number):
                self.optimizer.step()
                kept = [[] for _ in range(2000)]  # enough to begin a collection in each update
                del kept
            return self.num_collections - before
        finally:
            gc.callbacks.remove(self.see)


@pytest.fixture
def _collecting():
    was_on = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.usefixtures("_collecting")
def test_garbage_is_collected_at_its_updates_alone(put_on):
    steps = Steps()
    assert steps.run(10) >= 5
    take_off = put_on("gc_control", every_updates=10)
    steps.run(3)

    assert gc.get_freeze_count() > 0
    assert not gc.isenabled()
    assert steps.run(40) == 4
    take_off()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("_collecting")
def test_a_script_that_does_not_collect_is_left_alone(put_on):
    gc.disable()
    take_off = put_on("gc_control", every_updates=1)

    assert Steps().run(10) == 0
    take_off()
    assert not gc.isenabled()


@pytest.mark.usefixtures("_collecting")
def test_cycles_keep_their_memory_until_the_next_collection(put_on):
    """What it costs."""

    class Cycle:
        alive = 0

        def __init__(self):
            Cycle.alive += 1
            self.own = self

        def __del__(self):
            Cycle.alive -= 1

    steps = Steps()
    put_on("gc_control", every_updates=5)
    steps.run(3)
    while steps.run(1) == 0:
        pass
    for _ in range(4):
        Cycle()
        steps.run(1)
    assert Cycle.alive == 4
    steps.run(1)
    assert Cycle.alive == 0


@pytest.mark.usefixtures("_collecting")
def test_a_training_that_is_warm_is_frozen_at_once(put_on):
    steps = Steps()
    with PlainSession(torch) as session:
        steps.run(1)
        undo = load("gc_control").apply({"every_updates": 1000}, session)
        assert gc.get_freeze_count() > 0
        undo()
