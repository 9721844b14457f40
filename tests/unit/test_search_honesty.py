"""How often the search is right: no-ops claimed, true gains found, states that it takes."""

from __future__ import annotations

import itertools
import math
from functools import cache

import pytest

from rotation import in_turn
from scripted_bench import LEVERS, NOISES, Noise, ScriptedBench, labels_of, make_lever
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.values.study_values import StudyOutcome


def study(**bench):
    scripted = ScriptedBench(**bench)
    return scripted, search(scripted, SearchOptions(levers=LEVERS, budget_s=scripted.budget_s))


@pytest.mark.parametrize("others_cores", [0.0, 0.6])
@pytest.mark.parametrize("noise", in_turn(NOISES, rooms=("tune",)))
def test_of_forty_studies_without_any_effect_at_most_two_claim_one(noise, others_cores):
    found = [
        study(noise=NOISES[noise], seed=seed, others_cores=others_cores)[1] for seed in range(40)
    ]

    assert sum(one.outcome is StudyOutcome.FASTER for one in found) <= 2


@cache
def rate(noise: str, speedup: float) -> float:
    gains = {"lever_2": math.log(speedup)}
    studies = [study(noise=NOISES[noise], seed=seed, gains=gains)[1] for seed in range(20)]
    return sum("lever_2" in {one.name for one in found.recipe} for found in studies) / 20


@pytest.mark.parametrize(
    ("noise", "speedup", "least"),
    [
        ("quiet", 1.05, 0.95),
        ("quiet", 1.1, 0.95),
        ("quiet", 2.0, 0.95),
        ("busy", 1.05, 0.25),
        ("busy", 1.1, 0.85),
        ("busy", 1.3, 0.95),
        ("busy", 2.0, 0.95),
        ("dependent", 1.3, 0.9),
        ("heavy", 1.3, 0.9),
        ("wild", 2.0, 0.9),
    ],
)
def test_true_speedups_are_found_as_often_as_the_noise_allows(noise, speedup, least):
    assert rate(noise, speedup) >= least


def test_the_interval_of_a_claim_holds_the_true_speedup():
    held = total = 0
    for seed in range(60):
        _, found = study(noise=NOISES["busy"], seed=seed, gains={"lever_2": math.log(1.3)})
        if {one.name for one in found.recipe} == {"lever_2"}:
            total += 1
            held += found.speedup.low <= 1.3 <= found.speedup.high

    assert total >= 50
    assert held / total >= 0.9


# -- the whole grid


def grid_bench(seed: int, noise: Noise):
    """Three levers with three settings each, which interact as thirds of their gains."""
    import random

    rng = random.Random(seed)
    gains = {
        f"{name}:{setting}": rng.choice((-0.1, 0.0, 0.05, 0.15, 0.3, 0.5))
        for name in "abc"
        for setting in (1, 2, 3)
    }
    together = {
        frozenset({f"{x}:{i}", f"{y}:{j}"}): rng.choice((0.0, 0.0, 0.05, -0.1))
        for x, y in itertools.combinations("abc", 2)
        for i in (1, 2, 3)
        for j in (1, 2, 3)
    }
    return ScriptedBench(gains=gains, together=together, seed=seed, noise=noise)


def best_of_grid(bench: ScriptedBench, levers) -> float:
    choices = [(None, *lever.space(bench.facts)) for lever in levers]
    from steptime.tune.values.study_values import Applied

    states = (
        tuple(
            Applied(name=lever.name, settings=settings)
            for lever, settings in zip(levers, chosen, strict=True)
            if settings is not None
        )
        for chosen in itertools.product(*choices)
    )
    return max(bench.true_gain(state) for state in states)


@pytest.mark.parametrize("noise", ["quiet", "busy"])
def test_the_best_of_the_whole_grid_is_reached_with_a_third_of_its_states(noise):
    levers = tuple(make_lever(n, settings=({"n": 1}, {"n": 2}, {"n": 3})) for n in "abc")
    shares = []
    for seed in range(20):
        bench = grid_bench(seed, NOISES[noise])
        found = search(bench, SearchOptions(levers=levers))
        states = {labels_of(trial.state) for trial in found.trials if trial.kind == "live"}

        assert len(states - {frozenset()}) <= 64 // 3
        shares.append(math.exp(bench.true_gain(found.recipe) - best_of_grid(bench, levers)))

    assert sum(share >= 0.95 for share in shares) >= 18
