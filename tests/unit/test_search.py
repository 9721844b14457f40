"""The search end to end, over benches that answer from a table."""

from __future__ import annotations

import math

from scripted_bench import Noise, ScriptedBench, make_levers
from steptime.core.study import StudyOutcome
from steptime.tune.search import SearchOptions, search


def run(bench: ScriptedBench, *levers, **options):
    return search(bench, SearchOptions(levers=levers, budget_s=bench.budget_s, **options))


def names(found):
    return [one.name for one in found.recipe]


def test_a_lever_that_helps_is_found_and_proven():
    found = run(ScriptedBench(gains={"lever_1": math.log(1.3)}), *make_levers(4))

    assert found.outcome is StudyOutcome.FASTER
    assert names(found) == ["lever_1"]
    assert found.speedup.low < 1.3 < found.speedup.high


def test_levers_that_do_nothing_are_not_claimed():
    found = run(ScriptedBench(noise=Noise()), *make_levers(6))

    assert found.outcome is StudyOutcome.NOTHING_HELPS
    assert found.recipe == ()
