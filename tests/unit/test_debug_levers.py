"""Levers that undo what costs more than it gives: debug switches, profilers, pinning."""

import gc
import warnings
from types import SimpleNamespace

import pytest

from steptime.levers import load
from steptime.levers.base import Facts, Preserves
from steptime.testing.lever_session_double import PlainSession

torch = pytest.importorskip("torch")

SWITCHES = ("anomaly_mode", "deterministic", "profiler")


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


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_that_is_on_is_turned_off_and_another_one_is_no_reason(name):
    lever = load(f"no_{name}" if name != "anomaly_mode" else "no_anomaly_mode")
    others = tuple(other for other in SWITCHES if other != name)

    assert lever.applies(make_facts(switches_on=SWITCHES)) is None
    assert lever.applies(make_facts(switches_on=others)) is not None
    assert "not observed" in lever.applies(make_facts())


# --- no_anomaly_mode --------------------------------------------------------------------


def run_nan_backward():
    x = torch.zeros(1, requires_grad=True)
    (torch.sqrt(x) * 0).backward()


def test_a_script_that_turns_anomaly_detection_on_trains_without_it(put_on):
    take_off = put_on("no_anomaly_mode")
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        assert not torch.is_anomaly_enabled()
        run_nan_backward()
    take_off()
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"):
        run_nan_backward()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_what_the_script_asked_for_meanwhile_holds_once_it_is_taken_off(put_on):
    before = torch.is_anomaly_enabled()
    try:
        take_off = put_on("no_anomaly_mode")
        torch.autograd.set_detect_anomaly(True, check_nan=False)
        take_off()
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()
        with torch.autograd.detect_anomaly():
            take_off = put_on("no_anomaly_mode")
            assert not torch.is_anomaly_enabled()
        take_off()
    finally:
        torch.set_anomaly_enabled(before)


# --- no_deterministic -------------------------------------------------------------------


@pytest.fixture
def _free_afterwards():
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False


@pytest.mark.usefixtures("_free_afterwards")
@pytest.mark.parametrize("when", ["before", "after"])
def test_deterministic_algorithms_stay_off_whenever_the_script_asks_for_them(put_on, when):
    def ask():
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True

    take_off = None if when == "before" else put_on("no_deterministic")
    ask()
    take_off = take_off or put_on("no_deterministic")

    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic is False
    take_off()
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.backends.cudnn.deterministic is True


# --- no_profiler ------------------------------------------------------------------------


def operators_of(profiler):
    return {event.key for event in profiler.key_averages() if event.key.startswith("aten::")}


@pytest.mark.parametrize("legacy", [False, True], ids=["torch.profiler", "autograd.profiler"])
def test_the_scripts_profiler_works_and_holds_no_operators(put_on, legacy):
    take_off = put_on("no_profiler")
    make = torch.autograd.profiler.profile if legacy else torch.profiler.profile

    with make(record_shapes=True, with_stack=True) as profiler:
        torch.ones(3) + torch.ones(3)
    with make() as second:
        torch.ones(3) + torch.ones(3)
        take_off()
        torch.ones(3) * 2

    assert operators_of(profiler) == set()
    assert profiler.key_averages(group_by_input_shape=True) is not None
    assert "aten::mul" in operators_of(second)
    assert "aten::add" not in operators_of(second)


def test_a_profiler_that_runs_already_records_no_more(put_on):
    with torch.profiler.profile() as profiler:
        torch.ones(3) + 1
        take_off = put_on("no_profiler")
        torch.ones(3) * 2
        take_off()
        torch.ones(3) - 1

    assert {"aten::add", "aten::sub"} <= operators_of(profiler)
    assert "aten::mul" not in operators_of(profiler)


def test_what_the_script_asked_to_record_is_still_said(put_on):
    put_on("no_profiler")
    with torch.profiler.profile(with_stack=True, profile_memory=True) as profiler:
        torch.ones(3) + 1

    assert profiler.with_stack
    assert profiler.profiler.with_stack
    assert profiler.profiler.profile_memory


# --- gc_control -------------------------------------------------------------------------


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


# --- flush_denormal ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"device": "cuda", "denormal_fraction": 0.5}, "device"),
        ({"denormal_fraction": 0.0}, "0.00%"),
        ({}, "not observed"),
    ],
)
def test_denormals_are_kept_and_the_reason_is_said(fields, words):
    assert words in load("flush_denormal").applies(make_facts(**fields))


def test_denormals_become_zeros_and_stay_again(put_on):
    tiny = torch.tensor([1e-39, 1.0])
    assert (tiny * 1.0)[0] != 0
    take_off = put_on("flush_denormal")

    assert (tiny * 1.0).tolist() == [0.0, 1.0]
    take_off()
    assert (tiny * 1.0)[0] != 0


def test_a_cpu_that_cannot_flush_fails_the_trial():
    session = SimpleNamespace(torch=SimpleNamespace(set_flush_denormal=lambda on: False))
    with pytest.raises(RuntimeError, match="cannot flush"):
        load("flush_denormal").apply({}, session)


def test_flushing_is_another_rounding():
    assert load("flush_denormal").preserves is Preserves.NUMERIC
