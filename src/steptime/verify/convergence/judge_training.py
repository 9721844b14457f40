"""Judges over seeds whether a candidate trains as well as the reference.

In: runs of both arms and a `TrainingQuestion`. Out: a `TrainingVerdict`. The rule is one for all
summaries: with a gain whose interval is [L, U] and a margin m, PASS where L > -m, FAIL where
U < -m, else INCONCLUSIVE; all three must pass, which needs no correction of the level.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from steptime.core.note import Fact
from steptime.errors import RunsError
from steptime.verify.convergence.power_plan import LEAST_RUNS
from steptime.verify.convergence.speed import net_speed, time_to_target
from steptime.verify.convergence.statistics import (
    LEVEL,
    LOOK_LEVELS,
    MeanGain,
    diverges_more_p,
    gain_of,
    load_scipy,
    mean,
    paired_gain_of,
    permuted_p,
    runs_needed,
    sd_for_planning,
    variance,
)
from steptime.verify.convergence.summaries import Summary, Yardsticks, final_of, summarize
from steptime.verify.values import Outcome
from steptime.verify.values.seed_runs import (
    CANDIDATE,
    CUT,
    REFERENCE,
    CurvePoint,
    SummaryDifference,
    TrainingQuestion,
    TrainingRun,
    TrainingVerdict,
    Unit,
)

DIVERGES_MORE = 0.05


def judge_training(runs: Sequence[TrainingRun], question: TrainingQuestion) -> TrainingVerdict:
    """Return whether the candidate's runs end as good as the reference's.

    Raises:
        RunsError: the runs cannot be compared; its `code` says why.
        MissingExtraError: scipy is not installed.
        ValueError: `num_looks` is neither 1 nor 3.
    """
    load_scipy()
    marked = mark_incomplete(runs)
    lost = Counter(new.arm for old, new in zip(runs, marked, strict=True) if old is not new)
    if question.num_looks not in LOOK_LEVELS:
        raise ValueError(f"num_looks must be 1 or 3, got {question.num_looks}.")
    arms = {
        name: [one for one in marked if one.arm == name] for name in (REFERENCE, CANDIDATE, CUT)
    }
    check_runs(arms[REFERENCE], arms[CANDIDATE], question)
    check_cut(arms[CUT], question)
    found = _Judgement(arms[REFERENCE], arms[CANDIDATE], arms[CUT], question).verdict()
    return replace(found, num_incomplete=dict(lost))


def mark_incomplete(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """Return the runs; one that ended before the reference does is no number from there on.

    The reference ends where most of its runs do; if they end in different places, as with early
    stopping, where its shortest does.
    """
    whole = [run.points for run in runs if run.arm == REFERENCE and not run.has_diverged]
    if not whole:
        return list(runs)
    longest = max(whole, key=len)
    least, number = Counter(map(len, whole)).most_common(1)[0]
    if 2 * number <= len(whole):
        least = min(map(len, whole))
    return [
        replace(
            run,
            points=(*run.points, longest[len(run.points)]),
            values=(*run.values, math.nan),
            seconds_at=(),
        )
        if run.arm != CUT and 0 < len(run.points) < least and not run.has_diverged
        else run
        for run in runs
    ]


def check_runs(
    reference: Sequence[TrainingRun], candidate: Sequence[TrainingRun], question: TrainingQuestion
) -> None:
    """Refuse runs that say nothing.

    Raises:
        RunsError: an arm has no runs, no metric, a seed twice, one value for all its seeds; the
            arms were evaluated at different points; the margin is not above 0.
    """
    if not question.margin.amount > 0:
        raise RunsError(
            f"the margin must be above 0, got {question.margin.amount:g}.",
            code="no_margin",
            hint="Say which loss does not matter, such as 1%-of-training.",
        )
    for name, runs in ((REFERENCE, reference), (CANDIDATE, candidate)):
        if not runs:
            raise RunsError(
                f"the {name} has no runs.", code="no_runs", hint="Each arm needs 3 or more."
            )
        _check_arm(name, runs)
    if all(run.has_diverged for run in reference):
        raise RunsError(
            "every run of the reference diverged.",
            code="non_finite_metric",
            hint="There is nothing to compare with: mend the reference first.",
        )
    _check_points([*reference, *candidate])


def check_cut(cut: Sequence[TrainingRun], question: TrainingQuestion) -> None:
    """Refuse a shortened reference that measures no margin.

    Raises:
        RunsError: the margin is not in percent of training, or these runs say nothing.
    """
    if not cut:
        return
    if question.margin.unit is not Unit.TRAINING or question.are_paired:
        raise RunsError(
            "a shortened reference measures a margin in percent of training, without pairs.",
            code="cut_without_share",
            hint="Say by how much it is shorter: --margin 5%-of-training, without --paired.",
        )
    _check_arm("shortened reference", cut)
    if sum(not run.has_diverged for run in cut) < 2:
        raise RunsError(
            "the shortened reference needs two runs or more that did not diverge.",
            code="too_few_runs",
            hint="Run it with as many seeds as the others.",
        )


def _check_arm(name: str, runs: Sequence[TrainingRun]) -> None:
    if any(not run.points for run in runs):
        raise RunsError(
            f"a run of the {name} has no value of the metric.",
            code="no_metric",
            hint="Check the name of the metric, or its pattern, against what the run wrote.",
        )
    seeds = Counter(run.seed for run in runs if run.seed is not None)
    twice = [seed for seed, number in seeds.items() if number > 1]
    if twice:
        raise RunsError(
            f"seed {twice[0]} is there twice in the {name}.",
            code="seeds_reused",
            hint="A repeated seed is no new run: give each run its own.",
        )
    if len(runs) > 1 and len({run.values for run in runs}) == 1 and not runs[0].has_diverged:
        raise RunsError(
            f"all {len(runs)} runs of the {name} have the same values.",
            code="zero_variance",
            hint="The script seems to ignore its seed: pass it with --seed-flag, or compare two "
            "runs bit for bit with `steptime tune`.",
        )


def _check_points(runs: Sequence[TrainingRun]) -> None:
    """Refuse arms that were looked at differently often: a noisy curve is then sooner at a target.

    A shorter run is allowed: its points are the first ones of the others'. It is not complete.
    """
    longest = max((run.points for run in runs), key=len)
    for run in runs:
        if run.points != longest[: len(run.points)]:
            at = next(a for a, b in zip(run.points, longest, strict=False) if a != b)
            raise RunsError(
                f"the runs were evaluated at different points: one at {at:g}, another not.",
                code="points_differ",
                hint="Evaluate both arms as often, at the same samples.",
            )


@dataclass(slots=True)
class _Judgement:
    """The judgement of two arms."""

    reference: Sequence[TrainingRun]
    candidate: Sequence[TrainingRun]
    cut: Sequence[TrainingRun]
    question: TrainingQuestion

    def verdict(self) -> TrainingVerdict:
        """Compare the arms, and say what more is needed where they do not decide."""
        found = Yardsticks(self.reference, self.question, self.cut)
        summaries = summarize([*self.reference, *self.candidate], self.question, found)
        if found.margin is None and not self.cut:
            raise RunsError(
                "the reference's metric no longer improves at its end, so a share of its training "
                "is no margin.",
                code="no_slope",
                hint="Give the margin in the unit of the metric, or in percent of it.",
            )
        differences = self._differences(summaries, found.cut)
        outcome, reason, facts = self._outcome(differences, summaries)
        final = differences[0] if differences else None
        return TrainingVerdict(
            outcome=outcome,
            margin=found.margin,
            estimate=None if final is None else final.estimate,
            low=None if final is None else final.low,
            high=None if final is None else final.high,
            num_runs=self.num_runs,
            num_runs_needed=None
            if found.margin is None
            else self._needed(found.margin, self._spread(summaries[0])),
            level=LEVEL,
            look_level=self.look_level,
            differences=tuple(differences),
            is_better_down=self.question.is_better_down,
            are_paired=self.question.are_paired,
            num_diverged={
                REFERENCE: _num_diverged(self.reference),
                CANDIDATE: _num_diverged(self.candidate),
            },
            seed_correlation=_correlation(self.reference, self.candidate),
            training_fraction=found.training_fraction,
            num_cut=len(found.cut),
            same=self._same(summaries[0]),
            speed=net_speed(self.reference, self.candidate, found, final),
            to_target=time_to_target(
                self.reference,
                self.candidate,
                found,
                is_as_good=outcome is Outcome.PASS,
                price_s=self.question.price_s,
            ),
            curves={REFERENCE: curve_of(self.reference), CANDIDATE: curve_of(self.candidate)},
            reason=reason,
            reason_facts=facts,
        )

    @property
    def num_runs(self) -> int:
        """Runs of the smaller arm."""
        return min(len(self.reference), len(self.candidate))

    @property
    def look_level(self) -> float:
        """Level of one look."""
        return LOOK_LEVELS[self.question.num_looks]

    def _differences(
        self, summaries: Sequence[Summary], cut: Sequence[float]
    ) -> list[SummaryDifference]:
        """Compare each summary that has a margin; none where an arm has a single run."""
        if self.num_runs < 2 or summaries[0].margin is None:
            return []
        found = [self._difference(one, one.margin) for one in summaries if one.margin is not None]
        if cut and found:
            found[0] = self._beside_cut(summaries[0], found[0], cut)
        return found

    def _difference(self, summary: Summary, margin: float) -> SummaryDifference:
        gain = self._gain(summary)
        permuted = None
        if not self.question.are_paired:
            permuted = permuted_p(summary.reference, summary.candidate, margin=margin)
        return self._judged(summary, gain, margin, permuted)

    def _beside_cut(
        self, final: Summary, plain: SummaryDifference, cut: Sequence[float]
    ) -> SummaryDifference:
        """Compare the candidate with the shortened reference itself.

        So the interval holds the spread of the runs that the margin was measured by: the candidate
        is not worse by the margin if it is better than the shortened reference.
        """
        gain = gain_of(cut, final.candidate)
        shifted = MeanGain(gain.mean - plain.margin, gain.error, gain.freedom)
        permuted = permuted_p(cut, final.candidate, margin=0.0)
        return self._judged(final, shifted, plain.margin, permuted)

    def _judged(
        self, summary: Summary, gain: MeanGain, margin: float, permuted: float | None
    ) -> SummaryDifference:
        low, high = gain.ends(self.look_level)
        outcome = Outcome.INCONCLUSIVE
        if low > -margin:
            outcome = Outcome.PASS
        elif high < -margin:
            outcome = Outcome.FAIL
        return SummaryDifference(
            name=summary.name,
            outcome=outcome,
            estimate=gain.mean,
            low=low,
            high=high,
            margin=margin,
            p_not_worse=gain.p_above(-margin),
            p_permuted=permuted,
            reference_sd=math.sqrt(variance(summary.reference)),
            candidate_sd=math.sqrt(variance(summary.candidate)),
            is_worse_within_margin=-margin < low and high < 0,
        )

    def _same(self, final: Summary) -> SummaryDifference | None:
        """Compare the reference with itself: every other run against the rest."""
        halves = final.reference[::2], final.reference[1::2]
        if len(halves[1]) < 2 or final.margin is None or self.question.are_paired:
            return None
        split = Summary(name="same", reference=halves[0], candidate=halves[1], margin=final.margin)
        return self._judged(split, gain_of(*halves), final.margin, None)

    def _gain(self, summary: Summary) -> MeanGain:
        if not self.question.are_paired:
            return gain_of(summary.reference, summary.candidate)
        by_seed = dict(zip((run.seed for run in self.reference), summary.reference, strict=True))
        pairs = zip((run.seed for run in self.candidate), summary.candidate, strict=True)
        differences = [value - by_seed[seed] for seed, value in pairs if seed in by_seed]
        if len(differences) < len(self.candidate) or len(by_seed) != len(self.candidate):
            raise RunsError(
                "paired runs need the same seeds in both arms.",
                code="not_paired",
                hint="Run each seed in both arms, or leave out --paired.",
            )
        return paired_gain_of(differences)

    def _outcome(
        self, differences: Sequence[SummaryDifference], summaries: Sequence[Summary]
    ) -> tuple[Outcome, str | None, dict[str, Fact]]:
        """Return the verdict, and why there is none."""
        num: dict[str, Fact] = {"num_runs": self.num_runs}
        if self.num_runs < LEAST_RUNS:
            return Outcome.INCONCLUSIVE, "too_few_runs", num
        diverged = [_num_diverged(self.reference), _num_diverged(self.candidate)]
        counts = [
            (number, len(arm) - number)
            for number, arm in zip(diverged, (self.reference, self.candidate), strict=True)
        ]
        told: dict[str, Fact] = {"num_reference": diverged[0], "num_candidate": diverged[1]}
        if diverged[1] and diverges_more_p(counts[0], counts[1]) < DIVERGES_MORE:
            return Outcome.FAIL, "diverges_more", told
        failed = [one.name for one in differences if one.outcome is Outcome.FAIL]
        if failed:
            return Outcome.FAIL, None, {}
        if not differences:
            return Outcome.INCONCLUSIVE, "cut_not_worse", num
        if not self._can_pass(differences[0]):
            return Outcome.INCONCLUSIVE, "reference_too_noisy", num
        if diverged[1] and not diverged[0]:
            return Outcome.INCONCLUSIVE, "candidate_diverged", told
        censored = sum(one.num_censored for one in summaries)
        if censored:
            return Outcome.INCONCLUSIVE, "target_not_reached", {"num_candidate": censored}
        if all(one.outcome is Outcome.PASS for one in differences):
            return Outcome.PASS, None, {}
        return Outcome.INCONCLUSIVE, "too_few_runs", num

    def _can_pass(self, final: SummaryDifference) -> bool:
        """Whether the reference would pass against itself with so many runs, at no difference."""
        if self.question.are_paired:
            return True
        values = [0.0 if run.has_diverged else final_of(run) for run in self.reference]
        same = MeanGain(
            0.0,
            math.sqrt(variance(values) * (1 / len(self.reference) + 1 / len(self.candidate))),
            float(len(self.reference) + len(self.candidate) - 2),
        )
        return same.ends(self.look_level)[0] > -final.margin

    def _spread(self, final: Summary) -> tuple[float, int] | None:
        """Return the SD of the final metric over seeds, and how many runs showed it.

        Of pairs it is that of their differences.
        """
        if self.question.are_paired and self.num_runs > 1:
            return self._gain(final).error * math.sqrt(self.num_runs), self.num_runs
        arms = [one for one in (final.reference, final.candidate) if len(one) > 1]
        if not arms:
            return None
        sd = math.sqrt(mean([variance(one) for one in arms]))
        return sd, sum(len(one) - 1 for one in arms) + 1

    def _needed(self, margin: float, spread: tuple[float, int] | None) -> int | None:
        """Return the runs of each arm that this margin needs, by the spread that was seen."""
        if spread is None:
            return None
        if spread[0] == 0:
            return LEAST_RUNS
        found = runs_needed(
            margin / sd_for_planning(*spread),
            level=self.look_level,
            are_paired=self.question.are_paired,
        )
        return None if found is None else max(LEAST_RUNS, found)


def _num_diverged(runs: Sequence[TrainingRun]) -> int:
    return sum(run.has_diverged for run in runs)


def _correlation(
    reference: Sequence[TrainingRun], candidate: Sequence[TrainingRun]
) -> float | None:
    """Return the correlation of final metrics over seeds that both arms have."""
    by_seed = {run.seed: final_of(run) for run in reference if run.seed and not run.has_diverged}
    pairs = [
        (by_seed[run.seed], final_of(run))
        for run in candidate
        if run.seed in by_seed and not run.has_diverged
    ]
    if len(pairs) < LEAST_RUNS:
        return None
    ours, theirs = zip(*pairs, strict=True)
    spread = math.sqrt(variance(ours) * variance(theirs))
    x, y = mean(ours), mean(theirs)
    both = math.fsum((a - x) * (b - y) for a, b in pairs) / (len(pairs) - 1)
    return both / spread if spread else None


def curve_of(runs: Sequence[TrainingRun]) -> tuple[CurvePoint, ...]:
    """Return the metric over the training: mean and range of the runs at each point."""
    by_point: dict[float, list[float]] = {}
    for run in runs:
        for at, value in zip(run.points, run.values, strict=True):
            if math.isfinite(value):
                by_point.setdefault(at, []).append(value)
    return tuple(
        CurvePoint(point=at, mean=mean(values), low=min(values), high=max(values), n=len(values))
        for at, values in sorted(by_point.items())
    )
