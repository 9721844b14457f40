"""Both loops of `data bench` are timed again, for longer, while it is unclear if a loader helps."""

from pathlib import Path

import pytest

from steptime.app.data import data_bench
from steptime.app.data.data_bench import BenchOptions
from steptime.isolate.tiers import Containment, Tier
from steptime.measure.values.loader_bench import BenchedLoader
from steptime.record import kinds
from steptime.report.words.data.loader_words import describe_others
from steptime.tune.trials.children.bench_child import BenchStart, PassEnded, TimeLeft
from unit.loader_bench_cases import BESIDE, SLOW, loop, uneven


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Measure with passes that answer with given windows; return the bench and what was run."""

    def measure(full, consumer, **options):
        asked = []

        def run_pass(start, wish, *, name):
            asked.append((name, wish["pass"], wish.get("seconds"), wish.get("steps")))
            answers = {"full": full, "consumer": consumer, "parts": SLOW["fetch"]}
            return PassEnded(lines=[answers[wish["pass"]]], ended=None, num_updates=0)

        monkeypatch.setattr(data_bench, "run_pass", run_pass)
        start = BenchStart(
            argv=("python", "train.py"),
            environment={},
            folder=tmp_path,
            cwd=Path(),
            containment=Containment(tier=Tier.ISOLATED),
        )
        wishes = BenchOptions(command=start.argv, **options)
        return data_bench._measure(start, wishes, lambda _: None), asked

    return measure


def test_an_unclear_bound_is_measured_again_for_twice_and_four_times_as_long(measured):
    full = uneven(loop(0, 0.5, **BESIDE), low=6, high=14)
    kept = uneven(loop(0, 0, what="consumer"), low=6, high=14)
    bench, asked = measured(full, kept, seconds=1.0, steps=20)

    assert [(what, seconds, steps) for _, what, seconds, steps in asked] == [
        ("full", 1.0, 20),
        ("consumer", 1.0, 20),
        ("full", 2.0, 40),
        ("consumer", 2.0, 40),
        ("full", 4.0, 80),
        ("consumer", 4.0, 80),
        ("parts", 1.0, 20),
    ]
    assert len({name for name, *_ in asked}) == 7
    assert bench.step_s.n == 90


def test_a_clear_bound_is_measured_once(measured):
    bench, asked = measured(loop(10, 0.1, **BESIDE), loop(10, 0, what="consumer"))

    assert [what for _, what, *_ in asked] == ["full", "consumer", "parts"]
    assert bench.bottleneck == "consumer"


def test_how_long_a_slow_loop_takes_is_told_by_its_steps():
    told, now = [], iter([0, 100, 104, 112, 113])
    left = TimeLeft(told.append, lambda: next(now))
    begun = {"k": kinds.BENCH_BEGUN, "steps": 26}
    for num_updates in (5, 6, 8, 9):
        left.look(begun, num_updates)

    assert told == ["it is slow: 3 steps so far, at most 1 min 32 s more"]


def test_loaders_that_are_not_timed_take_one_line():
    loader = BenchedLoader(dataset="Rows", batch_size=1, num_workers=0, is_iterable=False)

    assert describe_others([loader]) == "Rows, batches of 1, 0 workers"
    assert describe_others([loader] * 19).endswith(", 0 workers, and 18 more loaders")
