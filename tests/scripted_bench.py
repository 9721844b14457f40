"""A bench that answers from a table of true speedups, with the noise of a shared machine.

Its clock is a number that each question is charged to. Equal questions in equal order get equal
answers: the noise of a question depends on the seed and on its number alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from steptime.core.interval import Interval
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.schema import SCHEMA
from steptime.diagnose.values.finding import BottleneckKind, Diagnosis
from steptime.levers.base import Facts, Lever, Moment, Preserves
from steptime.measure.values.measurement import Measurement, Phase, SteadyWindow
from steptime.tune.search.bench import (
    ArmResult,
    Baseline,
    ComparisonResult,
    LiveRequest,
    PairLoad,
    ProcessRequest,
    WholeRequest,
    WholeResult,
)
from steptime.tune.search.budget import RUNS_A_JUDGEMENT
from steptime.tune.values.study_values import WELL, Applied, Ending, State, TrialEnd
from steptime.verify.values import Outcome, QualityCheck, Verdict

PHASES = {"input_wait": 0.05, "forward": 0.35, "backward": 0.4, "optimizer": 0.15, "other": 0.05}


def make_lever(
    name: str,
    *,
    settings: tuple[Mapping[str, str | int | float | bool], ...] = ({},),
    moment: Moment = Moment.LIVE,
    phases: tuple[str, ...] = ("forward", "backward", "optimizer"),
    relieves: tuple[str, ...] = ("COMPUTE_BOUND",),
    preserves: Preserves = Preserves.NUMERIC,
    applies: str | None = None,
    by_cpu: bool = True,
) -> Lever:
    return Lever(
        name=name,
        title=f"Does {name}.",
        relieves=relieves,
        phases=phases,
        preserves=preserves,
        when="Always.",
        applies=lambda facts: applies,
        space=lambda facts: settings,
        moment=moment,
        edit=lambda settings: "",
        costs="Nothing.",
        source="None.",
        judged_by_cpu_time=by_cpu,
    )


def make_levers(count: int, **kwargs) -> tuple[Lever, ...]:
    return tuple(make_lever(f"lever_{index}", **kwargs) for index in range(count))


def make_measurement(
    *, step_s: float = 0.05, phases: Mapping[str, float] | None = None, num_steps: int = 200
) -> Measurement:
    shares = PHASES if phases is None else phases
    interval = Interval(estimate=step_s, low=step_s * 0.98, high=step_s * 1.02, n=num_steps)
    return Measurement(
        schema=SCHEMA, run_id="r", command=("python", "train.py"), started_unix_s=0.0,
        duration_s=num_steps * step_s, end=ProcessEnd(state=RunState.FINISHED, exit_code=0),
        num_steps=num_steps, num_optimizer_updates=num_steps, num_backwards=num_steps,
        num_skipped_updates=0, num_ranks=1, period=1,
        steady=SteadyWindow(
            first_step=1, num_steps=num_steps, num_warmup_steps=1, rule="", step_time_s=interval
        ),
        phases=tuple(
            Phase(name=name, median_s=share * step_s, fraction=share)
            for name, share in shares.items()
        ),
        spans=(), copies_per_step=None, syncs_per_step=None, ranks=(), workers=None, host=None,
        overhead=None, notes=(),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Log times of blocks: a process of first order, far outliers, drift, bursts of others' work.

    `process_sd` is that of a pair of processes.
    """

    sd: float = 0.05
    r: float = 0.3
    outliers: float = 0.03
    burst_rate: float = 0.02
    burst_length: int = 15
    burst_size: float = 0.7
    drift: float = 0.002
    process_sd: float = 0.04


QUIET = Noise(sd=0.01, r=0.0, outliers=0.0, burst_rate=0.0, drift=0.0, process_sd=0.01)


def label_of(applied: Applied) -> str:
    values = ",".join(str(value) for value in applied.settings.values())
    return f"{applied.name}:{values}" if values else applied.name


def labels_of(state: State) -> frozenset[str]:
    return frozenset(label_of(one) for one in state)


@dataclass(kw_only=True)
class ScriptedBench:
    """`gains` are true log speedups by lever (or `lever:setting`); `together` what a set adds.

    `ends` are levers that end their process, `ends_together` sets that do. Live blocks and
    processes of pairs are counted. `compile_s` and `start_s` are what a lever takes once a process;
    of a compilation, each process after the first takes `again`. `judge_s`
    is what the first judgement takes: the command's own runs, which are most of it, are made once.
    """

    gains: Mapping[str, float] = field(default_factory=dict)
    together: Mapping[frozenset[str], float] = field(default_factory=dict)
    noise: Noise = QUIET
    seed: int = 0
    step_s: float = 0.05
    startup_s: float = 3.0
    whole_s: float | None = None
    run_s: float = 10.0
    judge_s: float = 20.0
    budget_s: float = 600.0
    compile_s: Mapping[str, float] = field(default_factory=dict)
    again: float = 1.0
    start_s: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, tuple[TrialEnd, str]] = field(default_factory=dict)
    ends_together: Mapping[frozenset[str], tuple[TrialEnd, str]] = field(default_factory=dict)
    names_culprits: bool = True
    harmful: frozenset[str] = frozenset()
    outcome: Callable[[State], Outcome] | None = None
    has_judged: bool = False
    facts: Facts = field(default_factory=lambda: Facts(torch_version="2.13.0", num_cores=2))
    kind: BottleneckKind = BottleneckKind.COMPUTE_BOUND
    phases: Mapping[str, float] | None = None
    baseline_end: TrialEnd = TrialEnd.FINISHED
    live_end: TrialEnd = TrialEnd.FINISHED
    others_cores: float | None = 0.0
    hang_s: float = 60.0
    used_s: float = 0.0
    num_blocks: int = 0
    num_processes: int = 0
    requests: list[object] = field(default_factory=list)
    compiled: set[frozenset[str]] = field(default_factory=set)
    compiled_with: frozenset[str] | None = None
    may_keep_two: bool = False
    kept: tuple[frozenset[str], frozenset[str]] | None = None
    kept_by_chance: float = 0.0
    compiled_ever: set[frozenset[str]] = field(default_factory=set)

    def true_gain(self, state: State) -> float:
        labels = labels_of(state) | {one.name for one in state}
        gain = math.fsum(self.gains.get(label_of(one), 0.0) for one in state)
        return gain + math.fsum(more for names, more in self.together.items() if names <= labels)

    def observe(self) -> Baseline:
        self.requests.append("observe")
        self.used_s += self.run_s
        return Baseline(
            ending=Ending(end=self.baseline_end),
            measurement=make_measurement(step_s=self.step_s, phases=self.phases),
            diagnosis=Diagnosis(schema=SCHEMA, run_id="r", kind=self.kind, findings=()),
            facts=self.facts,
            startup_s=self.startup_s,
            may_keep_two=self.may_keep_two,
            sample_unit="samples",
        )

    def compare_live(self, request: LiveRequest) -> ComparisonResult:
        rng = self._begin(request)
        fixed, self.kept = request.fixed, None
        bad = [s for s in request.states[1:] if self._end_of((*fixed, *s)) is not None]
        is_lost = self.live_end is not TrialEnd.FINISHED
        whole = self._rounds_in_time(request)
        rounds = 0 if is_lost else whole // 3 if bad else whole
        logs = self._blocks(rng, request, rounds)
        arms = []
        compiled_s = 0.0
        for index, state in enumerate(request.states[1:], start=1):
            end = self._end_of((*fixed, *state)) if state is (bad[0] if bad else None) else None
            if end is not None and end[0] is TrialEnd.TIMED_OUT:
                self.used_s += self.hang_s
            named = end if self.names_culprits else None
            cost_s = self._compile_s(request, state)
            compiled_s += cost_s
            values = [before - now for before, now in zip(logs[0], logs[index], strict=True)]
            arms.append(
                ArmResult(
                    state=state,
                    log_ratios=() if end is not None else tuple(values),
                    cpu_log_ratios=()
                    if end is not None
                    else tuple(v * 0.5 + 0.5 * self._gain(request, state) for v in values),
                    ending=WELL if named is None else Ending(end=named[0], reason=named[1]),
                    compile_s=cost_s,
                )
            )
        self.num_blocks += rounds * len(request.states)
        self.used_s += compiled_s + rounds * len(request.states) * self.block_s
        self.used_s += self.startup_s if request.is_fresh or bad else 0.0
        end_of_all = self.live_end
        if bad:
            worst = self._end_of((*fixed, *bad[0]))
            assert worst is not None
            end_of_all = worst[0]
        return ComparisonResult(
            ending=Ending(end=end_of_all),
            reference_step_s=self.step_s,
            arms=tuple(arms),
            others_cores=self.others_cores,
        )

    @property
    def block_s(self) -> float:
        """A block, with the step that settles where steps are short."""
        return (self.step_s if self.step_s <= 0.5 else 0.0) + max(self.step_s, 0.075)

    def _rounds_in_time(self, request: LiveRequest) -> int:
        """Rounds that end before the request's time is over."""
        if request.most_s is None:
            return request.num_rounds
        fitting = math.floor(request.most_s / (len(request.states) * self.block_s))
        return min(request.num_rounds, max(0, fitting))

    def run_whole(self, request: WholeRequest) -> WholeResult:
        self.requests.append(request)
        if self.whole_s is None:
            return WholeResult()
        tuned_s = self.whole_s * math.exp(-self.true_gain(request.state))
        self.used_s += request.num_runs * (self.whole_s + tuned_s)
        return WholeResult(
            written_s=(self.whole_s,) * request.num_runs, tuned_s=(tuned_s,) * request.num_runs
        )

    def compare_processes(self, request: ProcessRequest) -> ComparisonResult:
        rng = self._begin(request)
        end = self._end_of(request.candidate) or self._end_of(request.reference)
        num_pairs = 0 if end is not None else self._pairs_in_time(request)
        self.compiled_with = None
        gain = self.true_gain(request.candidate) - self.true_gain(request.reference)
        if request.is_kept:
            self._keep(rng, request)
            self.used_s += (num_pairs or 1) * self.stretches_s
            gain += self.kept_by_chance
            values = tuple(rng.gauss(gain, self.noise.process_sd / 2) for _ in range(num_pairs))
        else:
            self.kept = None
            self.num_processes += (num_pairs or 1) * 2
            self.used_s += (num_pairs or 1) * 2 * self.run_s
            values = tuple(rng.gauss(gain, self.noise.process_sd) for _ in range(num_pairs))
        ending = WELL if end is None else Ending(end=end[0], reason=end[1])
        arm = ArmResult(
            state=request.candidate,
            log_ratios=values,
            cpu_log_ratios=values,
            ending=ending,
            step_s=self.step_s * math.exp(-gain),
            start_s=self._starts_s(request.candidate) - self._starts_s(request.reference),
            loads=(PairLoad(reference=self.others_cores, candidate=self.others_cores),) * num_pairs,
        )
        same = tuple(rng.gauss(0.0, self.noise.process_sd) for _ in range(num_pairs - 1))
        same = () if request.is_kept else same
        return ComparisonResult(
            ending=ending,
            arms=(arm,),
            reference_step_s=self.step_s,
            others_cores=self.others_cores,
            same=same,
            same_cpu=same,
        )

    def _pairs_in_time(self, request: ProcessRequest) -> int:
        """Pairs that end within the request's time: one at least."""
        if request.most_s is None:
            return request.num_pairs
        pair_s = self.stretches_s if request.is_kept else 2 * self.run_s
        return min(request.num_pairs, max(1, math.floor(request.most_s / pair_s)))

    @property
    def stretches_s(self) -> float:
        """A pair of stretches of two kept processes, each with a step of settling."""
        return 2 * (self.step_s + max(1.0, 3 * self.step_s))

    def _keep(self, rng: random.Random, request: ProcessRequest) -> None:
        """Start two processes, where not just these run; they differ by chance."""
        both = labels_of(request.reference), labels_of(request.candidate)
        if self.kept != both:
            self.kept = both
            self.num_processes += 2
            self.used_s += 2 * self.startup_s
            self.kept_by_chance = rng.gauss(0.0, self.noise.process_sd / 2)

    def judge(self, state: State) -> Verdict:
        self._begin(state)
        self.kept = None
        self.used_s += self.judge_s / (RUNS_A_JUDGEMENT if self.has_judged else 1)
        self.has_judged = True
        if self.outcome is not None:
            outcome = self.outcome(state)
        else:
            is_harmful = self.harmful & (labels_of(state) | {one.name for one in state})
            outcome = Outcome.FAIL if is_harmful else Outcome.PASS
        check = QualityCheck(name="lockstep", outcome=outcome, estimate=1.0, limit=1.0, n=60)
        return Verdict(outcome=outcome, level="L2", checks=(check,))

    def time_left_s(self) -> float:
        return self.budget_s - self.used_s

    def _begin(self, request: object) -> random.Random:
        self.requests.append(request)
        return random.Random(f"{self.seed}:{len(self.requests)}")

    def _end_of(self, state: State) -> tuple[TrialEnd, str] | None:
        found = [self.ends[label_of(one)] for one in state if label_of(one) in self.ends]
        labels = labels_of(state)
        found += [end for names, end in self.ends_together.items() if names <= labels]
        return found[0] if found else None

    def _compile_s(self, request: LiveRequest, state: State) -> float:
        """A state is compiled once a process."""
        if request.is_fresh or self.compiled_with != labels_of(request.fixed):
            self.compiled.clear()
            self.compiled_with = labels_of(request.fixed)
        if labels_of(state) in self.compiled:
            return 0.0
        self.compiled.add(labels_of(state))
        return self._compiling_s((*request.fixed, *state))

    def _compiling_s(self, state: State) -> float:
        """What one process spends on compiling: less where an earlier one did the same."""
        whole_s = max((self.compile_s.get(one.name, 0.0) for one in state), default=0.0)
        share = self.again if labels_of(state) in self.compiled_ever else 1.0
        self.compiled_ever.add(labels_of(state))
        return share * whole_s

    def _starts_s(self, state: State) -> float:
        """What its levers do before the first step."""
        return math.fsum(self.start_s.get(one.name, 0.0) for one in state)

    def _gain(self, request: LiveRequest, state: State) -> float:
        fixed = self.true_gain(request.fixed + request.states[0])
        return self.true_gain(request.fixed + state) - fixed

    def _blocks(self, rng: random.Random, request: LiveRequest, rounds: int) -> list[list[float]]:
        """Log times of each state's blocks, in the order of the rounds."""
        noise, around, burst, now = self.noise, 0.0, 0, 0
        trend = rng.gauss(0, noise.drift)
        logs: list[list[float]] = [[] for _ in request.states]
        for _ in range(rounds):
            for index in rng.sample(range(len(request.states)), len(request.states)):
                around = noise.r * around + math.sqrt(1 - noise.r**2) * rng.gauss(0, noise.sd)
                burst = (
                    burst - 1
                    if burst
                    else (noise.burst_length if rng.random() < noise.burst_rate else 0)
                )
                value = around + now * trend - self._gain(request, request.states[index])
                value += noise.burst_size * rng.random() if burst else 0.0
                value += rng.expovariate(1.0) if rng.random() < noise.outliers else 0.0
                logs[index].append(value)
                now += 1
        return logs


NOISES: Mapping[str, Noise] = {
    "quiet": QUIET,
    "busy": Noise(),
    "dependent": Noise(r=0.8),
    "heavy": Noise(sd=0.1, outliers=0.1, burst_rate=0.05, burst_length=30, process_sd=0.1),
    "wild": Noise(sd=0.3, r=0.6, outliers=0.1, burst_rate=0.1, process_sd=0.2, drift=0.01),
}
"""From a machine of one's own to one whose neighbors do as they please."""

LEVERS = (
    *make_levers(5),
    make_lever("numeric", settings=({"n": 1}, {"n": 2}, {"n": 3})),
    make_lever("compile"),
    make_lever("allocator", moment=Moment.ENVIRONMENT, settings=({"n": 1}, {"n": 2})),
    make_lever("workers", moment=Moment.STARTUP),
)
"""What a study has to choose from: live ones, numeric ones, and two between processes."""
