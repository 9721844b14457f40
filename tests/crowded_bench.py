"""A scripted bench as on a machine whose cores others keep busy, and what people tune there.

The load of others wanders from process to process, slows both the reference and the candidate, and
bursts. CPU time feels a little of it. Scripts are slow, short, or expensive to compile: the studies
of people on shared machines.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scripted_bench import Noise, ScriptedBench, make_lever, make_levers
from steptime.levers.base import Lever, Moment, Preserves
from steptime.tune.search.bench import (
    ArmResult,
    ComparisonResult,
    LiveRequest,
    PairLoad,
    ProcessRequest,
)
from steptime.tune.values.study_values import WELL, State

CROWDED = Noise(
    sd=0.15, r=0.5, outliers=0.06, burst_rate=0.03, burst_length=20, burst_size=0.8, drift=0.003
)
"""Blocks beside neighbors: dependent, with far outliers and bursts."""


@dataclass(kw_only=True)
class CrowdedBench(ScriptedBench):
    """`load` is what others take on average [cores]; each core of it slows a process by `slows`.

    `rounds_a_start` is how many rounds a process of a short script makes before it is over;
    `exact` are levers whose judgement takes three whole runs of the script.
    """

    load: float = 1.2
    load_sd: float = 0.5
    slows: float = 0.35
    process_noise: float = 0.06
    rounds_a_start: int | None = None
    exact: frozenset[str] = frozenset()

    def compare_live(self, request: LiveRequest) -> ComparisonResult:
        result = super().compare_live(request)
        if self.rounds_a_start is not None and result.arms:
            num = max(len(arm.log_ratios) for arm in result.arms)
            starts = math.ceil(num * len(request.states) / self.rounds_a_start)
            self.used_s += max(0, starts - 1) * self.startup_s
        return replace(result, others_cores=self.load)

    @property
    def block_s(self) -> float:
        """A block; a step of settling only where steps are short."""
        settle_s = self.step_s if self.step_s <= 0.5 else 0.0
        own_s = settle_s + max(self.step_s, 0.075)
        return (
            own_s if self.rounds_a_start is None else own_s + self.startup_s / self.rounds_a_start
        )

    def compare_processes(self, request: ProcessRequest) -> ComparisonResult:
        rng = self._begin(request)
        num_pairs = self._pairs_in_time(request)
        self.compiled_with = None
        self.used_s += num_pairs * 2 * self.run_s
        sides = self._sides(rng, request, num_pairs)
        pairs = [
            tuple(sides[2 * i : 2 * i + 2][:: 1 if i % 2 == 0 else -1]) for i in range(num_pairs)
        ]
        arm = ArmResult(
            state=request.candidate,
            log_ratios=tuple(a[0] - b[0] for a, b in pairs),
            cpu_log_ratios=tuple(a[1] - b[1] for a, b in pairs),
            ending=WELL,
            step_s=self.step_s,
            loads=tuple(PairLoad(reference=a[2], candidate=b[2]) for a, b in pairs),
        )
        alike = list(zip(sides[1::2], sides[2::2], strict=False))
        return ComparisonResult(
            ending=WELL,
            arms=(arm,),
            reference_step_s=self.step_s,
            others_cores=max(side[2] for side in sides),
            same=tuple(a[0] - b[0] for a, b in alike),
            same_cpu=tuple(a[1] - b[1] for a, b in alike),
        )

    def _sides(
        self, rng: random.Random, request: ProcessRequest, num_pairs: int
    ) -> list[tuple[float, float, float]]:
        """Log wall time, log CPU time and load of each process, in order of time."""
        around, sides = rng.gauss(0, self.load_sd), []
        for index in range(2 * num_pairs):
            is_candidate = index % 4 in (1, 2)
            gain = self.true_gain(request.candidate if is_candidate else request.reference)
            around = 0.7 * around + math.sqrt(1 - 0.49) * rng.gauss(0, self.load_sd)
            load = max(0.0, self.load + around)
            wall = self.slows * load - gain + rng.gauss(0, self.process_noise)
            wall += rng.expovariate(2.0) if rng.random() < 0.05 else 0.0
            cpu = 0.03 * load - gain + rng.gauss(0, 0.4 * self.process_noise)
            sides.append((wall, cpu, load))
        return sides

    def judge(self, state: State):
        num_runs = 3 if all(one.name in self.exact for one in state) else 5
        self.judge_s = num_runs * (self.startup_s + 20 * self.step_s)
        return super().judge(state)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of study: what it may try, the truth, and what the script is like."""

    levers: tuple[Lever, ...]
    truth: Mapping[str, float]
    budget_s: float = 360.0
    script: Mapping[str, object] = field(default_factory=dict)

    def bench(self, seed: int) -> CrowdedBench:
        """The case with its own noise for each seed."""
        exact = frozenset(o.name for o in self.levers if o.preserves is Preserves.EXACT)
        gains = {name: math.log(speedup) for name, speedup in self.truth.items()}
        return CrowdedBench(
            gains=gains,
            noise=CROWDED,
            seed=seed,
            budget_s=self.budget_s,
            exact=exact,
            **self.script,
        )


def _between(name: str, *, by_cpu: bool, beside: bool = False, **more: object) -> Lever:
    lever = make_lever(
        name, moment=Moment.STARTUP, preserves=Preserves.EXACT, by_cpu=by_cpu, **more
    )
    return replace(lever, judged_beside_others=beside)


COMPILE = make_lever("compile")
SLOW = {"step_s": 0.9, "startup_s": 10.0, "run_s": 27.0, "compile_s": {"compile": 75.0}}
QUICK = {"step_s": 0.03, "startup_s": 6.0, "run_s": 11.0, "compile_s": {"compile": 40.0}}

CASES: Mapping[str, Case] = {
    "transformer, bf16": Case(
        levers=(*make_levers(4), COMPILE), truth={"lever_0": 1.68}, script=SLOW
    ),
    "loader worker": Case(
        levers=(*make_levers(3), _between("workers", by_cpu=False, beside=True)),
        truth={"workers": 1.9},
        script=QUICK,
    ),
    "cache of a data set alone, 4 minutes": Case(
        levers=(_between("cache", by_cpu=True),),
        truth={"cache": 1.5},
        budget_s=240.0,
        script={"step_s": 0.3, "startup_s": 8.0, "run_s": 13.0},
    ),
    "whole batches": Case(
        levers=(*make_levers(3), _between("whole", by_cpu=True)),
        truth={"whole": 1.35},
        script=QUICK,
    ),
    "slow steps": Case(
        levers=make_levers(3), truth={"lever_0": 1.7}, script={**SLOW, "step_s": 2.0, "run_s": 30.0}
    ),
    "twenty steps a run": Case(
        levers=make_levers(2),
        truth={"lever_0": 1.5},
        script={"step_s": 0.5, "startup_s": 5.0, "run_s": 15.0, "rounds_a_start": 8},
    ),
    "allocator, compile for nothing": Case(
        levers=(*make_levers(2), COMPILE, _between("allocator", by_cpu=True)),
        truth={"allocator": 1.25},
        script=QUICK,
    ),
    "fused optimizer": Case(
        levers=(*make_levers(4), COMPILE), truth={"lever_0": 1.15}, script=QUICK
    ),
    "nothing helps": Case(
        levers=(*make_levers(4), COMPILE, _between("whole", by_cpu=True)), truth={}, script=QUICK
    ),
}
"""Nine kinds of studies on a machine that others keep busy."""
