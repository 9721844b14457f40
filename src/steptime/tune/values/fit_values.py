"""Whether a training fits into a memory limit, and with which settings it was run under it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.core.schema import SCHEMA
from steptime.plan.values.batch_values import LearningRateAdvice
from steptime.plan.values.shared_peaks import SharedPeak
from steptime.tune.values.site_values import EditSites
from steptime.tune.values.study_values import NotTried, State, TrainingScope, TrialEnd
from steptime.verify.values import Outcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPeak:
    """The most memory that the command as written needs at once.

    Attributes:
        estimate: the peak [bytes].
        low: what it needs at least [bytes].
        high: what it should need at most, by what was seen [bytes].
        by_category: the same estimate by who holds it: the parts of the anatomy, and `process`
            (Python, torch and libraries); the parts sum to the estimate [bytes].
        how: `observed`: a trial ran it; `forecast`: the largest batch of the epoch was still to
            come, and its peak follows from those of smaller ones; `fake_step`: the command ran out
            of the memory here, and its peak is that of a step on tensors without memory, with what
            process and allocator are expected to take; `at_least`: it ended early, or
            steps that were not seen may be larger.
        num_steps: steps that were seen.
        unknown: what is not known of it, as machine words; those of a forecast may have a colon and
            a detail, such as `no_fake_kernel: mylib::scan`.
    """

    estimate: int
    low: int
    high: int
    by_category: Mapping[str, int]
    how: str
    num_steps: int = 0
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPeak:
    """What the tensors of one rank need at once, as forecast; the process is besides.

    Attributes:
        rank: its number.
        estimate: the peak [bytes].
        low: the lower end [bytes].
        high: the upper end [bytes].
    """

    rank: int
    estimate: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """The peak with another micro-batch, by what grows with it; an estimate.

    Attributes:
        factor: how many times as large the micro-batch is as it is written.
        bytes: the peak [bytes].
    """

    factor: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPoint:
    """The peak with rows of another length, by what grows with the batch; two bounds.

    Attributes:
        factor: how many times as long the rows are as those that were seen.
        low: the peak [bytes]; of longer rows, if all that grows goes with the elements, and of
            shorter ones, if all of it goes with the square of a row.
        high: the other way round [bytes].
    """

    factor: float
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitMeasure:
    """A lever that would free memory here, with one setting; an estimate.

    Attributes:
        name: the lever.
        settings: its settings.
        frees_bytes: what it frees of the peak, used alone [bytes].
        cost_fraction: how much longer a step takes, as a share of it; negative where it is
            expected to be shorter.
        preserves: what it leaves unchanged: `EXACT`, `NUMERIC`, `STATISTICAL`.
    """

    name: str
    settings: Mapping[str, str | int | float | bool]
    frees_bytes: int
    cost_fraction: float
    preserves: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRun:
    """The command with some levers, run for real under the limit.

    Attributes:
        number: its number, from 1.
        state: the levers that were on; none: the command as written.
        estimate_bytes: the peak that was expected [bytes].
        end: how it ended; `finished` where it trained through the window that was wanted.
        reason: machine word of any other end.
        facts: the numbers and words for its sentence.
        peak_bytes: private memory of the process at its peak [bytes]; None where the system did
            not say. Of a run that ended by the limit, what it had when it asked for more.
        num_steps: steps that it made.
        step_s: median time of a step [s].
    """

    number: int
    state: State
    estimate_bytes: int
    end: TrialEnd
    reason: str | None = None
    facts: Mapping[str, Fact] | None = None
    peak_bytes: int | None = None
    num_steps: int = 0
    step_s: float | None = None

    @property
    def is_well(self) -> bool:
        """Whether it trained under the limit."""
        return self.end is TrialEnd.FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTrial:
    """What a larger batch gives, measured in turns with the batch as written in one process.

    It is another training, whose quality was not judged.

    Attributes:
        factor: how many times as large the batch was.
        how: `joined`: batches of the script's loader were handed out as one; `repeated`: the script
            makes its batches itself, and the rows of each call of the model were repeated, without
            what makes them and without a loss outside of the model.
        rate_gain: samples in a second with them over those as written; None where that was not
            measured.
        rises: whether the rate is higher by 5 % or more; None where it cannot be told.
        same_global_gain: speedup of a step with that much less accumulation, which keeps the global
            batch: computed from `rate_gain` and the time of the update. None where the script does
            not accumulate that many micro-batches.
        clock: `cpu` (time of the processor, where one thread does all) or `wall`.
        estimate_bytes: the peak that was expected [bytes].
        learning_rate: how it follows the global batch; None where the optimizer is not known.
        reason: machine word of why there is no `rate_gain`.
        facts: the numbers and words for its sentence.
    """

    factor: int
    rate_gain: Interval | None
    rises: bool | None
    same_global_gain: Interval | None = None
    how: str = "joined"
    clock: str = "wall"
    estimate_bytes: int | None = None
    learning_rate: LearningRateAdvice | None = None
    reason: str | None = None
    facts: Mapping[str, Fact] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitStudy:
    """Whether a command fits into a limit, and what makes it fit.

    Attributes:
        fit_id: name of its folder.
        command: the command as given.
        started_unix_s: its start, seconds since 1970.
        ended_unix_s: its end [s since 1970].
        limit_bytes: the limit [bytes].
        limit_from: where the limit comes from: `given`, `part` (an accelerator that was named),
            `machine` (what is free here).
        limit_counts: what the limit is held against: `private` memory of a process, or the memory
            of its `device`.
        part: name of the accelerator that was named; None where none was.
        fits: whether the command as written fits; None where that is not known.
        peak: its peak as written; None where no step was seen.
        recipe: the levers with which it ran under the limit; empty where none were needed, or
            none were found.
        proven: what the runs under the limit said of the recipe, or of the command as written:
            `PASS`, `FAIL`; None where nothing was run under the limit.
        quality: whether the training is as good with the recipe; None where that was not judged.
        batch_factor: how many times as large the micro-batch could be within the limit, as
            written; an estimate, below 1 where it does not fit. None where it is not known.
        by_batch: the peak as written with smaller and larger micro-batches; empty where it is not
            known what grows with them.
        by_length: the peak as written with shorter and longer rows; empty where the inputs are no
            rows of tokens.
        ranks: what each rank of a command that starts several needs, where the command was
            forecast; `peak` is then of the one that needs most. Empty otherwise.
        larger_batches: what larger batches give, where the command fits and memory is free; they
            are another training. Empty where none was tried.
        batch_reason: machine word of why none was tried.
        batch_facts: the numbers and words for its sentence.
        devices: the peak of a device where several share the same global batch; empty where it
            was not asked for.
        measures: what would free memory here, and what that costs.
        not_tried: levers that free memory and cannot be used here, with the reason.
        runs: what was run under the limit, in order.
        short_bytes: what is missing with the best settings known here; None where it fits, and
            where these settings should have fitted but ran out of memory [bytes].
        nearest: these settings.
        nearest_bytes: their peak, as estimated [bytes].
        baseline_step_s: median time of a step as written [s].
        fitted_step_s: median time of a step with the recipe, in the run under the limit [s].
        device: what it trains on.
        torch_version: version of torch in its first rank.
        tier: how the trials were kept from harm: isolated, guarded or unsafe.
        reason: machine word that explains why there is no answer, or none that is proven.
        reason_facts: the numbers and words for its sentence.
        training: the training of the command that was meant, if one was named.
        sites: where in the source stands what levers change.
        is_interrupted: the user ended it early.
        recipe_file: path of the recipe; None where none was written.
        page: path of its page, an HTML file; None where there is none.
        schema: version of the record.
    """

    fit_id: str
    command: tuple[str, ...]
    started_unix_s: float
    ended_unix_s: float | None
    limit_bytes: int
    limit_from: str
    limit_counts: str
    fits: bool | None
    peak: FitPeak | None
    part: str | None = None
    recipe: State = ()
    proven: Outcome | None = None
    quality: Verdict | None = None
    batch_factor: float | None = None
    by_batch: tuple[BatchPoint, ...] = ()
    by_length: tuple[LengthPoint, ...] = ()
    ranks: tuple[RankPeak, ...] = ()
    larger_batches: tuple[BatchTrial, ...] = ()
    batch_reason: str | None = None
    batch_facts: Mapping[str, Fact] | None = None
    devices: tuple[SharedPeak, ...] = ()
    measures: tuple[FitMeasure, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    runs: tuple[FitRun, ...] = ()
    short_bytes: int | None = None
    nearest: State = ()
    nearest_bytes: int | None = None
    baseline_step_s: float | None = None
    fitted_step_s: float | None = None
    device: str | None = None
    torch_version: str | None = None
    tier: str | None = None
    reason: str | None = None
    reason_facts: Mapping[str, Fact] | None = None
    training: TrainingScope | None = None
    sites: EditSites | None = None
    is_interrupted: bool = False
    recipe_file: str | None = None
    page: str | None = None
    schema: int = SCHEMA

    @property
    def recipe_bytes(self) -> int | None:
        """The peak of the run that the recipe comes from [bytes]; None where it is not known."""
        wells = (run.peak_bytes for run in self.runs if run.is_well and run.state == self.recipe)
        return next(wells, None) if self.recipe else None

    @property
    def is_made_to_fit(self) -> bool:
        """Whether a recipe ran under the limit and trains as well."""
        judged = self.quality is not None and self.quality.outcome is Outcome.PASS
        return bool(self.recipe) and self.proven is Outcome.PASS and judged
