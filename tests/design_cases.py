"""Studies with several levers whose truth is known: small gains, pairs, harm, crashes, slow steps.

Each case says what may be tried, what is true, and which levers make the best recipe. What a study
reached of that is the share of the best log speedup; blocks and processes say what it took.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scripted_bench import NOISES, Noise, ScriptedBench, label_of, make_lever, make_levers
from steptime.diagnose.values.finding import BottleneckKind
from steptime.levers.base import Lever, Moment, Preserves
from steptime.tune.values.study_values import Applied, State, TrialEnd
from steptime.verify.values import Outcome

log = math.log


BF16: Mapping[str, tuple[Mapping[str, str | bool], ...]] = {
    "matmul_precision": ({"precision": "medium"},),
    "module_precision": (
        {"float32": "ends"},
        {"float32": "ends_and_norms"},
        {"float32": "none", "low": True},
    ),
    "autocast": ({"dtype": "bf16"},),
}
"""Levers that round to bf16, with their settings."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of study; `gains` are true speedups, `best` the labels of the best recipe."""

    levers: tuple[Lever, ...]
    gains: Mapping[str, float] = field(default_factory=dict)
    together: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    noise: Noise = NOISES["busy"]
    script: Mapping[str, object] = field(default_factory=dict)

    def bench(self, seed: int) -> ScriptedBench:
        """The case with its own noise for each seed."""
        return ScriptedBench(
            gains={name: log(one) for name, one in self.gains.items()},
            together={frozenset(names): log(one) for names, one in self.together.items()},
            noise=self.noise,
            seed=seed,
            **self.script,
        )

    @property
    def reachable(self) -> float:
        """Log speedup of the best recipe; zero where nothing helps."""
        gain = math.fsum(log(self.gains.get(name, 1.0)) for name in self.best)
        inside = set(self.best)
        return gain + math.fsum(
            log(more) for names, more in self.together.items() if set(names) <= inside
        )


def useless(case: Case, bench: ScriptedBench, recipe) -> list[str]:
    """The levers of a recipe without which it would be no slower."""
    full = bench.true_gain(recipe)
    rest = {label_of(one): tuple(it for it in recipe if it is not one) for one in recipe}
    return [name for name, state in rest.items() if bench.true_gain(state) >= full - 1e-9]


def _between(name: str, **more: object) -> Lever:
    return make_lever(name, moment=Moment.STARTUP, **more)


SMALL = {f"lever_{i}": one for i, one in enumerate((1.03, 1.04, 1.05, 1.06, 1.07))}
SIX = {f"lever_{i}": one for i, one in enumerate((1.05, 1.06, 1.08, 1.1, 1.12, 1.15))}
INPUT = {
    "kind": BottleneckKind.INPUT_BOUND,
    "phases": {
        "input_wait": 0.45,
        "forward": 0.2,
        "backward": 0.2,
        "optimizer": 0.1,
        "other": 0.05,
    },
    "run_s": 7.0,
}
THREADS = make_lever("num_threads", settings=({"num_threads": 1},), by_cpu=False)
WORKERS = _between("dataloader", phases=("input_wait",), relieves=("INPUT_BOUND",), by_cpu=False)
CACHE = _between("dataset_cache", phases=("input_wait",), relieves=("INPUT_BOUND",))
WAITS = _between("wait_policy", phases=("forward", "backward"), by_cpu=False)
SLOW = Noise(sd=0.03, r=0.2, outliers=0.02, burst_rate=0.01, burst_length=3, burst_size=0.3)
SLOW_GAINS = {"lever_0": 1.5, "lever_1": 1.06, "lever_2": 1.04}

CASES: Mapping[str, Case] = {
    "five small gains": Case(levers=make_levers(7), gains=SMALL, best=tuple(SMALL)),
    "five small gains, heavy noise": Case(
        levers=make_levers(7), gains=SMALL, best=tuple(SMALL), noise=NOISES["heavy"]
    ),
    "a pair that helps only together": Case(
        levers=make_levers(6),
        together={("lever_1", "lever_4"): 1.4},
        best=("lever_1", "lever_4"),
    ),
    "a pair of which each alone is slower": Case(
        levers=make_levers(6),
        gains={"lever_1": 0.93, "lever_4": 0.93},
        together={("lever_1", "lever_4"): 1.7},
        best=("lever_1", "lever_4"),
    ),
    "one thread with one worker": Case(
        levers=(*make_levers(3), THREADS, WORKERS, WAITS),
        gains={"lever_0": 1.2, "num_threads:1": 0.97, "dataloader": 0.97},
        together={("num_threads:1", "dataloader"): 1.4},
        best=("lever_0", "num_threads:1", "dataloader"),
        script=INPUT,
    ),
    "one thread with a cache": Case(
        levers=(*make_levers(3), THREADS, CACHE, WAITS),
        gains={"num_threads:1": 1.4, "dataset_cache": 1.6},
        together={("num_threads:1", "dataset_cache"): 1.52},
        best=("num_threads:1", "dataset_cache"),
        script=INPUT,
    ),
    "four between processes, one slower": Case(
        levers=(*make_levers(2), *(_between(f"start_{i}") for i in range(4))),
        gains={"start_0": 1.12, "start_1": 1.1, "start_2": 1.15, "start_3": 0.9},
        best=("start_0", "start_1", "start_2"),
        script={"run_s": 7.0},
    ),
    "one slower among seven": Case(
        levers=make_levers(7), gains={**SIX, "lever_6": 0.75}, best=tuple(SIX)
    ),
    "one that crashes among seven": Case(
        levers=make_levers(7),
        gains={**SIX, "lever_6": 1.5},
        best=tuple(SIX),
        script={"ends": {"lever_6": (TrialEnd.FAILED, "exit_code")}, "names_culprits": False},
    ),
    "two that crash together": Case(
        levers=make_levers(7),
        gains=SIX,
        best=tuple(name for name in SIX if name != "lever_0"),
        script={
            "ends_together": {
                frozenset({"lever_0", "lever_5"}): (TrialEnd.OUT_OF_MEMORY, "out_of_memory")
            }
        },
    ),
    "one of seven changes the numbers": Case(
        levers=make_levers(7),
        gains={**SIX, "lever_6": 1.3},
        best=tuple(SIX),
        script={"harmful": frozenset({"lever_6"})},
    ),
    "steps of 5 s, 10 minutes": Case(
        levers=make_levers(6, preserves=Preserves.EXACT),
        gains=SLOW_GAINS,
        best=tuple(SLOW_GAINS),
        noise=SLOW,
        script={"step_s": 5.0, "startup_s": 20.0, "run_s": 65.0, "judge_s": 360.0},
    ),
    "steps of 5 s, 20 minutes": Case(
        levers=make_levers(6),
        gains=SLOW_GAINS,
        best=tuple(SLOW_GAINS),
        noise=SLOW,
        script={
            "step_s": 5.0, "startup_s": 20.0, "run_s": 65.0, "judge_s": 600.0, "budget_s": 1200.0
        },
    ),
    "steps of 5 s, one slower": Case(
        levers=make_levers(6),
        gains={**SLOW_GAINS, "lever_5": 0.6},
        best=tuple(SLOW_GAINS),
        noise=SLOW,
        script={
            "step_s": 5.0, "startup_s": 20.0, "run_s": 65.0, "judge_s": 600.0, "budget_s": 1200.0
        },
    ),
    "nothing helps": Case(levers=(*make_levers(6), *(_between(f"start_{i}") for i in range(2)))),
    "nothing helps, heavy noise": Case(
        levers=(*make_levers(6), *(_between(f"start_{i}") for i in range(2))),
        noise=NOISES["heavy"],
    ),
}  # fmt: skip
"""Kinds of recipes that are easily missed, and two in which every lever does nothing."""


def drawn(seed: int) -> tuple[ScriptedBench, tuple[Lever, ...]]:
    """A study of its own kind for each seed, and its levers.

    It has what makes a proof come too late: levers that round the same numbers, pairs of processes
    that take 10 to 15 s, judgements of 20 to 80 s, levers that train worse alone or in pairs.
    """
    rng = random.Random(seed)
    kinds = (Preserves.EXACT, Preserves.NUMERIC)
    live = [make_lever(f"lever_{i}", preserves=rng.choice(kinds)) for i in range(rng.randint(2, 5))]
    gains = {one.name: log(rng.choice((0.97, 1.0, 1.03, 1.1, 1.2, 1.4))) for one in live}
    rounding = []
    if rng.random() < 0.6:
        most = log(rng.choice((1.05, 1.3, 1.8)))
        for name, settings in BF16.items():
            lever = make_lever(name, settings=settings)
            rounding.append(replace(lever, roundoff=lambda settings: 2.0**-8))
            applied = [Applied(name=name, settings=one) for one in settings]
            gains |= {label_of(one): most * rng.uniform(0.8, 1) for one in applied}
    late = [
        _between(
            f"start_{i}",
            preserves=rng.choice(kinds),
            phases=("input_wait",),
            relieves=("INPUT_BOUND",),
        )
        for i in range(rng.randint(0, 3))
    ]
    gains |= {one.name: log(rng.choice((1.0, 1.1, 1.3, 1.8))) for one in late}
    levers = (*live, *rounding, *late)
    names = [one.name for one in levers]
    harmful = {name for name in names if rng.random() < 0.15}
    if rounding and rng.random() < 0.5:
        harmful |= {"module_precision", "autocast"}
    pairs = [set(rng.sample(names, 2)) for _ in range(rng.randint(0, 2))]

    def outcome(state: State) -> Outcome:
        inside = {one.name for one in state}
        is_worse = inside & harmful or any(pair <= inside for pair in pairs)
        return Outcome.FAIL if is_worse else Outcome.PASS

    bench = ScriptedBench(
        gains=gains,
        noise=NOISES[rng.choice(("quiet", "busy", "busy", "heavy"))],
        seed=seed,
        step_s=rng.choice((0.02, 0.1, 0.5, 2.0)),
        startup_s=rng.choice((2.8, 8.0)),
        run_s=rng.choice((5.0, 6.0, 7.5)),
        judge_s=rng.choice((20.0, 40.0, 80.0)),
        budget_s=rng.choice((360.0, 600.0)),
        outcome=outcome,
        **({"kind": INPUT["kind"], "phases": INPUT["phases"]} if rng.random() < 0.5 else {}),
    )
    bench.may_keep_two = rng.random() < 0.5
    return bench, levers
